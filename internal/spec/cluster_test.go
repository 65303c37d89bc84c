package spec

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/testutil/golden"
)

func loadTestdata(t *testing.T, name string) *v1alpha1.Cluster {
	t.Helper()
	loaded, err := loader.Load(name, []byte(readPage(t, "testdata/accepted/"+name+".yaml")))
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Cluster
}

func TestDefault_IsIdempotent(t *testing.T) {
	for _, name := range []string{"minimal", "aliases", "everything"} {
		c := loadTestdata(t, name)
		SetDefaults(c, DefaultOptions{}) // the endpoint's mode is left to it
		again := c.DeepCopy()
		SetDefaults(again, DefaultOptions{KubernetesVersion: "v1.0.0"})
		if d := cmp.Diff(c, again); d != "" {
			t.Errorf("%s: applying defaults again changes it (-once +twice):\n%s", name, d)
		}
	}
}

func TestCopy_SharesNothing(t *testing.T) {
	c := loadTestdata(t, "everything")
	before, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	d := c.DeepCopy()
	if diff := cmp.Diff(c, d); diff != "" {
		t.Errorf("a copy differs:\n%s", diff)
	}
	d.Labels["a"] = "changed"
	d.Spec.Hosts[3].Labels["example.com/a"] = "changed"
	d.Spec.Hosts[3].SSH.Bastion.Address = "changed"
	d.Spec.Hosts[0].Roles[0] = "changed"
	d.Spec.Kubernetes.Kubelet.Config["registerWithTaints"].([]any)[0].(map[string]any)["key"] = "changed"
	d.Spec.Kubernetes.Certificates.Validity.Duration = 1
	after, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("changing the copy changed the original:\n%s", diff)
	}
}

func TestDigest_IgnoresInlineSecrets(t *testing.T) {
	c := loadTestdata(t, "everything")
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	plain, kube := &v1alpha1.Cluster{}, &v1alpha1.Cluster{}
	if err := errors.Join(json.Unmarshal(data, plain), utiljson.Unmarshal(data, kube)); err != nil {
		t.Fatal(err)
	}
	if DigestOf(plain) != DigestOf(c) || DigestOf(kube) != DigestOf(c) {
		t.Error("the digest changes with a trip through JSON")
	}
	if DigestOf(RedactCluster(c)) != DigestOf(c) {
		t.Error("the digest depends on inline secrets")
	}
	other := c.DeepCopy()
	other.Spec.Hosts[0].Name = "else"
	renamed := c.DeepCopy()
	renamed.Name = "else"
	if DigestOf(other) == DigestOf(c) || DigestOf(renamed) == DigestOf(c) {
		t.Error("the digest does not depend on the cluster")
	}
}

func TestRedacted_HasNoSecrets(t *testing.T) {
	c := loadTestdata(t, "everything")
	c.Spec.Hosts[1].SSH.Password = "hunter2"
	c.Annotations = map[string]string{lastApplied: `{"password":"hunter2"}`, "kept": "yes"}
	data, err := json.Marshal(RedactCluster(c))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "hunter2") || !strings.Contains(string(data), `"kept":"yes"`) {
		t.Errorf("redacted: %s", data)
	}
	if c.Spec.SSH.Password != "hunter2" {
		t.Error("redacting changed the original")
	}
}

