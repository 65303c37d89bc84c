// Package supportbundletest has texts and objects with secrets, for tests.
package supportbundletest

// An object is an object in JSON.
type object = map[string]any

// Leaks returns lines of program logs with a secret. "canary" is a part of each secret.
func Leaks() []string {
	return []string{
		"kubeadm join --token abcdef.canary0123456789", "--discovery-token=canary-token next", `{"password":"canary-json","kept":1}`,
		`msg="{\"token\":\"canary-escaped\"}"`, "Authorization: Bearer canary.bearer.0123", "https://user:canary-url@mirror/x",
		"token eyJcanary0123.eyJcanary0123.sig-canary", "kubeadm init --certificate-key canary0123456789abcdef", "auth_pass canary-vrrp",
		"-----BEGIN RSA PRIVATE KEY-----", "canarykey", "-----END RSA PRIVATE KEY-----", "MYSQL_PASSWORD=canary-mysql",
		// Flags, apart from their values.
		`args: ["--db-password","canary-args"]`, "redis-server --requirepass canary-requirepass --port 1", "exec --password canary-space --kept",
		"--password 'canary with blanks' next", `\"--db-password\",\"canary-escaped\"`, "[--api-token canary-list --kept]",
		"mysql -u root -pcanary-short",
		`["mysql","-pcanary-short"]`, "redis-cli -h a -a canary-redis ping", "curl -u me:canary-curl https://x", "sshpass -p canary-ssh ssh x",
		`["--secret",`, `  "--aws-secret",`, `  "canary-next-line",`, "- --token", "- canary-next-item",
		// Names of all kinds.
		"AWS_SECRET_ACCESS_KEY=canary-aws", `{"secretAccessKey":"canary-access"}`, "--s3-secret-access-key=canary-s3",
		"secretKey: canary-secret-key",
		"DB_PASS=canary-pass", "SECRET_KEY_BASE=canary-base", "privateKey: canary-private", "X-Api-Key: canary-header", `Pwd="canary-pwd"`,
		`credentials = 'canary-credentials'`, "env['SECRET_KEY'] = 'canary-ruby'", "redis: {password => canary-arrow}",
		"<password>canary-xml</password>",
		`{"name":"X-Api-Key","value":"canary-pair"}`, "- name: DB_PASSWORD", "  value: canary-pair-of-lines",
		"- name: DB_KEY", "  value: |", "    canary-pair-of-more", "api_key := `canary-backtick`",
		"privateKey: |", "  canary-block", "", "  canary-block-2", "kept: 1",
		// In sentences, and behind a blank.
		"the password is canary", "Password was 'canary with blanks'", "the passphrase is now canary", `msg="the password is \"canary\""`,
		"the token is canary1 next", "secretKey canary", "secret-key canary next", "secretkey: canary", "secretkey canary", "SECRET_KEY canary",
		"api-key canary",
		// Quoted values.
		`"password":"ab,canary"`, `"password":"ab;canary"`, `"password":"ab canary"`, `"password":"ab'canary"`, `"password":"ab}canary"`,
		`"password":"ab\\canary"`, `"password":"ab\"canary"`, `password='ab"canary'`, `password='it'\''s canary'`, `password: 'it''s canary'`,
		`msg="{\"password\":\"ab, canary\"}"`, `msg="{\"password\":\"ab\\\"canary\"}"`, `password="not ended canary`,
		"password={canary", "password=ab,canary", "password=ab'canary",
		// URLs and data source names.
		"root:canary-dsn@tcp(db:3306)/app", "app:canary/dsn@x@unix(/run/mysql.sock)/app", "postgres://app:canary@2@db/app",
		"amqp://app:canary@mq:5672",
		"https://canarycanary@git.example.com/x.git", "app:canary-host@db.example.com:27017", "root:canary-shard@shard-1:27017",
		// The kubelet's message about a container that does not start.
		`&Container{Name:x,Image:y,Command:[sh -c canary],Args:[--canary],WorkingDir:,` +
			`Env:[]EnvVar{EnvVar{Name:ANY,Value:canary, really,ValueFrom:nil,},},` +
			`LivenessProbe:&Probe{HTTPGet:&HTTPGetAction{HTTPHeaders:[]HTTPHeader{HTTPHeader{Name:X-Any,Value:canary,},},},` +
			`Exec:&ExecAction{Command:[check canary],},},}`,
		// Registries, etcd, kubeadm.
		`"auths":{"registry":{"auth":"canarycanary=","identitytoken":"canary"}}`,
		`[plugins.registry.auth] password = "canary"`, "auth = \"canarycanary\"",
		"admin:$2y$05$canarycanary", "ghp_canarycanarycanarycanary", "client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURcanary",
		"tls.key: LS0tLS1CRUdJTiBFQyBQUklWQVRFcanary",
		"kubeadm join 10.0.0.1:6443 --token canary.0123456789abcdef --discovery-token-ca-cert-hash sha256:00",
		"token-secret: canary0123456789", `"token-id":"canary"`, "Set-Cookie: session=canary; Path=/",
	}
}

