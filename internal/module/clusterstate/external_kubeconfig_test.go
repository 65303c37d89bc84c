package clusterstate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/pki/pkitest"
	"slipway.dev/slipway/internal/secret"
)

func environment(change func(*v1alpha1.Cluster)) module.Env {
	c := &v1alpha1.Cluster{}
	c.Name = "prod"
	c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Domain: "api.prod.internal", Port: 6443}
	c.Spec.Hosts = []v1alpha1.Host{{
		Name: "cp1", Address: "192.0.2.11", InternalAddress: "10.0.0.11",
		Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane},
	}}
	change(c)
	return module.Env{Cluster: c}
}

func TestMakeExternalKubeconfig_PrefersEndpointThenControlPlanes(t *testing.T) {
	text, ca, cert, key := adminOf(t)
	for _, tc := range []struct {
		name, reason string
		change       func(*v1alpha1.Cluster)
		want         string
	}{
		{"address", "other machines can reach the SSH address", func(*v1alpha1.Cluster) {}, "https://192.0.2.11:6443"},
		{
			"name", "a name is as good as an address", func(c *v1alpha1.Cluster) { c.Spec.Hosts[0].Address = "cp1.example.com" },
			"https://cp1.example.com:6443",
		},
		{"IPv6", "in brackets", func(c *v1alpha1.Cluster) { c.Spec.Hosts[0].Address = "2001:db8::11" }, "https://[2001:db8::11]:6443"},
		{
			"this host", "localhost is another host elsewhere",
			func(c *v1alpha1.Cluster) { c.Spec.Hosts[0].Address = "localhost" }, "https://10.0.0.11:6443",
		},
		{"endpoint", "its address and port", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Address, c.Spec.ControlPlaneEndpoint.Port = "203.0.113.9", 8443
		}, "https://203.0.113.9:8443"},
		{"endpoint by its name", "the name resolves to the load balancer", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointExternal
		}, "https://api.prod.internal:6443"},
		{"on every worker", "only the nodes can use it", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointHAProxy
		}, "https://192.0.2.11:6443"},
		{"a Service", "its address is valid only on the nodes", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Mode, c.Spec.ControlPlaneEndpoint.Address = v1alpha1.EndpointUpdater, "10.96.0.2"
		}, "https://192.0.2.11:6443"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := MakeExternalKubeconfig(environment(tc.change), kubeconfig.Untrusted{Text: []byte(text)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := kubeconfig.ParseAdmin(out)
			if err != nil {
				t.Fatal(err)
			}
			want := kubeconfig.Admin{
				Cluster: "prod", Server: tc.want, TLSServerName: "api.prod.internal",
				CA: []byte(ca.Cert), Certificate: []byte(cert), Key: []byte(key),
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got): %s\n%s", tc.reason, d)
			}
		})
	}
}

// TestMakeExternalKubeconfig_TrustsOnlySavedCA: only the saved CA counts.
func TestMakeExternalKubeconfig_TrustsOnlySavedCA(t *testing.T) {
	text, _, _, _ := adminOf(t)
	other, _, _, _ := adminOf(t)
	env := environment(func(*v1alpha1.Cluster) {})
	recorded, err := MakeExternalKubeconfig(env, kubeconfig.Untrusted{Text: []byte(text)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := MakeExternalKubeconfig(env, kubeconfig.Untrusted{Text: []byte(text)}, recorded)
	if err != nil || string(again) != string(recorded) {
		t.Errorf("a second call changes the result: %s, %v", again, err)
	}
	for _, tc := range []struct{ name, text, hint string }{
		{"another CA", other, "the CA was rotated"},
		{"damaged", "clusters: nonsense", "find out who changed the file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := MakeExternalKubeconfig(env, kubeconfig.Untrusted{Text: []byte(tc.text)}, recorded)
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != IDUntrusted || !strings.Contains(list[0].Hint, tc.hint) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// adminOf returns a kubeconfig as kubeadm writes it, and its content.
func adminOf(t *testing.T) (text string, ca *pkitest.Authority, cert, key string) {
	t.Helper()
	begins := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ca = pkitest.NewAuthority(t, "kubernetes", begins, begins.AddDate(10, 0, 0))
	cert, key = ca.IssueCertificate(t, "kubernetes-admin", begins.AddDate(1, 0, 0))
	return pkitest.MakeKubeconfig("https://api.prod.internal:6443", ca.Cert, "", cert, key), ca, cert, key
}

func TestConfigMap_ContainsNoSecret(t *testing.T) {
	env := environment(func(c *v1alpha1.Cluster) {
		c.Spec.SSH.Password, c.Spec.Hosts[0].SSH.Password = "canary-1", "canary-2"
	})
	env.BackupKey = secret.New("canary-3")
	objs, err := configMap(env, "slipway")
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(objs[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "canary") {
		t.Errorf("the ConfigMap contains a password:\n%s", text)
	}
	if strings.Contains(string(text), SignerKey) {
		t.Errorf("no host creates backup sets, but the ConfigMap has a key:\n%s", text)
	}
	env.BackupSigner = "ed25519:public"
	if objs, err = configMap(env, "slipway"); err != nil || objs[0].Object["data"].(map[string]any)[SignerKey] != "ed25519:public" {
		t.Errorf("the ConfigMap has no public key: %v, %v", objs, err)
	}
	if !strings.Contains(string(text), "name: cp1") {
		t.Errorf("the ConfigMap does not describe the cluster:\n%s", text)
	}
}
