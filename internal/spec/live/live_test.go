package live

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

func fakeSupported(version string) error {
	if version != "v1.37.1" {
		return errors.New("Kubernetes " + version + " cannot be installed")
	}
	return nil
}

var options = Options{Default: "v1.37.1", Supported: fakeSupported}

// readState is a cluster from testdata: a file for each part of its state.
func readState(t *testing.T, name string) State {
	t.Helper()
	part := func(file string) []byte {
		data, err := os.ReadFile(filepath.Join("testdata", name, file))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var nodes corev1.NodeList
	if err := yaml.Unmarshal(part("nodes.yaml"), &nodes); err != nil {
		t.Fatal(err)
	}
	return State{
		Cluster: part("kubeadm-config.yaml"), Kubelet: part("kubelet-config.yaml"), Proxy: part("kube-proxy.yaml"),
		Flannel: part("net-conf.json"), Corefile: string(part("Corefile")), Record: part("record.yaml"),
		DaemonSets: strings.Fields(string(part("daemonsets"))), Nodes: nodes.Items,
	}
}

// TestDescribe_MatchesGolden describes complete clusters. testdata/slipway has the responses of a real
// cluster.
func TestDescribe_MatchesGolden(t *testing.T) {
	names, err := filepath.Glob("testdata/*/nodes.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal("no clusters", err)
	}
	for _, name := range names {
		name = filepath.Base(filepath.Dir(name))
		t.Run(name, func(t *testing.T) {
			d, err := Describe(readState(t, name), options)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".golden", d.Warnings.Error()+"\n---\n"+string(d.Text))
		})
	}
}

// The state of a cluster that Slipway created is described by its original file, except the
// logins. Without the saved record, the settings that its API does not have are missing,
// too.
func TestDescribe_ReturnsTheOriginalFile(t *testing.T) {
	made, err := os.ReadFile("testdata/slipway/made.yaml")
	if err != nil {
		t.Fatal(err)
	}
	load := func(text []byte) *v1alpha1.Cluster {
		loaded, err := spec.Loader{KubernetesVersion: "v1.37.1", Supported: fakeSupported}.Load("f", text)
		if err != nil {
			t.Fatal(err)
		}
		c := loaded.Cluster
		spec.SetDefaults(c, spec.DefaultOptions{}) // the endpoint's mode
		c.Spec.SSH = v1alpha1.SSH{}
		for i := range c.Spec.Hosts {
			c.Spec.Hosts[i].SSH = v1alpha1.SSH{}
		}
		return c
	}
	state := readState(t, "slipway")
	for _, tc := range []struct {
		reason string
		record bool
		forget func(c *v1alpha1.Cluster)
	}{
		{"with its record", true, func(*v1alpha1.Cluster) {}},
		{"without", false, func(c *v1alpha1.Cluster) {
			c.Spec.Kubernetes.Kubelet.Config, c.Spec.System.Sysctls = map[string]any{"serverTLSBootstrap": true}, nil // the default
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := state
			if !tc.record {
				s.Record = nil
			}
			d, err := Describe(s, options)
			if err != nil {
				t.Fatal(err)
			}
			want := load(made)
			tc.forget(want)
			if diff := cmp.Diff(want, load(d.Text)); diff != "" {
				t.Errorf("(-made +derived):\n%s", diff)
			}
		})
	}
}

func newNode(name, address string, labels map[string]string, taints ...corev1.Taint) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}
	n.Status.NodeInfo.ContainerRuntimeVersion, n.Status.NodeInfo.KubeletVersion = "containerd://2.1.4", "v1.37.1"
	return n
}

type m = map[string]string

var (
	plane = m{controlPlaneLabel: ""}
	alone = corev1.Taint{Key: controlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}
)

const conf = "clusterName: lab\nkubernetesVersion: v1.37.1\ncontrolPlaneEndpoint: api.lab.example.com:6443\n" +
	"networking: {dnsDomain: cluster.local, podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/16}\n"

// plainState is a state in which nothing is remarkable.
func plainState() State {
	return State{
		Cluster: []byte(conf), Kubelet: []byte("{}"), Proxy: []byte("mode: nftables"), Flannel: []byte(`{"Backend":{"Type":"vxlan"}}`),
		Nodes: []corev1.Node{newNode("w", "10.0.0.12", nil), newNode("cp", "10.0.0.11", plane, alone)},
	}
}

