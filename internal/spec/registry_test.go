package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func registryCluster() *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{}
	c.APIVersion, c.Kind, c.Name = v1alpha1.APIVersion, Kind, "prod"
	c.Spec.Hosts = []v1alpha1.Host{
		{Name: "cp1", Address: "192.0.2.1", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
		{Name: "reg", Address: "192.0.2.9", Roles: []v1alpha1.Role{v1alpha1.RoleRegistry}},
	}
	return c
}

func TestPrivateRegistry_HasDefaults(t *testing.T) {
	for _, tc := range []struct {
		name, reason, want string
		change             func(*v1alpha1.Cluster, *v1alpha1.PrivateRegistry)
	}{
		{"as it is", "the role is enough", "", func(*v1alpha1.Cluster, *v1alpha1.PrivateRegistry) {}},
		{"all set", "each of these is the user's to say", "", func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) {
			p.Port, p.Names, p.Directory, p.Username, p.MirrorOf = 443, []string{"images.example.com"}, "/srv/images", "robot", []string{"quay.io"}
			p.CertFile, p.KeyFile, p.CAFile = "a.crt", "a.key", "ca.crt"
		}},
		{
			"no host", "settings of nothing", "spec.registry.private no-registry-host",
			func(c *v1alpha1.Cluster, _ *v1alpha1.PrivateRegistry) { c.Spec.Hosts = c.Spec.Hosts[:1] },
		},
		{"two", "nodes would not know which", "spec.hosts[1].roles[0] one-registry", func(c *v1alpha1.Cluster, _ *v1alpha1.PrivateRegistry) {
			c.Spec.Hosts[0].Roles = append(c.Spec.Hosts[0].Roles, v1alpha1.RoleRegistry)
		}},
		{
			"docker", "its nodes know it by its own name",
			"", func(c *v1alpha1.Cluster, _ *v1alpha1.PrivateRegistry) { c.Spec.ContainerRuntime.Type = "docker" },
		},
		{
			"docker, in place of another", "it would never be asked", "spec.registry.private.mirrorOf docker-mirror",
			func(c *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) {
				c.Spec.ContainerRuntime.Type, p.MirrorOf = "docker", []string{"quay.io"}
			},
		},
		{
			"its own login", "it would be said twice", "spec.registry.auths[0] conflicting-fields",
			func(c *v1alpha1.Cluster, _ *v1alpha1.PrivateRegistry) {
				c.Spec.Registry.Auths = []v1alpha1.RegistryAuth{{Registry: "192.0.2.9:5000", CAFile: "ca.crt"}}
			},
		},
		{
			"the host's directory", "a delete would take all of it", "spec.registry.private.directory invalid-value",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.Directory = "/srv" },
		},
		{
			"a place in a unit file", "it would be another line", "spec.registry.private.directory invalid-value",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.Directory = "/srv/a\nb" },
		},
		{
			"a colon in the user", "it would be another password", "spec.registry.private.username invalid-value",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.Username = "a:b" },
		},
		{
			"an address for a name", "addresses are known", "spec.registry.private.names[0] invalid-address",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.Names = []string{"Images_1"} },
		},
		{
			"half a certificate", "it could not be served with", "spec.registry.private.certFile missing-field",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.CertFile = "a.crt" },
		},
		{
			"an authority of nothing", "there is one of Slipway's", "spec.registry.private.caFile conflicting-fields",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.CAFile = "ca.crt" },
		},
		{
			"no registry to mirror", "it would be asked for nothing", "spec.registry.private.mirrorOf[0] invalid-address",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.MirrorOf = []string{"https://quay.io"} },
		},
		{
			"no port", "there are 65535", "spec.registry.private.port invalid-port",
			func(_ *v1alpha1.Cluster, p *v1alpha1.PrivateRegistry) { p.Port = 70000 },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := registryCluster()
			c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{}
			tc.change(c, c.Spec.Registry.Private)
			SetDefaults(c, DefaultOptions{KubernetesVersion: "v1.37.1"})
			var got []string
			for _, d := range Validate(c, ValidateOptions{}).Errors() {
				got = append(got, d.Path+" "+d.ID)
			}
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("%q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestRegistryName_MatchesImages checks the name that image names and the certificate use.
func TestRegistryName_MatchesImages(t *testing.T) {
	c := registryCluster()
	if got := RegistryName(c); got != "" {
		t.Errorf("without defaults it is %q", got)
	}
	SetDefaults(c, DefaultOptions{})
	if got := RegistryName(c); got != "192.0.2.9:5000" {
		t.Errorf("it is %q", got)
	}
	c.Spec.Registry.Private.Names = []string{"images.example.com", "reg"}
	if got := RegistryName(c); got != "images.example.com:5000" {
		t.Errorf("with a name it is %q", got)
	}
	want := []string{"images.example.com", "reg", "192.0.2.9", "localhost", "127.0.0.1", "::1"}
	if d := cmp.Diff(want, RegistryNames(c)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	c.Spec.Hosts = c.Spec.Hosts[:1]
	if _, ok := RegistryHost(c); ok {
		t.Error("no host is one, and there is one")
	}
}