// PodWithSecrets returns a pod of a user with secrets in all fields that can have one.
func PodWithSecrets() map[string]any {
	exec := object{"exec": object{"command": []any{"check", "canary-probe"}}}
	c := object{
		"name": "kept-container", "image": "kept-image", "command": []any{"run", "canary-command"},
		"args": []any{"--db-password", "canary-args", "canary-plain"},
		"env": []any{
			object{"name": "KEPT_NAME", "value": "canary-env"},
			object{"name": "FROM", "valueFrom": object{"secretKeyRef": object{"name": "kept-secret", "key": "kept-key"}}},
		},
		"livenessProbe": object{"httpGet": object{
			"path":        "/healthz",
			"httpHeaders": []any{object{"name": "X-Api-Key", "value": "canary-header"}, object{"name": "Any", "value": "canary-any"}},
		}},
		"lifecycle": object{"preStop": exec}, "readinessProbe": exec,
	}
	return object{
		"metadata": object{
			"name": "kept-pod", "namespace": "default",
			"managedFields": []any{object{"manager": "canary-manager"}}, "annotations": object{
				"kubectl.kubernetes.io/last-applied-configuration": `{"spec":"canary-applied"}`, "kapp.k14s.io/original": `{"data":"canary-kapp"}`,
				"example.com/anything": "canary-note", "kubernetes.io/config.hash": "kept-hash", "kubernetes.io/config.mirror": "kept-mirror",
			}, "labels": object{"app": "kept-label", "token": "canary-label"},
		},
		"spec": object{
			"containers": []any{c}, "initContainers": []any{c}, "ephemeralContainers": []any{c},
			"tolerations": []any{object{"key": "kept.example.com/taint", "operator": "Exists"}},
			"volumes": []any{
				object{"name": "s", "secret": object{"secretName": "kept-secret-name"}},
				object{"name": "c", "csi": object{"driver": "kept-driver", "volumeAttributes": object{"any": "canary-volume"}}},
				object{
					"name":      "t",
					"projected": object{"sources": []any{object{"serviceAccountToken": object{"expirationSeconds": 3607, "path": "token"}}}},
				},
			},
		},
		"status": object{"message": "failed: DB_PASS=canary-status", "podIP": "10.1.2.3"},
	}
}

// StaticPod returns a static pod of the cluster itself, with secrets.
func StaticPod() map[string]any {
	return object{
		"metadata": object{"name": "kube-apiserver-cp1", "namespace": "kube-system", "annotations": object{"kubernetes.io/config.mirror": "x"}},
		"spec": object{"containers": []any{object{
			"command": []any{
				"kube-apiserver", "--kept-flag=1", "--tls-private-key-file=/etc/kubernetes/pki/kept.key",
				"--oidc-client-secret=canary-oidc", "--api-token", "canary-token",
			},
			"env": []any{object{"name": "ANY", "value": "canary-env"}},
		}}},
	}
}
