package record

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
)

const admin = `apiVersion: v1
kind: Config
current-context: kubernetes-admin@prod
contexts: [{name: kubernetes-admin@prod, context: {cluster: prod, user: kubernetes-admin}}]
clusters: [{name: prod, cluster: {server: "https://api.prod.internal:6443", certificate-authority-data: QQ==}}]
users: [{name: kubernetes-admin, user: {client-certificate-data: Qg==, client-key-data: Qw==}}]
preferences: {}
`

func environment(change func(*v1alpha1.Cluster)) module.Env {
	c := &v1alpha1.Cluster{}
	c.Name = "prod"
	c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Domain: "api.prod.internal", Port: 6443}
	c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Address: "192.0.2.11", InternalAddress: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
	change(c)
	return module.Env{Cluster: c}
}

func TestOutside(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		change       func(*v1alpha1.Cluster)
		want         string
	}{
		{"address", "where SSH reaches it, others do", func(*v1alpha1.Cluster) {}, "https://192.0.2.11:6443"},
		{"name", "as good as an address", func(c *v1alpha1.Cluster) { c.Spec.Hosts[0].Address = "cp1.example.com" }, "https://cp1.example.com:6443"},
		{"IPv6", "in brackets", func(c *v1alpha1.Cluster) { c.Spec.Hosts[0].Address = "2001:db8::11" }, "https://[2001:db8::11]:6443"},
		{"this host", "localhost is another host elsewhere", func(c *v1alpha1.Cluster) { c.Spec.Hosts[0].Address = "localhost" }, "https://10.0.0.11:6443"},
		{"endpoint", "its address and port", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Address, c.Spec.ControlPlaneEndpoint.Port = "203.0.113.9", 8443
		}, "https://203.0.113.9:8443"},
		{"endpoint by its name", "the load balancer has an address that its name leads to", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointExternal
		}, "https://api.prod.internal:6443"},
		{"on every worker", "it is there for the nodes alone", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointHAProxy
		}, "https://192.0.2.11:6443"},
		{"a Service", "its address is the nodes' alone, and may be anybody's elsewhere", func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint.Mode, c.Spec.ControlPlaneEndpoint.Address = v1alpha1.EndpointUpdater, "10.96.0.2"
		}, "https://192.0.2.11:6443"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := Outside(environment(tc.change), []byte(admin))
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Current  string `json:"current-context"`
				Clusters []struct {
					Cluster map[string]string `json:"cluster"`
				} `json:"clusters"`
				Users []struct {
					User map[string]string `json:"user"`
				} `json:"users"`
			}
			if err := yaml.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			c := got.Clusters[0].Cluster
			if c["server"] != tc.want || c["tls-server-name"] != "api.prod.internal" {
				t.Errorf("server %q as %q, want %q: %s", c["server"], c["tls-server-name"], tc.want, tc.reason)
			}
			if got.Current != "kubernetes-admin@prod" || got.Users[0].User["client-key-data"] != "Qw==" || c["certificate-authority-data"] != "QQ==" {
				t.Errorf("what is not ours has changed: %s", out)
			}
		})
	}
	if _, err := Outside(environment(func(*v1alpha1.Cluster) {}), []byte("clusters: nonsense")); err == nil {
		t.Error("a damaged kubeconfig is taken")
	}
}

func TestRecordHoldsNoSecret(t *testing.T) {
	env := environment(func(c *v1alpha1.Cluster) {
		c.Spec.SSH.Password, c.Spec.Hosts[0].SSH.Password = "canary-1", "canary-2"
	})
	objs, err := configMap(env.Cluster, "slipway")
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(objs[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "canary") {
		t.Errorf("the record holds a password:\n%s", text)
	}
	if !strings.Contains(string(text), "name: cp1") {
		t.Errorf("the record does not describe the cluster:\n%s", text)
	}
}
