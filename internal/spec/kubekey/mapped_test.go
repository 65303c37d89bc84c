package kubekey

// mappedCases are fragments of a KubeKey spec that are merged into the base. want is a part
// of the resulting cluster file; if it is empty, the fragment is rejected.
var mappedCases = []struct {
	field, reason string
	in            string
	metadata      string
	allow         bool
	want          string
	says          string // "PATH ID SEVERITY"
	scripts       map[string]string
}{
	{
		field: "apiVersion kind metadata.name metadata.labels[] metadata.annotations[]", reason: "the head of the file",
		metadata: "{name: north, namespace: kubekey-system, labels: {a: b}, annotations: {c: d}}",
		want:     "{apiVersion: slipway.dev/v1alpha1, kind: Cluster, metadata: {name: north, labels: {a: b}, annotations: {c: d}}}",
		says:     "metadata.namespace not-converted warning",
	},
	{field: "metadata.name", reason: "a name that cannot be", metadata: "{name: North_1}", says: "metadata.name invalid-name error"},

	{
		field:  "spec.hosts[].name spec.hosts[].address spec.hosts[].internalAddress spec.hosts[].arch spec.hosts[].labels[]",
		reason: "what a host is",
		in: "hosts: [{name: a, address: 198.51.100.1, internalAddress: 10.0.0.1, arch: arm64, labels: {disk: " +
			"ssd}}, {name: b, internalAddress: 10.0.0.2}]",
		want: "spec: {hosts: [{name: a, address: 198.51.100.1, internalAddress: 10.0.0.1, arch: arm64, labels: {disk: " +
			"ssd}, roles: [control-plane]}, {name: b, address: 10.0.0.2, roles: [worker]}]}",
	},
	{
		field: "spec.hosts[].name", reason: "names that cannot be",
		in: "hosts: [{name: A_1, address: 10.0.0.1}]\nroleGroups: {master: [A_1]}", says: "spec.hosts[0].name invalid-name error",
	},
	{
		field: "spec.hosts[].internalAddress", reason: "of a pair the first is the node's",
		in:   "hosts: [{name: a, address: 10.0.0.1, internalAddress: '10.0.0.1,fd00::1'}, {name: b, address: 10.0.0.2}]",
		want: "spec: {hosts: [{name: a, address: 10.0.0.1, roles: [control-plane]}, {name: b, address: 10.0.0.2, roles: [worker]}]}",
		says: "spec.hosts[0].internalAddress not-converted warning",
	},
	{
		field: "spec.hosts[].labels[]", reason: "one that a kubelet may not set is a loss",
		in:   "hosts: [{name: a, address: 10.0.0.1, labels: {node-role.kubernetes.io/x: ''}}, {name: b, address: 10.0.0.2}]",
		says: "spec.hosts[0].labels[node-role.kubernetes.io/x] lost-in-conversion error",
	},
	{
		field: "spec.hosts[].user spec.hosts[].port spec.hosts[].privateKeyPath", reason: "what all hosts have in common is written once",
		in: "hosts: [{name: a, address: 10.0.0.1, user: ops, port: 22, privateKeyPath: ~/.ssh/a}, {name: b, address: " +
			"10.0.0.2, user: ops, port: 2222, privateKeyPath: ~/.ssh/b}]",
		want: "spec: {ssh: {user: ops, sudo: true}, hosts: [{name: a, address: 10.0.0.1, roles: [control-plane], ssh: " +
			"{privateKeyFile: ~/.ssh/a}}, {name: b, address: 10.0.0.2, roles: [worker], ssh: {port: 2222, privateKeyFile: ~/.ssh/b}}]}",
	},
	{
		field: "spec.hosts[].user", reason: "root needs no sudo",
		in: "hosts: [{name: a, address: 10.0.0.1}, {name: b, address: 10.0.0.2, user: ops}]",
		want: "spec: {hosts: [{name: a, address: 10.0.0.1, roles: [control-plane]}, {name: b, address: 10.0.0.2, " +
			"roles: [worker], ssh: {user: ops, sudo: true}}]}",
	},
	{
		field: "spec.hosts[].password", reason: "one password for all is one variable",
		in:   "hosts: [{name: a, address: 10.0.0.1, password: hunter2}, {name: b, address: 10.0.0.2, password: hunter2}]",
		want: "spec: {ssh: {user: null, port: null, passwordFrom: {env: SSH_PASSWORD}}}", says: "spec.hosts[0].password inline-password warning",
	},
	{
		field: "spec.hosts[].password", reason: "different ones are a variable each",
		in: "hosts: [{name: a, address: 10.0.0.1, password: hunter2}, {name: b-2.lan, address: 10.0.0.2, password: " +
			"hunter2b}]\nroleGroups: {master: [a], worker: [b-2.lan]}",
		want: "spec: {hosts: [{name: a, address: 10.0.0.1, roles: [control-plane], ssh: {passwordFrom: {env: " +
			"SSH_PASSWORD_A}}}, {name: b-2.lan, address: 10.0.0.2, roles: [worker], ssh: {passwordFrom: {env: SSH_PASSWORD_B_2_LAN}}}]}",
	},
	{
		field: "spec.hosts[].privateKey", reason: "an inline key becomes the name of a file to be made",
		in: "hosts: [{name: a, address: 10.0.0.1, privateKey: hunter2}, {name: b, address: 10.0.0.2, privateKeyPath: /k}]",
		want: "spec: {hosts: [{name: a, address: 10.0.0.1, roles: [control-plane], ssh: {privateKeyFile: ./a.key}}, " +
			"{name: b, address: 10.0.0.2, roles: [worker], ssh: {privateKeyFile: /k}}]}",
		says: "spec.hosts[0].privateKey inline-password warning",
	},
	{
		field: "spec.roleGroups[]", reason: "a range, both spellings of the control plane, both roles",
		in: "hosts: [{name: n1, address: 10.0.0.1}, {name: n2, address: 10.0.0.2}, {name: n3, address: 10.0.0.3}, " +
			"{name: n4, address: 10.0.0.4}]\nroleGroups: {master: [n1], control-plane: [n1], etcd: [n1], worker: ['n[1:3]']}",
		want: "spec: {hosts: [{name: n1, address: 10.0.0.1, roles: [control-plane, worker]}, {name: n2, address: " +
			"10.0.0.2, roles: [worker]}, {name: n3, address: 10.0.0.3, roles: [worker]}]}",
		says: "spec.hosts[3] not-converted warning",
	},
	{
		field: "spec.roleGroups[]", reason: "a group that KubeKey does not know", in: "roleGroups: {master: [a], worker: [b], gpu: [b]}",
		want: "spec: {hosts: [{name: a, address: 10.0.0.1, roles: [control-plane]}, {name: b, address: 10.0.0.2, roles: [worker]}]}",
		says: "spec.roleGroups[gpu] not-converted warning",
	},

	{
		field: "spec.controlPlaneEndpoint.domain spec.controlPlaneEndpoint.port", reason: "as written",
		in:   "controlPlaneEndpoint: {domain: api.example.com, port: 8443}",
		want: "spec: {controlPlaneEndpoint: {domain: api.example.com, port: 8443}}",
	},
	{
		field: "spec.controlPlaneEndpoint.domain", reason: "KubeKey's default is written",
		want: "spec: {controlPlaneEndpoint: {domain: lb.kubesphere.local}}",
	},
	{
		field: "spec.controlPlaneEndpoint.address", reason: "one of no control plane is a load balancer's",
		in: "controlPlaneEndpoint: {address: 10.0.0.100}", want: "spec: {controlPlaneEndpoint: {mode: external, address: 10.0.0.100}}",
	},
	{
		field: "spec.controlPlaneEndpoint.address", reason: "that of the control plane is none",
		in:   "controlPlaneEndpoint: {address: 10.0.0.1}",
		want: "spec: {controlPlaneEndpoint: {domain: lb.kubesphere.local, mode: null, address: null}}",
	},
	{
		field: "spec.controlPlaneEndpoint.externalDNS", reason: "a name that DNS knows",
		in:   "controlPlaneEndpoint: {domain: api.example.com, externalDNS: true, address: 10.0.0.100}",
		want: "spec: {controlPlaneEndpoint: {mode: external, domain: api.example.com, address: null}}",
		says: "spec.controlPlaneEndpoint.address not-converted warning",
	},
	{
		field: "spec.controlPlaneEndpoint.internalLoadbalancer", reason: "haproxy is ours too",
		in: "hosts: [{name: n1, address: 10.0.0.1}, {name: n2, address: 10.0.0.2}, {name: n3, address: 10.0.0.3}, " +
			"{name: n4, address: 10.0.0.4}]\nroleGroups: {control-plane: ['n[1:3]'], etcd: ['n[1:3]'], worker: " +
			"[n4]}\ncontrolPlaneEndpoint: {internalLoadbalancer: haproxy}",
		want: "spec: {controlPlaneEndpoint: {mode: haproxy, domain: lb.kubesphere.local}}",
	},
	{
		field: "spec.controlPlaneEndpoint.internalLoadbalancer", reason: "without one, several control planes get Slipway's",
		in: "hosts: [{name: n1, address: 10.0.0.1}, {name: n2, address: 10.0.0.2}, {name: n3, address: 10.0.0.3}, " +
			"{name: n4, address: 10.0.0.4}]\nroleGroups: {control-plane: ['n[1:3]'], etcd: ['n[1:3]'], worker: [n4]}\n",
		want: "spec: {controlPlaneEndpoint: {mode: null}}", says: "spec.controlPlaneEndpoint other-default warning",
	},
	{
		field: "spec.controlPlaneEndpoint.internalLoadbalancer spec.controlPlaneEndpoint.kubevip.mode", reason: "BGP is to come",
		in:   "controlPlaneEndpoint: {internalLoadbalancer: kube-vip, address: 10.0.0.100, kubevip: {mode: BGP}}",
		says: "spec.controlPlaneEndpoint.kubevip.mode not-supported-yet error",
	},

	{
		field: "spec.system.ntpServers[] spec.system.timezone spec.system.skipConfigureOS", reason: "as written",
		in:   "system: {ntpServers: [ntp.example.com], timezone: Asia/Tokyo, skipConfigureOS: true}",
		want: "spec: {system: {ntpServers: [ntp.example.com], timezone: Asia/Tokyo, skipConfigure: true}}",
	},
	{
		field: "spec.system.ntpServers[]", reason: "no address", in: "system: {ntpServers: [ntp.example.com, 'a b']}",
		says: "spec.system.ntpServers[1] invalid-address error",
	},
	{
		field:   "spec.system.preInstall[].name spec.system.preInstall[].bash spec.system.preInstall[].role spec.system.preInstall[].materials[]",
		reason:  "a line becomes a script",
		in:      "system: {preInstall: [{name: Disk Setup, bash: ./setup.sh /dev/sdb, role: worker, materials: [setup.sh]}]}",
		want:    "spec: {hooks: [{name: disk-setup, phase: preInstall, roles: [worker], script: ./hooks/disk-setup.sh, materials: [setup.sh]}]}",
		scripts: map[string]string{"./hooks/disk-setup.sh": "#!/bin/bash\n./setup.sh /dev/sdb\n"},
	},
	{
		field: "spec.system.postClusterInstall[].name spec.system.postClusterInstall[].bash spec.system.postClusterInstall[].role " +
			"spec.system.postClusterInstall[].materials[] " +
			"spec.system.postInstall[].name spec.system.postInstall[].bash spec.system.postInstall[].role spec.system.postInstall[].materials[]",
		reason: "names are made different; a script of its own stays as it is",
		in: "system: {postClusterInstall: [{name: tell, bash: \"#!/bin/sh\\necho\\n\", role: master}], postInstall: [{name: tell, " +
			"bash: date, role: k8s}]}",
		want: "spec: {hooks: [{name: tell, phase: postInstall, roles: [control-plane], script: ./hooks/tell.sh}, {name: tell-2, phase: " +
			"postInstall, roles: [control-plane, worker], script: ./hooks/tell-2.sh}]}",
		scripts: map[string]string{"./hooks/tell.sh": "#!/bin/sh\necho\n", "./hooks/tell-2.sh": "#!/bin/bash\ndate\n"},
	},
	{
		field: "spec.system.preInstall[].materials[]", reason: "a material that is called as the script would be",
		in:   "system: {preInstall: [{name: disks, bash: ./disks.sh, materials: [files/disks.sh]}]}",
		want: "spec: {hooks: [{name: disks, phase: preInstall, script: ./hooks/run-disks.sh, materials: [files/disks.sh]}]}",
	},
	{
		field:  "spec.system.preInstall[].role",
		reason: "one that is not there",
		in:     "system: {preInstall: [{name: a, bash: date, role: gpu}]}",
		says:   "spec.system.preInstall[0].role unknown-role error",
	},

	{
		field:  "spec.etcd.type",
		reason: "kubeadm's is ours",
		in:     "etcd: {type: kubeadm}",
		want: "spec: {etcd: null, hosts: [{name: a, address: 10.0.0.1, roles: [control-plane]}, {name: b, address: 10.0.0.2, roles: " +
			"[worker]}]}",
	},
	{
		field:  "spec.etcd.external.endpoints[] spec.etcd.external.caFile spec.etcd.external.certFile spec.etcd.external.keyFile",
		reason: "an etcd that others look after",
		in: "etcd: {type: external, external: {endpoints: ['https://10.0.0.31:2379', 'https://10.0.0.32:2379'], caFile: pki/ca.crt, " +
			"certFile: pki/client.crt, keyFile: pki/client.key}}",
		want: "spec: {etcd: {type: external, external: {endpoints: ['https://10.0.0.31:2379', 'https://10.0.0.32:2379'], caFile: " +
			"pki/ca.crt, certFile: pki/client.crt, keyFile: pki/client.key}}, hosts: [{name: a, address: 10.0.0.1, roles: [control-plane]}, " +
			"{name: b, address: 10.0.0.2, roles: [worker]}]}",
	},
	{
		field:  "spec.etcd.external.endpoints[]",
		reason: "the cluster's secrets do not go in the clear",
		in:     "etcd: {type: external, external: {endpoints: ['http://10.0.0.31:2379'], caFile: a, certFile: b, keyFile: c}}",
		says:   "spec.etcd.external.endpoints[0] invalid-address error",
	},
	{
		field:  "spec.etcd.external.keyFile",
		reason: "without credentials it cannot be asked",
		in:     "etcd: {type: external, external: {endpoints: ['https://10.0.0.31:2379'], caFile: a, certFile: b}}",
		says:   "spec.etcd.external.keyFile missing-field error",
	},
	{
		field:  "spec.etcd.external.endpoints[]",
		reason: "beside another type it means nothing",
		in:     "etcd: {type: kubeadm, external: {endpoints: ['https://10.0.0.31:2379']}}",
		want:   "spec: {etcd: null}",
		says:   "spec.etcd.external not-converted warning",
	},
	{
		field:  "spec.etcd.heartbeatInterval spec.etcd.dataDir",
		reason: "nobody starts an external etcd with them",
		in: "etcd: {type: external, heartbeatInterval: 250, dataDir: /data, external: {endpoints: ['https://10.0.0.31:2379'], caFile: " +
			"a, certFile: b, keyFile: c}}",
		want: "spec: {etcd: {type: external, extraArgs: null}}",
		says: "spec.etcd.heartbeatInterval not-converted warning",
	},
	{
		field: "spec.etcd.backupPeriod spec.etcd.keepBackupNumber", reason: "snapshots by a timer",
		in: "etcd: {type: kubeadm, backupPeriod: 90, keepBackupNumber: 12}", want: "spec: {etcd: {backup: {every: 1h30m0s, keep: 12}}}",
	},
	{
		field:  "spec.etcd.backupDir",
		reason: "the place is ours",
		in:     "etcd: {type: kubeadm, backupDir: /srv, backupPeriod: 90}",
		says:   "spec.etcd.backupDir lost-in-conversion error",
	},
	{
		field:  "spec.etcd.keepBackupNumber",
		reason: "of none",
		in:     "etcd: {type: kubeadm, keepBackupNumber: 12}",
		want:   "spec: {etcd: null}",
		says:   "spec.etcd.keepBackupNumber not-converted warning",
	},
	{
		field:  "spec.etcd.port spec.etcd.peerPort",
		reason: "others than the usual are lost",
		in:     "etcd: {type: kubeadm, port: 2379, peerPort: 12380}",
		says:   "spec.etcd.peerPort lost-in-conversion error",
	},
	{
		field:  "spec.etcd.dataDir",
		reason: "another is lost",
		in:     "etcd: {type: kubeadm, dataDir: /data}",
		says:   "spec.etcd.dataDir lost-in-conversion error",
	},
	{
		field:  "spec.etcd.dataDir",
		reason: "the usual one is ours",
		in:     "etcd: {type: kubeadm, port: 2379, dataDir: /var/lib/etcd}",
		want:   "spec: {etcd: null}",
	},
	{
		field: "spec.etcd.extraArgs[] spec.etcd.heartbeatInterval spec.etcd.electionTimeout spec.etcd.snapshotCount " +
			"spec.etcd.autoCompactionRetention spec.etcd.metrics " +
			"spec.etcd.quotaBackendBytes spec.etcd.maxRequestBytes spec.etcd.maxSnapshots spec.etcd.maxWals spec.etcd.logLevel",
		reason: "arguments",
		in: "etcd: {type: kubeadm, extraArgs: [ETCD_PRE_VOTE=true], heartbeatInterval: 250, electionTimeout: 5000, snapshotCount: 10000, " +
			"autoCompactionRetention: 8, metrics: basic, " +
			"quotaBackendBytes: 2147483648, maxRequestBytes: 1572864, maxSnapshots: 5, maxWals: 6, logLevel: info}",
		want: "spec: {etcd: {extraArgs: {pre-vote: 'true', heartbeat-interval: '250', election-timeout: '5000', snapshot-count: '10000', " +
			"auto-compaction-retention: '8', metrics: basic, " +
			"quota-backend-bytes: '2147483648', max-request-bytes: '1572864', max-snapshots: '5', max-wals: '6', log-level: info}}}",
	},
	{
		field:  "spec.etcd.extraArgs[]",
		reason: "what is no setting of etcd's is lost",
		in:     "etcd: {extraArgs: [GOGC=50]}",
		says:   "spec.etcd.extraArgs[0] lost-in-conversion error",
	},

	{
		field:  "spec.dns.dnsEtcHosts spec.dns.nodeEtcHosts spec.dns.coredns.upstreamDNSServers[]",
		reason: "one table for pods and hosts",
		in: "dns: {dnsEtcHosts: \"10.0.0.9 git.example.com # forge\\n\\n10.0.0.9 git.example.com g\", nodeEtcHosts: 10.0.0.8 " +
			"x.example.com, coredns: {upstreamDNSServers: [10.0.0.53, '10.0.0.54:5353']}}",
		want: "spec: {dns: {upstream: [10.0.0.53, '10.0.0.54:5353'], hosts: {10.0.0.9: [git.example.com, g], 10.0.0.8: [x.example.com]}}}",
		says: "spec.dns other-default warning",
	},
	{
		field: "spec.dns.coredns.externalZones[].zones[] spec.dns.coredns.externalZones[].nameservers[] " +
			"spec.dns.coredns.externalZones[].cache",
		reason: "zones with and without the port of DNS, which is the only one that pods use",
		in: "dns: {coredns: {externalZones: [{zones: ['corp.example.com:53', lab.example.com.], nameservers: [10.0.0.53], cache: 5}, " +
			"{zones: [10.in-addr.arpa], nameservers: ['10.0.0.54:5353']}]}}",
		want: "spec: {dns: {zones: [{names: [corp.example.com, lab.example.com], servers: [10.0.0.53], cacheSeconds: 5}, " +
			"{names: [10.in-addr.arpa], servers: ['10.0.0.54:5353']}]}}",
	},
	{
		field:  "spec.dns.coredns.externalZones[].zones[]",
		reason: "another port cannot be used",
		in:     "dns: {coredns: {externalZones: [{zones: ['corp.example.com:1053'], nameservers: [10.0.0.53]}]}}",
		says:   "spec.dns.coredns.externalZones[0].zones[0] invalid-name error",
	},
	{
		field:  "spec.dns.coredns.externalZones[].nameservers[]",
		reason: "a zone needs servers",
		in:     "dns: {coredns: {externalZones: [{zones: [corp.example.com]}]}}",
		says:   "spec.dns.coredns.externalZones[0].nameservers missing-field error",
	},
	{
		field:  "spec.dns.coredns.externalZones[].rewrite",
		reason: "rewriting is lost",
		in:     "dns: {coredns: {externalZones: [{zones: [corp.example.com], nameservers: [10.0.0.53], rewrite: [name a b]}]}}",
		says:   "spec.dns.coredns.externalZones[0].rewrite lost-in-conversion error",
	},
	{
		field:  "spec.dns.coredns.upstreamDNSServers[]",
		reason: "no address",
		in:     "dns: {coredns: {upstreamDNSServers: [tls://9.9.9.9]}}",
		says:   "spec.dns.coredns.upstreamDNSServers[0] invalid-address error",
	},

	{
		field:  "spec.kubernetes.type",
		reason: "k3s is lost",
		in:     "kubernetes: {type: k3s}",
		says:   "spec.kubernetes.type lost-in-conversion error",
	},
	{
		field:  "spec.kubernetes.type",
		reason: "so it is in the version",
		in:     "kubernetes: {version: v1.37.1-k3s}",
		says:   "spec.kubernetes.version lost-in-conversion error",
	},
	{
		field:  "spec.kubernetes.version",
		reason: "without its v",
		in:     "kubernetes: {version: 1.37.1}",
		want:   "spec: {kubernetes: {version: v1.37.1}}",
	},
	{
		field:  "spec.kubernetes.version",
		reason: "one that cannot be installed is a loss",
		in:     "kubernetes: {version: v1.23.17}",
		says:   "spec.kubernetes.version lost-in-conversion error",
	},
	{
		field:  "spec.kubernetes.version",
		reason: "which can be allowed",
		in:     "kubernetes: {version: v1.23.17}",
		allow:  true,
		want:   "spec: {kubernetes: {version: v1.37.1}}",
		says:   "spec.kubernetes.version lost-in-conversion warning",
	},
	{
		field:  "spec.kubernetes.autoRenewCerts",
		reason: "as written",
		in:     "kubernetes: {autoRenewCerts: false}",
		want:   "spec: {kubernetes: {certificates: {autoRenew: false}}}",
	},
	{
		field:  "spec.kubernetes.dnsDomain",
		reason: "as written",
		in:     "kubernetes: {dnsDomain: k8s.example.com}",
		want:   "spec: {kubernetes: {dnsDomain: k8s.example.com}}",
	},
	{
		field:  "spec.kubernetes.disableKubeProxy",
		reason: "whatever the mode",
		in:     "kubernetes: {disableKubeProxy: true, proxyMode: ipvs}",
		want:   "spec: {kubernetes: {proxyMode: none}}",
	},
	{
		field:  "spec.kubernetes.proxyMode",
		reason: "as written",
		in:     "kubernetes: {proxyMode: iptables}",
		want:   "spec: {kubernetes: {proxyMode: iptables}}",
	},
	{field: "spec.kubernetes.proxyMode", reason: "KubeKey's default is written", want: "spec: {kubernetes: {proxyMode: ipvs}}"},
	{
		field:  "spec.kubernetes.maxPods spec.kubernetes.podPidsLimit spec.kubernetes.kubeletConfiguration",
		reason: "the last goes over the others",
		in:     "kubernetes: {maxPods: 200, podPidsLimit: 500, kubeletConfiguration: {maxPods: 210, evictionHard: {memory.available: 5%}}}",
		want:   "spec: {kubernetes: {kubelet: {config: {maxPods: 210, podPidsLimit: 500, evictionHard: {memory.available: 5%}}}}}",
	},
	{
		field:  "spec.kubernetes.kubeletConfiguration",
		reason: "a field that kubelets do not have",
		in:     "kubernetes: {kubeletConfiguration: {maxPodds: 1}}",
		says:   "spec.kubernetes.kubeletConfiguration unknown-kubelet-field error",
	},
	{
		field:  "spec.kubernetes.nodeCidrMaskSize",
		reason: "an argument of the controller manager",
		in:     "kubernetes: {nodeCidrMaskSize: 25}",
		want:   "spec: {kubernetes: {controllerManager: {extraArgs: {node-cidr-mask-size: '25'}}}}",
	},
	{
		field:  "spec.kubernetes.nodeCidrMaskSize spec.kubernetes.nodeCidrMaskSizeIPv6",
		reason: "with two IP versions, one each",
		in: "kubernetes: {nodeCidrMaskSize: 25, nodeCidrMaskSizeIPv6: 64}\nnetwork: {kubePodsCIDR: '10.140.0.0/16,fd00:140::/56', " +
			"kubeServiceCIDR: '10.96.0.0/16,fd00:96::/112'}",
		want: "spec: {kubernetes: {controllerManager: {extraArgs: {node-cidr-mask-size-ipv4: '25', node-cidr-mask-size-ipv6: '64'}}}, " +
			"network: {podCIDR: [10.140.0.0/16, 'fd00:140::/56'], serviceCIDR: [10.96.0.0/16, 'fd00:96::/112']}}",
	},
	{
		field:  "spec.kubernetes.apiserverCertExtraSans[]",
		reason: "as written",
		in:     "kubernetes: {apiserverCertExtraSans: [k8s.example.com]}",
		want:   "spec: {kubernetes: {apiServer: {certSANs: [k8s.example.com]}}}",
	},
	{
		field:  "spec.kubernetes.apiserverCertExtraSans[]",
		reason: "no name",
		in:     "kubernetes: {apiserverCertExtraSans: [a, 'b c']}",
		says:   "spec.kubernetes.apiserverCertExtraSans[1] invalid-address error",
	},
	{
		field: "spec.kubernetes.apiserverArgs[] spec.kubernetes.controllerManagerArgs[] spec.kubernetes.schedulerArgs[] " +
			"spec.kubernetes.kubeletArgs[] spec.kubernetes.featureGates[]",
		reason: "by key",
		in: "kubernetes: {apiserverArgs: ['audit-log-maxage=30', '--profiling'], controllerManagerArgs: [v=1], schedulerArgs: [v=2], " +
			"kubeletArgs: ['node-labels=a=b'], featureGates: {AllBeta: true}}",
		want: "spec: {kubernetes: {apiServer: {extraArgs: {audit-log-maxage: '30', profiling: 'true'}}, controllerManager: {extraArgs: {v: " +
			"'1'}}, scheduler: {extraArgs: {v: '2'}}, " +
			"kubelet: {extraArgs: {node-labels: a=b}}, featureGates: {AllBeta: true}}}",
	},
	{
		field:  "spec.kubernetes.apiserverArgs[]",
		reason: "one given twice",
		in:     "kubernetes: {apiserverArgs: ['profiling=false', '--profiling=true']}",
		says:   "spec.kubernetes.apiserverArgs[1] lost-in-conversion error",
	},
	{
		field:  "spec.kubernetes.schedulerArgs[]",
		reason: "one that the version has not",
		in:     "kubernetes: {schedulerArgs: ['--address=0.0.0.0']}",
		says:   "spec.kubernetes.schedulerArgs[0] lost-in-conversion error",
	},
	{
		field:  "spec.kubernetes.apiserverArgs[]",
		reason: "no argument",
		in:     "kubernetes: {apiserverArgs: [v=2, 'a b=c']}",
		says:   "spec.kubernetes.apiserverArgs[1] lost-in-conversion error",
	},
	{
		field:  "spec.kubernetes.audit.enabled",
		reason: "by our policy",
		in:     "kubernetes: {audit: {enabled: true}}",
		want:   "spec: {kubernetes: {audit: {maxAge: 30}}}",
	},
	{field: "spec.kubernetes.audit.enabled", reason: "as it is without", in: "kubernetes: {audit: {enabled: false}}", want: "spec: {}"},
	{
		field:  "spec.kubernetes.containerManager",
		reason: "as written",
		in:     "kubernetes: {containerManager: containerd}",
		want:   "spec: {containerRuntime: {type: containerd}}",
	},
	{
		field:  "spec.kubernetes.containerManager",
		reason: "one that we do not have",
		in:     "kubernetes: {containerManager: isula}",
		says:   "spec.kubernetes.containerManager lost-in-conversion error",
	},
	{
		field:  "spec.kubernetes.containerManager",
		reason: "which can be allowed",
		in:     "kubernetes: {containerManager: isula}",
		allow:  true,
		want:   "spec: {containerRuntime: {type: containerd}}",
		says:   "spec.kubernetes.containerManager lost-in-conversion warning",
	},

	{
		field:  "spec.network.plugin spec.network.flannel.backendMode spec.network.kubePodsCIDR spec.network.kubeServiceCIDR",
		reason: "as written",
		in:     "network: {flannel: {backendMode: host-gw}, kubePodsCIDR: 10.140.0.0/16, kubeServiceCIDR: 10.96.0.0/18}",
		want:   "spec: {network: {plugin: flannel, podCIDR: [10.140.0.0/16], serviceCIDR: [10.96.0.0/18], flannel: {backend: host-gw}}}",
	},
	{
		field:  "spec.network.kubePodsCIDR spec.network.kubeServiceCIDR",
		reason: "KubeKey's defaults are written",
		want:   "spec: {network: {podCIDR: [10.233.64.0/18], serviceCIDR: [10.233.0.0/18]}}",
	},
	{
		field:  "spec.network.kubePodsCIDR",
		reason: "no range",
		in:     "network: {kubePodsCIDR: 10.0.0.0}",
		says:   "spec.network.kubePodsCIDR invalid-cidr error",
	},
	{
		field:  "spec.network.plugin",
		reason: "none is ours too",
		in:     "network: {plugin: none, flannel: {backendMode: vxlan}}",
		want:   "spec: {network: {plugin: none}}",
		says:   "spec.network.flannel.backendMode not-converted warning",
	},
	{
		field:  "spec.network.plugin spec.network.hybridnet",
		reason: "hybridnet is lost",
		in:     "network: {plugin: hybridnet, hybridnet: {init: true}}",
		says:   "spec.network.hybridnet lost-in-conversion error",
	},
	{
		field:  "spec.network.plugin",
		reason: "which leaves the network to the user",
		in:     "network: {plugin: hybridnet}",
		allow:  true,
		want:   "spec: {network: {plugin: none}}",
		says:   "spec.network.plugin lost-in-conversion warning",
	},
	{
		field:  "spec.network.flannel.directRouting",
		reason: "lost",
		in:     "network: {flannel: {directRouting: true}}",
		says:   "spec.network.flannel.directRouting lost-in-conversion error",
	},
	{
		field:  "spec.network.calico spec.network.kubeovn spec.network.hybridnet",
		reason: "settings of a plugin that is not used are dropped",
		in:     "network: {calico: {vethMTU: 1400}, kubeovn: {enableSSL: true}, hybridnet: {init: true}}",
		want:   "spec: {network: {plugin: flannel}}",
		says:   "spec.network.kubeovn not-converted warning",
	},
	{
		field:  "spec.network.calico",
		reason: "those of one that is are lost",
		in:     "network: {plugin: calico, calico: {vethMTU: 1400}}",
		says:   "spec.network.calico lost-in-conversion error",
	},
	{
		field:  "spec.network.kubeovn",
		reason: "under KubeKey's name for it",
		in:     "network: {plugin: kubeovn, kubeovn: {enableSSL: true}}",
		says:   "spec.network.kubeovn lost-in-conversion error",
	},

	{
		field: "spec.registry.registryMirrors[] spec.registry.remoteMirrors[] spec.registry.insecureRegistries[] " +
			"spec.registry.auths[].skipTLSVerify spec.registry.auths[].plainHTTP",
		reason: "mirrors and what is not verified",
		in: "registry: {registryMirrors: ['https://m.example.com'], remoteMirrors: {quay.io: {endpoint: [q.example.com]}}, " +
			"insecureRegistries: ['10.0.0.9:5000'], auths: {a.example.com: {skipTLSVerify: true}, b.example.com: {plainHTTP: true}}}",
		want: "spec: {registry: {mirrors: {docker.io: ['https://m.example.com'], quay.io: ['https://q.example.com']}, insecure: " +
			"['10.0.0.9:5000', a.example.com, b.example.com]}}",
	},
	{
		field:  "spec.registry.auths[].username spec.registry.auths[].password spec.registry.auths[].caFile",
		reason: "logins, without their passwords",
		in:     "registry: {auths: {'a.example.com:5': {username: me, password: word}, b.example.com: {caFile: /etc/b.crt}}}",
		want: "spec: {registry: {auths: [{registry: 'a.example.com:5', username: me, passwordFrom: {env: " +
			"REGISTRY_PASSWORD_A_EXAMPLE_COM_5}}, {registry: b.example.com, caFile: /etc/b.crt}]}}",
		says: "spec.registry.auths[a.example.com:5].password inline-password warning",
	},
	{
		field:  "spec.registry.auths[].caFile",
		reason: "nobody looks at it",
		in:     "registry: {auths: {a.example.com: {caFile: /etc/a.crt, skipTLSVerify: true}}}",
		want:   "spec: {registry: {insecure: [a.example.com]}}",
		says:   "spec.registry.auths[a.example.com].caFile not-converted warning",
	},
	{
		field:  "spec.registry.auths[].username",
		reason: "Docker would send it to others",
		in: "kubernetes: {containerManager: docker}\nregistry: {registryMirrors: ['https://m.example.com'], auths: {docker.io: " +
			"{username: me, password: word}}}",
		says: "spec.registry.auths[docker.io].username lost-in-conversion error",
	},
	{
		field:  "spec.registry.auths[].password",
		reason: "nobody's",
		in:     "registry: {auths: {a.example.com: {password: word}}}",
		want:   "spec: {registry: null}",
		says:   "spec.registry.auths[a.example.com].password not-converted warning",
	},
	{
		field:  "spec.registry.registryMirrors[]",
		reason: "no URL",
		in:     "registry: {registryMirrors: ['ftp://x']}",
		says:   "spec.registry.registryMirrors[0] invalid-value error",
	},
	{
		field:  "spec.registry.type",
		reason: "without a host for it",
		in:     "registry: {type: harbor}",
		want:   "spec: {registry: null}",
		says:   "spec.registry.type not-converted warning",
	},
	{
		field:  "spec.registry.type",
		reason: "with one",
		in:     "registry: {type: harbor}\nroleGroups: {master: [a], worker: [b], registry: [b]}",
		says:   "spec.registry.type lost-in-conversion error",
	},
	{
		field:  "spec.registry.containerdDataDir",
		reason: "another is lost",
		in:     "registry: {containerdDataDir: /data}",
		says:   "spec.registry.containerdDataDir lost-in-conversion error",
	},
	{
		field:  "spec.registry.containerdDataDir",
		reason: "the usual one is ours",
		in:     "registry: {containerdDataDir: /var/lib/containerd}",
		want:   "spec: {containerRuntime: {type: containerd}}",
	},
	{
		field:  "spec.registry.dockerDataDir spec.registry.dataRoot spec.registry.bridgeIP",
		reason: "without docker, nothing",
		in:     "registry: {dockerDataDir: /d, dataRoot: /e, bridgeIP: 172.31.0.1/24}",
		want:   "spec: {containerRuntime: {type: containerd}}",
		says:   "spec.registry.bridgeIP not-converted warning",
	},
	{
		field:  "spec.registry.dockerDataDir",
		reason: "with it, lost",
		in:     "kubernetes: {containerManager: docker}\nregistry: {dockerDataDir: /d}",
		says:   "spec.registry.dockerDataDir lost-in-conversion error",
	},
}
