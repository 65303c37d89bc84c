package lifecycle

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// leaks are lines, as programs log them, that hold a secret: "canary" is a part
// of each.
var leaks = []string{
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
	// What quotes hold to their end.
	`"password":"ab,canary"`, `"password":"ab;canary"`, `"password":"ab canary"`, `"password":"ab'canary"`, `"password":"ab}canary"`,
	`"password":"ab\\canary"`, `"password":"ab\"canary"`, `password='ab"canary'`, `password='it'\''s canary'`, `password: 'it''s canary'`,
	`msg="{\"password\":\"ab, canary\"}"`, `msg="{\"password\":\"ab\\\"canary\"}"`, `password="not ended canary`,
	"password={canary", "password=ab,canary", "password=ab'canary",
	// URLs and data source names.
	"root:canary-dsn@tcp(db:3306)/app", "app:canary/dsn@x@unix(/run/mysql.sock)/app", "postgres://app:canary@2@db/app",
	"amqp://app:canary@mq:5672",
	"https://canarycanary@git.example.com/x.git", "app:canary-host@db.example.com:27017", "root:canary-shard@shard-1:27017",
	// What kubelet says of a container that does not start.
	`&Container{Name:x,Image:y,Command:[sh -c canary],Args:[--canary],WorkingDir:,Env:[]EnvVar{EnvVar{Name:ANY,Value:canary, really,ValueFrom:nil,},},LivenessProbe:&Probe{HTTPGet:&HTTPGetAction{HTTPHeaders:[]HTTPHeader{HTTPHeader{Name:X-Any,Value:canary,},},},Exec:&ExecAction{Command:[check canary],},},}`,
	// Registries, etcd, kubeadm.
	`"auths":{"registry":{"auth":"canarycanary=","identitytoken":"canary"}}`,
	`[plugins.registry.auth] password = "canary"`, "auth = \"canarycanary\"",
	"admin:$2y$05$canarycanary", "ghp_canarycanarycanarycanary", "client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURcanary",
	"tls.key: LS0tLS1CRUdJTiBFQyBQUklWQVRFcanary",
	"kubeadm join 10.0.0.1:6443 --token canary.0123456789abcdef --discovery-token-ca-cert-hash sha256:00",
	"token-secret: canary0123456789", `"token-id":"canary"`, "Set-Cookie: session=canary; Path=/",
}

// keeps are lines that stay as they are: whoever helps needs them.
var keeps = []string{
	"Nov 22 10:00:00 cp1 kubelet[1]: Node became not ready", "Started slipway-units",
	"--tls-private-key-file=/etc/kubernetes/pki/apiserver.key next",
	"--client-ca-file=/etc/kubernetes/pki/ca.crt --authorization-mode=Node,RBAC", "--etcd-servers=https://127.0.0.1:2379", "keepalive: 30s",
	"registry.k8s.io/coredns/coredns:v1.14.2@sha256:0011", "dial tcp 10.0.0.1:6443: connect: connection refused",
	`MountVolume.SetUp failed for volume "x" : secret "web" not found`, "automountServiceAccountToken: false",
	"certificate-authority: /etc/kubernetes/pki/ca.crt",
}

func TestScrubText(t *testing.T) {
	var s scrubber
	text := string(s.text([]byte(strings.Join(leaks, "\n"))))
	for line := range strings.Lines(text) {
		if strings.Contains(line, "canary") {
			t.Errorf("a secret stays: %s", line)
		}
	}
	for _, kept := range []string{"kept\":1", " --kept", "kept: 1", "--port 1", "@mirror/x", "@tcp(db:3306)/app", " next"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%q went along:\n%s", kept, text)
		}
	}
	if again := string(s.text([]byte(text))); again != text {
		t.Errorf("once is not enough:\n%s", cmp.Diff(text, again))
	}
	for _, line := range keeps {
		if got := string(s.text([]byte(line))); got != line {
			t.Errorf("%s\nbecame\n%s", line, got)
		}
	}
	// The end of a log may begin within a key.
	half := "TUlJQ2FuYXJ5\nTUlJQ2FuYXJ5==\n-----END EC PRIVATE KEY-----\nkept"
	if got := string(s.text([]byte(half))); got != redacted+"\nkept" {
		t.Errorf("half a key became %q", got)
	}
}