func TestMergeSSH_PrefersHostSettings(t *testing.T) {
	yes, no := true, false
	env := func(name string) *v1alpha1.SecretSource { return &v1alpha1.SecretSource{Env: name} }
	for _, tc := range []struct {
		name, reason         string
		defaults, host, want v1alpha1.SSH
	}{
		{"nothing", "whoever connects decides", v1alpha1.SSH{}, v1alpha1.SSH{}, v1alpha1.SSH{}},
		{
			"field by field", "what the host does not say is the cluster's",
			v1alpha1.SSH{User: "a", Port: 1, PrivateKeyFile: "k", PassphraseFrom: env("P"), Sudo: &yes},
			v1alpha1.SSH{Port: 2, Sudo: &no},
			v1alpha1.SSH{User: "a", Port: 2, PrivateKeyFile: "k", PassphraseFrom: env("P"), Sudo: &no},
		},
		{
			"own key", "a default passphrase belongs to the default key, and agent alone would hide the key",
			v1alpha1.SSH{User: "a", PrivateKeyFile: "k", PassphraseFrom: env("P"), Agent: &yes},
			v1alpha1.SSH{PrivateKeyFile: "h"},
			v1alpha1.SSH{User: "a", PrivateKeyFile: "h"},
		},
		{
			"own password", "two passwords would contradict each other",
			v1alpha1.SSH{Password: "x"},
			v1alpha1.SSH{PasswordFrom: env("P")},
			v1alpha1.SSH{PasswordFrom: env("P")},
		},
		{
			"own agent", "agent: true is nothing else",
			v1alpha1.SSH{PrivateKeyFile: "k", PassphraseFrom: env("P"), Password: "x"},
			v1alpha1.SSH{Agent: &yes},
			v1alpha1.SSH{Agent: &yes},
		},
		{
			"own bastion", "a bastion is replaced as a whole",
			v1alpha1.SSH{Bastion: &v1alpha1.Bastion{Address: "a", User: "u"}},
			v1alpha1.SSH{Bastion: &v1alpha1.Bastion{Address: "b"}},
			v1alpha1.SSH{Bastion: &v1alpha1.Bastion{Address: "b"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, MergeSSH(tc.defaults, tc.host)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestTaintsControlPlane_OnlyWithWorkers(t *testing.T) {
	cp, worker := v1alpha1.RoleControlPlane, v1alpha1.RoleWorker
	for _, tc := range []struct {
		name, reason string
		roles        [][]v1alpha1.Role
		want         bool
	}{
		{"alone", "pods must run somewhere", [][]v1alpha1.Role{{cp}}, false},
		{"with a worker", "that is what workers are for", [][]v1alpha1.Role{{cp}, {worker}}, true},
		{"worker as well", "it was asked for", [][]v1alpha1.Role{{cp, worker}, {worker}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			for _, r := range tc.roles {
				c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Roles: r})
			}
			if got := TaintsControlPlane(c, c.Spec.Hosts[0]); got != tc.want {
				t.Errorf("got %v: %s", got, tc.reason)
			}
		})
	}
}

func TestImmutable_RefusesFixedFields(t *testing.T) {
	old := loadTestdata(t, "everything")
	new := old.DeepCopy()
	if found := FindForbiddenChanges(old, new); len(found) > 0 {
		t.Errorf("nothing changed, yet: %v", found)
	}
	new.Spec.Hosts[0].Labels = map[string]string{"a": "b"}
	new.Spec.Hosts[1].Address = "203.0.113.99"
	new.Spec.Kubernetes.Kubelet.Config["maxPods"] = int64(11)
	if found := FindForbiddenChanges(old, new); len(found) > 0 {
		t.Errorf("labels, SSH and settings may change, yet: %v", found)
	}
	new.Name = "other"
	new.Spec.Network.PodCIDR = new.Spec.Network.PodCIDR[:1]
	new.Spec.Network.ServiceCIDR = []string{"10.1.0.0/16"}
	new.Spec.Network.Plugin = "none"
	new.Spec.Kubernetes.DNSDomain = "other.local"
	new.Spec.Kubernetes.Version = "v1.36.4"
	new.Spec.Etcd.Type, new.Spec.ContainerRuntime.Type = "managed", "docker" // which may change
	new.Spec.ControlPlaneEndpoint.Domain, new.Spec.ControlPlaneEndpoint.Port = "other.example.com", 443
	new.Spec.ControlPlaneEndpoint.Mode = "haproxy"
	new.Spec.Hosts[1].InternalAddress = "10.9.0.99"
	new.Spec.Hosts[0].Roles = []v1alpha1.Role{"worker"}
	new.Spec.Hosts[3].Name = "renamed"
	golden.Check(t, "testdata/immutable.golden", FindForbiddenChanges(old, new).Error()+"\n")
}

// TestProxyChange_NeedsCleanRules: a mode may change if kube-proxy removes the rules of the previous mode at its
// start.
func TestProxyChange_NeedsCleanRules(t *testing.T) {
	for _, tc := range []struct{ from, to, refused string }{
		{"nftables", "iptables", ""},
		{"nftables", "ipvs", ""},
		{"iptables", "nftables", ""},
		{"ipvs", "nftables", ""},
		{"none", "ipvs", idNotSupportedYet},
		{"iptables", "ipvs", idProxyChange},
		{"ipvs", "iptables", idProxyChange},
		{"nftables", "none", idNotSupportedYet},
	} {
		old := &v1alpha1.Cluster{}
		old.Spec.Kubernetes.ProxyMode = tc.from
		wanted := old.DeepCopy()
		wanted.Spec.Kubernetes.ProxyMode = tc.to
		var got []string
		for _, d := range FindForbiddenChanges(old, wanted) {
			got = append(got, d.ID)
		}
		if strings.Join(got, " ") != tc.refused {
			t.Errorf("from %s to %s: refused by %q, want %q", tc.from, tc.to, got, tc.refused)
		}
	}
}

// TestProxyChange_CoversHalfwayNodes: nodes that still have the previous mode do not change to a mode
// that would leave their rules behind.
func TestProxyChange_CoversHalfwayNodes(t *testing.T) {
	mode := func(m string) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{}
		c.Spec.Kubernetes.ProxyMode = m
		return c
	}
	was, is := mode("iptables"), mode("nftables")
	if found := FindForbiddenChanges(is, mode("ipvs"), was, is); len(found) != 1 || found[0].ID != idProxyChange ||
		!strings.Contains(found[0].Hint, "apply nftables first") {
		t.Errorf("to ipvs while nodes may be in mode iptables: %+v", found)
	}
	for _, back := range []string{"iptables", "nftables"} {
		if found := FindForbiddenChanges(is, mode(back), was, is); len(found) > 0 {
			t.Errorf("to %s: %+v", back, found)
		}
	}
}

// TestValidate_GivesIDAndMessage wants an id and a message of all that Validate
// finds in an empty cluster.
func TestValidate_GivesIDAndMessage(t *testing.T) {
	found := Validate(&v1alpha1.Cluster{}, ValidateOptions{})
	for _, d := range found {
		if d.ID == "" || d.Message == "" || d.Severity != diag.Error || d.Path == "" {
			t.Errorf("unfinished: %+v", d)
		}
	}
	if len(found) < 4 {
		t.Errorf("an empty cluster lacks more than %v", found)
	}
}

// TestDocker_RefusesIgnoredSettings refuses what Docker would pass over in silence, and what it would give to
// others.
func TestDocker_RefusesIgnoredSettings(t *testing.T) {
	from := &v1alpha1.SecretSource{Env: "P"}
	hub := v1alpha1.RegistryAuth{Registry: "docker.io", Username: "u", PasswordFrom: from}
	mirror := map[string][]string{"docker.io": {"https://m.example.com", "https://n.example.com/"}}
	for name, tc := range map[string]struct {
		mirrors map[string][]string
		auths   []v1alpha1.RegistryAuth
		want    []string
	}{
		"none":       {nil, nil, nil},
		"of its own": {mirror, nil, nil},
		"of another": {
			map[string][]string{"quay.io": {"https://m.example.com"}},
			nil,
			[]string{"error spec.registry.mirrors[quay.io] docker-mirror"},
		},
		"below a path": {
			map[string][]string{"docker.io": {"https://m.example.com/proxy"}},
			nil,
			[]string{"error spec.registry.mirrors[docker.io][0] docker-mirror"},
		},
		"a login":         {mirror, []v1alpha1.RegistryAuth{{Registry: "r.example.com", Username: "u", PasswordFrom: from}}, nil},
		"docker.io's":     {nil, []v1alpha1.RegistryAuth{hub}, nil},
		"and its mirrors": {mirror, []v1alpha1.RegistryAuth{hub}, []string{"error spec.registry.auths[0].username docker-credentials"}},
		"a mirror's": {
			mirror,
			[]v1alpha1.RegistryAuth{{Registry: "m.example.com", Username: "u", PasswordFrom: from}},
			[]string{"warning spec.registry.auths[0].username docker-credentials"},
		},
		"its authority": {mirror, []v1alpha1.RegistryAuth{{Registry: "m.example.com", CAFile: "ca.crt"}}, nil},
		"containerd's own": {
			map[string][]string{"quay.io": {"https://m.example.com/proxy"}, "docker.io": mirror["docker.io"]},
			[]v1alpha1.RegistryAuth{hub},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := loadTestdata(t, "everything")
			c.Spec.ContainerRuntime.Type, c.Spec.Registry.Mirrors, c.Spec.Registry.Auths = "docker", tc.mirrors, tc.auths
			if name == "containerd's own" {
				c.Spec.ContainerRuntime.Type = "containerd"
			}
			var got []string
			for _, d := range Validate(c, ValidateOptions{}) {
				if d.Severity == diag.Error || d.ID == idDockerAuth {
					got = append(got, string(d.Severity)+" "+d.Path+" "+d.ID)
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("said of it (-want +got):\n%s", d)
			}
		})
	}
}

// TestHostNames_RefusedWithReason: a name that means something else is refused with its own
// reason, and so is one that has the right letters in the wrong places.
func TestHostNames_RefusedWithReason(t *testing.T) {
	for name, want := range map[string]string{
		"w1": "", "node-1.example.com": "", "1": "", "allies": "",
		"all":       "a node cannot be named all: commands such as 'slipway exec all' use this word for every host",
		"127.0.0.1": "a node cannot be named 127.0.0.1: it is an IP address",
		"a..b":      `"a..b" is not a valid node name: nothing is between two of its dots`,
		"a.-b": `"a.-b" is not a valid node name: only a-z, 0-9, '-' and '.' are allowed, and each part between dots begins and ends ` +
			`with a letter or digit`,
	} {
		v := hostValidator{&validator{c: &v1alpha1.Cluster{}}}
		v.checkHostName(v1alpha1.Host{Name: name}, "spec.hosts[0]")
		got := ""
		for _, d := range v.found {
			got += d.Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestSecretVariable_IsANameOnly: the variable is named, not expanded.
func TestSecretVariable_IsANameOnly(t *testing.T) {
	for env, hint := range map[string]string{
		"PASS": "", "$PASS": "write only the name: env: PASS",
		"${PASS}": "write only the name: env: PASS",
	} {
		v := &validator{c: &v1alpha1.Cluster{}}
		v.checkSecretSource(&v1alpha1.SecretSource{Env: env}, "spec.ssh.passwordFrom")
		got := ""
		for _, d := range v.found {
			got += d.Hint
		}
		if got != hint {
			t.Errorf("%s: %q, want %q", env, got, hint)
		}
	}
}
