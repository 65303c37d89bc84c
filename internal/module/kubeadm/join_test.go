package kubeadm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// environment has a control plane on which the cluster is created, and another one.
func environment() module.Env {
	c := &v1alpha1.Cluster{}
	c.Name = "prod"
	c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointHAProxy, Domain: "api.example.com", Port: 6443}
	c.Spec.Hosts = []v1alpha1.Host{
		{Name: "first", Address: "192.0.2.1", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
		{Name: "second", Address: "192.0.2.2", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
		{Name: "worker", Address: "192.0.2.3", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}},
	}
	return module.Env{Cluster: c}
}

func hostOf(env module.Env, name string, present ...string) *engine.Host {
	i := slices.IndexFunc(env.Cluster.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == name })
	return &engine.Host{Host: env.Cluster.Spec.Hosts[i], Facts: &op.HostFacts{Ledger: true, Present: present}}
}

// TestHasWaitingNode_IfJoinPhaseMayRun: a token is created only if the join phase of
// some node may run.
func TestHasWaitingNode_IfJoinPhaseMayRun(t *testing.T) {
	env := environment()
	for name, tt := range map[string]struct {
		why     string
		host    string
		present []string
		want    bool
	}{
		"fresh": {"nothing was installed", "worker", nil, true},
		"interrupted": {
			"kubeadm may not have ended, so it runs again", "worker",
			[]string{bootstrapConf, kubeletConf, module.ClientCert},
			true,
		},
		"early": {"interrupted before the kubelet had credentials", "worker", []string{bootstrapConf}, true},
		"no cert": {
			"interrupted while the kubelet waited for its certificate", "worker",
			[]string{kubeletConf},
			true,
		},
		"joined": {"the bootstrap credentials are removed last", "worker", []string{kubeletConf, module.ClientCert}, false},
		"first":  {"the cluster is created there, without a token", "first", nil, false},
		"second": {"it joins", "second", nil, true},
		"no etcd": {
			"its API server waits for etcd, and its kubelet waits for the API server", "second",
			[]string{adminConf, bootstrapConf, kubeletConf},
			true,
		},
		"serving": {"its own API server admitted the kubelet", "second", []string{adminConf, kubeletConf, module.ClientCert}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hasWaitingNode(env, []*engine.Host{hostOf(env, tt.host, tt.present...)}); got != tt.want {
				t.Errorf("waiting is %v: %s", got, tt.why)
			}
		})
	}
}

// TestHasBegunJoining_PerKindOfNode: the preflight checks of kubeadm need a host that
// has not begun to join, and on a control plane the shared files.
func TestHasBegunJoining_PerKindOfNode(t *testing.T) {
	env := environment()
	for host, marks := range map[string]map[string]bool{
		"worker": {"": false, bootstrapConf: true, kubeletConf: true, "/etc/kubernetes/pki/*.crt": true, manifestPath("*"): false},
		"second": {
			"": false, bootstrapConf: true, kubeletConf: true, "/etc/kubernetes/pki/*.crt": false,
			manifestPath("*"): true, adminConf: false,
		},
	} {
		for path, want := range marks {
			h := hostOf(env, host, "/sbin/modprobe", path)
			if got := hasBegunJoining(h); got != want {
				t.Errorf("%s with %q: begun is %v", host, path, got)
			}
			h.Facts.Ledger = false
			if hasBegunJoining(h) {
				t.Errorf("%s: %q of another installer counts as ours", host, path)
			}
		}
	}
}

// TestDiscoveryKubeconfig_HasCAAndNoCredentials: kubeadm takes no credentials from the
// file, and trusts the CA in it.
func TestDiscoveryKubeconfig_HasCAAndNoCredentials(t *testing.T) {
	text, err := discoveryKubeconfig(environment(), []byte("certificate of the CA"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.ConfirmUsable(*config, config.CurrentContext); err != nil {
		t.Error(err)
	}
	cluster := config.Clusters["prod"]
	if cluster == nil {
		t.Fatalf("the file names no cluster prod:\n%s", text)
	}
	if d := cmp.Diff([]string{"https://api.example.com:6443", "certificate of the CA"},
		[]string{cluster.Server, string(cluster.CertificateAuthorityData)}); d != "" {
		t.Errorf("server and CA in the file (-want +got):\n%s", d)
	}
	for name, user := range config.AuthInfos {
		if d := cmp.Diff(clientcmdapi.NewAuthInfo(), user,
			cmpopts.IgnoreFields(clientcmdapi.AuthInfo{}, "LocationOfOrigin"), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("user %s has credentials (-want +got):\n%s", name, d)
		}
	}
}

// TestJoinPhase_WritesDiscoveryFileOnlyWhileJoining: a node that has joined does not
// receive the file again.
func TestJoinPhase_WritesDiscoveryFileOnlyWhileJoining(t *testing.T) {
	env := environment()
	for name, tt := range map[string]struct {
		present []string
		want    bool
	}{
		"new":         {nil, true},
		"interrupted": {[]string{bootstrapConf, module.ClientCert}, true},
		"joined":      {[]string{kubeletConf, module.ClientCert}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isWaiting(hostOf(env, "worker", tt.present...)); got != tt.want {
				t.Errorf("isWaiting is %v", got)
			}
		})
	}
}

// TestJoinHostsEntry_LeadsToLeaderUntilAPIIsReady: kubeadm reaches the API on the
// leader while the target of the API name is not ready.
func TestJoinHostsEntry_LeadsToLeaderUntilAPIIsReady(t *testing.T) {
	first := map[string]string{"api.example.com": "192.0.2.1"}
	for name, tt := range map[string]struct {
		why  string
		mode v1alpha1.EndpointMode
		at   string
		host string
		want map[string]string
	}{
		"worker":        {"the load balancer is a pod of the kubelet that starts", v1alpha1.EndpointHAProxy, "", "worker", first},
		"control plane": {"its own API server does not run yet", v1alpha1.EndpointHAProxy, "", "second", first},
		"one for all":   {"the name already leads to the leader", v1alpha1.EndpointNone, "", "worker", nil},
		"external": {
			"a load balancer may not have detected the server yet", v1alpha1.EndpointExternal,
			"192.0.2.9", "worker", first,
		},
		"external by name": {
			"the load balancer behind the name may not have detected the server yet",
			v1alpha1.EndpointExternal, "", "worker", first,
		},
	} {
		t.Run(name, func(t *testing.T) {
			env := environment()
			env.Cluster.Spec.ControlPlaneEndpoint.Mode, env.Cluster.Spec.ControlPlaneEndpoint.Address = tt.mode, tt.at
			if d := cmp.Diff(tt.want, joinHostsEntry(env, hostOf(env, tt.host))); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.why, d)
			}
			if got := joinHostsEntry(env, hostOf(env, tt.host, module.ClientCert)); got != nil {
				t.Errorf("a joined node uses %v, but the first control plane may be lost", got)
			}
		})
	}
}

// TestMarkPaths_IncludeFilesThatTasksUse: the files that these functions use are among
// the facts of every host.
func TestMarkPaths_IncludeFilesThatTasksUse(t *testing.T) {
	asked := append(facts.WantedFacts(&v1alpha1.Cluster{}).Paths, MarkPaths()...)
	for _, path := range []string{module.ClientCert, kubeletConf, adminConf, bootstrapConf, manifestPath("*"), "/etc/kubernetes/pki/*.crt"} {
		if !slices.Contains(asked, path) {
			t.Errorf("the facts do not include %s", path)
		}
	}
}