// podWithSecrets is a user's pod that has one wherever it can.
func podWithSecrets() object {
	exec := object{"exec": object{"command": []any{"check", "canary-probe"}}}
	c := object{
		"name": "kept-container", "image": "kept-image", "command": []any{"run", "canary-command"},
		"args": []any{"--db-password", "canary-args", "canary-plain"},
		"env": []any{object{"name": "KEPT_NAME", "value": "canary-env"},
			object{"name": "FROM", "valueFrom": object{"secretKeyRef": object{"name": "kept-secret", "key": "kept-key"}}}},
		"livenessProbe": object{"httpGet": object{"path": "/healthz",
			"httpHeaders": []any{object{"name": "X-Api-Key", "value": "canary-header"}, object{"name": "Any", "value": "canary-any"}}}},
		"lifecycle": object{"preStop": exec}, "readinessProbe": exec,
	}
	return object{
		"metadata": object{"name": "kept-pod", "namespace": "default",
			"managedFields": []any{object{"manager": "canary-manager"}}, "annotations": object{
				"kubectl.kubernetes.io/last-applied-configuration": `{"spec":"canary-applied"}`, "kapp.k14s.io/original": `{"data":"canary-kapp"}`,
				"example.com/anything": "canary-note", "kubernetes.io/config.hash": "kept-hash", "kubernetes.io/config.mirror": "kept-mirror",
			}, "labels": object{"app": "kept-label", "token": "canary-label"}},
		"spec": object{
			"containers": []any{c}, "initContainers": []any{c}, "ephemeralContainers": []any{c},
			"tolerations": []any{object{"key": "kept.example.com/taint", "operator": "Exists"}},
			"volumes": []any{
				object{"name": "s", "secret": object{"secretName": "kept-secret-name"}},
				object{"name": "c", "csi": object{"driver": "kept-driver", "volumeAttributes": object{"any": "canary-volume"}}},
				object{"name": "t",
					"projected": object{"sources": []any{object{"serviceAccountToken": object{"expirationSeconds": 3607, "path": "token"}}}}},
			},
		},
		"status": object{"message": "failed: DB_PASS=canary-status", "podIP": "10.1.2.3"},
	}
}

// staticPod is one of the cluster's own.
func staticPod() object {
	return object{
		"metadata": object{"name": "kube-apiserver-cp1", "namespace": "kube-system", "annotations": object{"kubernetes.io/config.mirror": "x"}},
		"spec": object{"containers": []any{object{
			"command": []any{"kube-apiserver", "--kept-flag=1", "--tls-private-key-file=/etc/kubernetes/pki/kept.key",
				"--oidc-client-secret=canary-oidc", "--api-token", "canary-token"},
			"env": []any{object{"name": "ANY", "value": "canary-env"}},
		}}},
	}
}

// TestScrubObjects: what the user wrote goes, what tells how the cluster is
// stays, and what is left is JSON.
func TestScrubObjects(t *testing.T) {
	s := &scrubber{}
	s.know("known-canary")
	raw, err := json.Marshal(object{"items": []any{podWithSecrets(), staticPod(),
		object{"metadata": object{"name": "known-canary here", "generation": json.Number("12345678901234567890")}}}})
	if err != nil {
		t.Fatal(err)
	}
	v, ok := parsed(raw)
	if !ok {
		t.Fatal("it is no JSON")
	}
	out := asJSON(s.objects(v), " ")
	if !json.Valid(out) {
		t.Errorf("it is no JSON any more:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "canary") {
			t.Errorf("a secret stays: %s", line)
		}
	}
	for _, kept := range []string{
		"kept-container", "kept-image", "KEPT_NAME", `"kept-secret"`, "kept-key", "kept-hash", "kept-mirror",
		"kept-label", "kept.example.com/taint", "kept-secret-name",
		"kept-driver", "3607", "10.1.2.3", "--kept-flag=1", "kept.key", "12345678901234567890", "X-Api-Key", "/healthz", "REMOVED here",
	} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s went along:\n%s", kept, out)
		}
	}
}

// Our own records are JSON before and after.
func TestScrubJSON(t *testing.T) {
	s := &scrubber{}
	pem := base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\ncanary"))
	in := `{"message":"joining with --token canary and password \"x\"","args":["--db-password","canary","kept"],"apiToken":"canary","pin":{"secret":12345},"passwords":{"of":"canary","name":"kept"},"passwordFrom":{"file":"/kept"},` +

		`"hostKey":"ssh-ed25519 kept","privateKeyFile":"/root/.ssh/kept","lines":"a: 1\npassword: canary\n","data":"` + pem + `","count":3}`
	want := map[string]any{
		"message": "joining with --token REMOVED and password \"x\"", "args": []any{"--db-password", redacted, "kept"}, "apiToken": redacted, "pin": map[string]any{"secret": redacted},
		"passwords": map[string]any{"of": redacted, "name": "kept"}, "passwordFrom": map[string]any{"file": "/kept"},
		"hostKey": "ssh-ed25519 kept", "privateKeyFile": "/root/.ssh/kept", "lines": "a: 1\npassword: REMOVED\n", "data": redacted, "count": float64(3),
	}
	var got map[string]any
	if err := json.Unmarshal(s.json([]byte(in), ""), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := string(s.json([]byte(`no JSON, token=canary`), "")); got != "no JSON, token=REMOVED" {
		t.Errorf("what is no JSON became %q", got)
	}
}