// TestDescribe_CoversEachPart changes each part of the state separately, and checks the resulting file.
func TestDescribe_CoversEachPart(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*State)
		o      Options
		get    func(*v1alpha1.Cluster) any
		want   any
		says   string // in a warning
		never  string
	}{
		{
			reason: "control planes come first", get: func(c *v1alpha1.Cluster) any { return c.Spec.Hosts },
			want: []v1alpha1.Host{
				{Name: "cp", Address: "10.0.0.11", Roles: []v1alpha1.Role{"control-plane"}},
				{Name: "w", Address: "10.0.0.12", Roles: []v1alpha1.Role{"worker"}},
			},
		},
		{
			reason: "a control plane that takes pods is a worker",
			change: func(s *State) { s.Nodes = []corev1.Node{newNode("cp", "10.0.0.11", plane)} },
			get:    func(c *v1alpha1.Cluster) any { return c.Spec.Hosts[0].Roles }, want: []v1alpha1.Role{"control-plane", "worker"},
		},
		{
			reason: "Kubernetes' own labels and taints are not written", change: func(s *State) {
				s.Nodes[0] = newNode("w", "10.0.0.12",
					m{
						"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "x",
						"topology.kubernetes.io/zone": "a", "disk": "ssd", "feature.node.kubernetes.io/cpu": "y",
					},
					corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"}, corev1.Taint{Key: "gpu", Value: "1", Effect: "NoSchedule"})
			}, get: func(c *v1alpha1.Cluster) any { return []any{c.Spec.Hosts[1].Labels, c.Spec.Hosts[1].Taints} },
			want: []any{m{"topology.kubernetes.io/zone": "a", "disk": "ssd"}, []v1alpha1.Taint{{Key: "gpu", Value: "1", Effect: "NoSchedule"}}},
		},
		{
			reason: "another runtime is named once", change: func(s *State) { s.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.30" },
			get: func(c *v1alpha1.Cluster) any { return c.Spec.ContainerRuntime.Type }, want: "containerd",
			says: "nodes use the container runtime cri-o",
		},
		{
			reason: "a node that lags behind is named", change: func(s *State) { s.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.36.4" },
			get: func(c *v1alpha1.Cluster) any { return c.Spec.Kubernetes.Version }, want: "v1.37.1", says: "the kubelet of w is v1.36.4",
		},

		{reason: "the flags say how to log in", o: Options{User: "ops", PrivateKeyFile: "~/.ssh/k"}, get: func(c *v1alpha1.Cluster) any {
			return []any{c.Spec.SSH.User, c.Spec.SSH.PrivateKeyFile, c.Spec.SSH.Sudo != nil}
		}, want: []any{"ops", "~/.ssh/k", true}},
		{reason: "another name", o: Options{Name: "prod"}, get: func(c *v1alpha1.Cluster) any { return c.Name }, want: "prod"},

		{
			reason: "the endpoint's name, and a port that is not the usual", change: replaceText(":6443", ":8443"), get: endpointOf,
			want: v1alpha1.ControlPlaneEndpoint{Domain: "api.lab.example.com", Port: 8443}, says: "does not store what is behind this name",
		},
		{
			reason: "the control plane's own address is no name", change: replaceText("api.lab.example.com", "10.0.0.11"),
			get: endpointOf, want: v1alpha1.ControlPlaneEndpoint{}, says: "has no host name for the API",
		},
		{
			reason: "a balancer on every node", change: replaceText("api.lab.example.com:6443", "127.0.0.1:6443"),
			get: endpointOf, want: v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointHAProxy}, says: "through a proxy on each node",
		},
		{
			reason: "no endpoint", change: replaceText("controlPlaneEndpoint: api.lab.example.com:6443\n", ""),
			get: endpointOf, want: v1alpha1.ControlPlaneEndpoint{}, says: "has no host name for the API",
		},
		{
			reason: "an address of something else", change: replaceText("api.lab.example.com:6443", "'[fd00::9]:6443'"), get: endpointOf,
			want: v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "fd00::9"}, says: "at the IP address fd00::9",
		},
		{
			reason: "a name that Slipway gave", change: replaceText("api.lab.example.com", "api.lab.internal"), get: endpointOf,
			want: v1alpha1.ControlPlaneEndpoint{Domain: "api.lab.internal"}, says: "was chosen by Slipway",
		},
		{
			reason: "several control planes behind a name",
			change: func(s *State) { s.Nodes = append(s.Nodes, newNode("cp2", "10.0.0.13", plane, alone)) }, get: endpointOf,
			want: v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Domain: "api.lab.example.com"},
			says: "does not store what is behind this name",
		},

		{
			reason: "another domain", change: replaceText("cluster.local", "k8s.lab"),
			get: func(c *v1alpha1.Cluster) any { return c.Spec.Kubernetes.DNSDomain }, want: "k8s.lab",
		},
		{
			reason: "two IP versions", change: replaceText("10.244.0.0/16", "'10.244.0.0/16, fd00::/48'"),
			get: func(c *v1alpha1.Cluster) any { return c.Spec.Network.PodCIDR }, want: []string{"10.244.0.0/16", "fd00::/48"},
		},
		{
			reason: "no range for pods", change: replaceText("podSubnet: 10.244.0.0/16, ", ""),
			get: func(c *v1alpha1.Cluster) any { return c.Spec.Network.PodCIDR }, want: []string(nil), says: "kubeadm has no pod range",
		},
		{
			reason: "arguments of v1beta3", change: appendText("scheduler: {extraArgs: {v: \"2\"}}"),
			get: func(c *v1alpha1.Cluster) any { return c.Spec.Kubernetes.Scheduler.ExtraArgs }, want: m{"v": "2"},
		},
		{
			reason: "arguments of v1beta4; the last of a name counts",
			change: appendText("scheduler: {extraArgs: [{name: v, value: \"2\"}, {name: v, value: \"3\"}]}"),
			get:    func(c *v1alpha1.Cluster) any { return c.Spec.Kubernetes.Scheduler.ExtraArgs }, want: m{"v": "3"},
			says: "the argument v is given more than once",
		},
		{
			reason: "certificates elsewhere", change: appendText("certificatesDir: /etc/kubernetes/ssl"),
			says: "kubeadm has certificatesDir: /etc/kubernetes/ssl",
		},
		{
			reason: "what is usual is no note",
			change: appendText("certificatesDir: /etc/kubernetes/pki\nimageRepository: " +
				"registry.k8s.io\nencryptionAlgorithm: RSA-2048\ndns: {}\nfeatureGates: {}"),
			never: "kubeadm has",
		},
		{
			reason: "names in etcd's certificates",
			change: appendText("etcd: {local: {dataDir: /var/lib/etcd, serverCertSANs: [etcd.lab]}}"),
			says:   "kubeadm has etcd.local.serverCertSANs: [etcd.lab]",
		},
		{
			reason: "a zone that a cluster file cannot express", change: func(s *State) {
				s.Corefile = ".:53 {\n    forward . /etc/resolv.conf\n}\nlab.example.com:53 {\n    forward . tls://192.0.2.1\n}"
			},
			get: func(c *v1alpha1.Cluster) any { return c.Spec.DNS.Zones }, want: []v1alpha1.DNSZone(nil),
			says: "custom zones that a cluster file cannot express: \"lab.example.com:53\"",
		},
		{
			reason: "a zone with another plugin", change: func(s *State) {
				s.Corefile = "lab.example.com {\n    rewrite name a b\n    forward . 192.0.2.1\n}\n.:53 {\n    forward . 192.0.2.53\n}"
			},
			get:  func(c *v1alpha1.Cluster) any { return c.Spec.DNS },
			want: v1alpha1.DNS{Upstream: []string{"192.0.2.53"}},
			says: "custom zones that a cluster file cannot express: \"lab.example.com\"",
		},
		{
			reason: "zones before and after the one of all names", change: func(s *State) {
				s.Corefile = "lab.example.com., 10.in-addr.arpa {\n    forward . dns://192.0.2.1 192.0.2.2:5353 {\n" +
					"        max_concurrent 1000\n    }\n    cache 5 # seconds\n}\n" +
					".:53 {\n    forward . 192.0.2.53\n    cache 30 {\n        disable success\n    }\n}\n" +
					"dns://Corp.example.com:53\n{\n    errors\n    forward . 192.0.2.3\n    loadbalance\n}"
			},
			get: func(c *v1alpha1.Cluster) any { return c.Spec.DNS },
			want: v1alpha1.DNS{Upstream: []string{"192.0.2.53"}, Zones: []v1alpha1.DNSZone{
				{Names: []string{"lab.example.com", "10.in-addr.arpa"}, Servers: []string{"192.0.2.1", "192.0.2.2:5353"}, CacheSeconds: 5},
				{Names: []string{"corp.example.com"}, Servers: []string{"192.0.2.3"}},
			}},
			never: "custom zones",
		},
		{
			reason: "feature gates that all components have",
			change: appendText("scheduler: {extraArgs: {feature-gates: AllAlpha=true}}\ncontrollerManager: {extraArgs: " +
				"{feature-gates: AllAlpha=true}}\napiServer: {extraArgs: {feature-gates: AllAlpha=true, v: '4'}}"),
			get: func(c *v1alpha1.Cluster) any {
				return []any{c.Spec.Kubernetes.FeatureGates, c.Spec.Kubernetes.APIServer.ExtraArgs, c.Spec.Kubernetes.Scheduler.ExtraArgs}
			},
			want: []any{map[string]bool{"AllAlpha": true}, m{"v": "4"}, m(nil)},
		},
		{
			reason: "feature gates of one component stay its argument", change: appendText("apiServer: {extraArgs: {feature-gates: AllAlpha=true}}"),
			get: func(c *v1alpha1.Cluster) any {
				return []any{c.Spec.Kubernetes.FeatureGates, c.Spec.Kubernetes.APIServer.ExtraArgs}
			},
			want: []any{map[string]bool(nil), m{"feature-gates": "AllAlpha=true"}},
		},
		{
			reason: "names that the certificate has anyway are not written",
			change: appendText("apiServer: {certSANs: [api.lab.example.com, 10.0.0.11, localhost, 127.0.0.1, k8s.example.com]}"),
			get:    func(c *v1alpha1.Cluster) any { return c.Spec.Kubernetes.APIServer.CertSANs }, want: []string{"k8s.example.com"},
		},
		{
			reason: "mounts cannot be said", change: appendText("apiServer: {extraVolumes: [{name: a}], extraEnvs: [{name: B}]}"),
			says: "files of the host are mounted into the apiServer",
		},
		{
			reason: "variables cannot be said", change: appendText("apiServer: {extraEnvs: [{name: B}]}"),
			says: "environment variables are set for the apiServer",
		},
		{
			reason: "validity that is not the usual",
			change: appendText("certificateValidityPeriod: 100h0m0s\ncaCertificateValidityPeriod: 87600h0m0s"),
			get: func(c *v1alpha1.Cluster) any {
				return []any{c.Spec.Kubernetes.Certificates.Validity.Duration.String(), c.Spec.Kubernetes.Certificates.CAValidity == nil}
			}, want: []any{"100h0m0s", true},
		},

		{reason: "no kube-proxy", change: func(s *State) { s.Proxy = nil }, get: proxyOf, want: "none"},
		{reason: "kube-proxy's default", change: func(s *State) { s.Proxy = []byte("mode: ''") }, get: proxyOf, want: "iptables"},
		{
			reason: "kubelet settings, without what kubeadm writes by itself", change: func(s *State) {
				s.Kubelet = []byte("kind: KubeletConfiguration\ncgroupDriver: systemd\nclusterDNS: " +
					"[10.96.0.10]\nhttpCheckFrequency: 0s\nlogging: {flushFrequency: 0, options: {json: " +
					"{infoBufferSize: '0'}}}\nhealthzPort: 10248\nmaxPods: 50\nevictionHard: {memory.available: 5%}\nfailSwapOn: false\n")
			}, get: func(c *v1alpha1.Cluster) any { return c.Spec.Kubernetes.Kubelet.Config },
			want: v1alpha1.Object{"maxPods": float64(50), "evictionHard": map[string]any{"memory.available": "5%"}, "failSwapOn": false},
		},

		{
			reason: "etcd's arguments",
			change: appendText("etcd: {local: {dataDir: /var/lib/etcd, extraArgs: {quota-backend-bytes: '4294967296'}}}"),
			get:    func(c *v1alpha1.Cluster) any { return c.Spec.Etcd.ExtraArgs }, want: m{"quota-backend-bytes": "4294967296"},
		},
		{reason: "etcd elsewhere on the disk", change: appendText("etcd: {local: {dataDir: /data}}"), says: "etcd stores its data in /data"},
		{
			reason: "an etcd of others", change: appendText("etcd: {external: {endpoints: ['https://10.0.0.9:2379']}}"),
			says: "its endpoints are https://10.0.0.9:2379",
		},

		{
			reason: "flannel's settings", change: func(s *State) { s.Flannel = []byte(`{"Backend":{"Type":"host-gw","MTU":1400}}`) },
			get: networkOf, want: []any{"flannel", v1alpha1.Flannel{Backend: "host-gw", MTU: 1400}},
		},
		{
			reason: "flannel's direct routing",
			change: func(s *State) { s.Flannel = []byte(`{"Backend":{"Type":"vxlan","DirectRouting":true}}`) }, says: "uses direct routing",
		},
		{
			reason: "a backend that we do not have", change: func(s *State) { s.Flannel = []byte(`{"Backend":{"Type":"wireguard"}}`) },
			get: networkOf, want: []any{"none", v1alpha1.Flannel{}}, says: "the backend wireguard",
		},
		{
			reason: "flannel that cannot be read", change: func(s *State) { s.Flannel = []byte(`{`) }, get: networkOf,
			want: []any{"none", v1alpha1.Flannel{}}, says: "cannot be read",
		},
		{reason: "another plugin", change: func(s *State) {
			s.Flannel, s.DaemonSets = nil, []string{"kube-system/kube-proxy", "calico-system/calico-node"}
		}, get: networkOf, want: []any{"none", v1alpha1.Flannel{}}, says: "the network plugin is calico"},
		{
			reason: "no plugin", change: func(s *State) { s.Flannel = nil }, get: networkOf,
			want: []any{"none", v1alpha1.Flannel{}}, says: "no known network plugin was found",
		},

		{
			reason: "DNS servers of its own", change: func(s *State) {
				s.Corefile = ".:53 {\n    forward . 192.0.2.53 dns://192.0.2.54:5353 {\n      max_concurrent 1000\n    }\n}"
			},
			get: func(c *v1alpha1.Cluster) any { return c.Spec.DNS.Upstream }, want: []string{"192.0.2.53", "192.0.2.54:5353"},
		},
		{
			reason: "DNS entries", change: func(s *State) {
				s.Corefile = ".:53 {\n    hosts {\n      192.0.2.80 git.example.com g\n      192.0.2.80 h\n      ttl 60\n      fallthrough\n    }\n}"
			},
			get: func(c *v1alpha1.Cluster) any { return c.Spec.DNS.Hosts }, want: map[string][]string{"192.0.2.80": {"git.example.com", "g", "h"}},
		},
		{
			reason: "each host's own servers", change: func(s *State) { s.Corefile = ".:53 {\n    forward . /etc/resolv.conf\n}" },
			get: func(c *v1alpha1.Cluster) any { return c.Spec.DNS.Upstream }, want: []string(nil),
		},
		{
			reason: "what we could not make is said as it is", change: replaceText("v1.37.1", "v1.30.0"),
			get: func(c *v1alpha1.Cluster) any { return c.Spec.Kubernetes.Version }, want: "v1.30.0",
			says: "Kubernetes v1.30.0 cannot be installed",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s, o := plainState(), tc.o
			o.Default, o.Supported = options.Default, options.Supported
			if tc.change != nil {
				tc.change(&s)
			}
			d, err := Describe(s, o)
			if err != nil {
				t.Fatal(err)
			}
			if tc.get != nil {
				if diff := cmp.Diff(tc.want, tc.get(d.Cluster)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if tc.never != "" && strings.Contains(d.Warnings.Error(), tc.never) {
				t.Errorf("it says %v", d.Warnings)
			}
			if !strings.Contains(d.Warnings.Error(), tc.says) || tc.says != "" && !strings.Contains(string(d.Text), "# TODO: ") {
				t.Errorf("it does not say %q:\n%v\n%s", tc.says, d.Warnings, d.Text)
			}
			loader := spec.Loader{KubernetesVersion: o.Default}
			if _, err := loader.Load("derived", d.Text); err != nil && !strings.Contains(err.Error(), "not-supported-yet") &&
				!strings.Contains(err.Error(), "ip-families") {
				t.Errorf("the file cannot be loaded: %v\n%s", err, d.Text)
			}
		})
	}
}

func replaceText(old, with string) func(*State) {
	return func(s *State) {
		s.Cluster = []byte(strings.ReplaceAll(string(s.Cluster), old, with))
		for i := range s.Nodes {
			info := &s.Nodes[i].Status.NodeInfo
			info.KubeletVersion = strings.ReplaceAll(info.KubeletVersion, old, with)
		}
	}
}

func appendText(text string) func(*State) {
	return func(s *State) { s.Cluster = append(s.Cluster, text+"\n"...) }
}

func endpointOf(c *v1alpha1.Cluster) any { return c.Spec.ControlPlaneEndpoint }
func proxyOf(c *v1alpha1.Cluster) any    { return c.Spec.Kubernetes.ProxyMode }
func networkOf(c *v1alpha1.Cluster) any  { return []any{c.Spec.Network.Plugin, c.Spec.Network.Flannel} }

// TestDescribe_RejectsUnreadableState uses states that a kubeadm cluster never has.
func TestDescribe_RejectsUnreadableState(t *testing.T) {
	for reason, change := range map[string]func(*State){
		"kubeadm's configuration is no YAML": func(s *State) { s.Cluster = []byte("a: [") },
		"the record is no YAML":              func(s *State) { s.Record = []byte("a: [") },
		"arguments are neither form":         appendText("scheduler: {extraArgs: 7}"),
	} {
		t.Run(reason, func(t *testing.T) {
			s := plainState()
			change(&s)
			if d, err := Describe(s, options); err == nil {
				t.Errorf("it is described:\n%s", d.Text)
			}
		})
	}
}
