package network

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/testutil/golden"
)

func environment(t *testing.T, n v1alpha1.Network) module.Env {
	t.Helper()
	catalogue, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	r, err := catalogue.ResolveVersion("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cluster{}
	c.Spec.Network = n
	c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Domain: "api.prod.internal", Port: 6443}
	return module.Env{Cluster: c, Release: r}
}

func TestFlannelObjects_MatchGoldens(t *testing.T) {
	objs, err := flannelObjects(environment(t,
		v1alpha1.Network{Plugin: "flannel", PodCIDR: []string{"10.244.0.0/16"}, Flannel: v1alpha1.Flannel{Backend: "vxlan"}}))
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, o := range objs {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		got = append(append(got, "---\n"...), text...)
	}
	golden.Check(t, "testdata/flannel.golden", got)
}

// TestInterfaceArgs_SelectInterfaceOfNode evaluates the patterns like pkg/ipmatch of
// flannel: an interface is used if it has an address of each IP version that the
// pattern matches.
func TestInterfaceArgs_SelectInterfaceOfNode(t *testing.T) {
	type link struct {
		name   string
		v4, v6 string
	}
	links := []link{
		{"nat0", "10.0.2.15", "fd00:99::15"},
		{"eth0", "192.0.2.11", "fd00:18::11"},
		{"eth1", "192.0.2.1", ""},
	}
	for _, tc := range []struct {
		name, reason, nodeIP string
		cidrs                []string
		want                 string
	}{
		{"IPv4", "flannel compares the address", "192.0.2.11", []string{"10.244.0.0/16"}, "192.0.2.11"},
		{"IPv6", "flannel compares the address", "fd00:18::11", []string{"fd00:244::/56"}, "fd00:18::11"},
		{"both, IPv4 first", "the first interface does not match", "192.0.2.11", []string{"10.244.0.0/16", "fd00:244::/56"}, "eth0"},
		{"both, IPv6 first", "the second pattern matches", "fd00:18::11", []string{"10.244.0.0/16", "fd00:244::/56"}, "eth0"},
		{"both, one is missing", "no other interface is used", "192.0.2.1", []string{"10.244.0.0/16", "fd00:244::/56"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			for _, arg := range interfaceArgs(environment(t, v1alpha1.Network{PodCIDR: tc.cidrs})) {
				arg = strings.ReplaceAll(arg, "$(NODE_IP)", tc.nodeIP)
				if address, ok := strings.CutPrefix(arg, "--iface="); ok {
					got = address
					break
				}
				pattern := regexp.MustCompile(strings.TrimPrefix(arg, "--iface-regex="))
				at := slices.IndexFunc(links, func(l link) bool { return pattern.MatchString(l.v4) && pattern.MatchString(l.v6) })
				if at < 0 {
					at = slices.IndexFunc(links, func(l link) bool { return pattern.MatchString(l.name) })
				}
				if at >= 0 {
					got = links[at].name
					break
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestNetConf_HasFieldsOfEachIPVersion(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		network      v1alpha1.Network
		want         string
	}{
		{
			"IPv4", "the default",
			v1alpha1.Network{PodCIDR: []string{"10.244.0.0/16"}, Flannel: v1alpha1.Flannel{Backend: "vxlan"}},
			`{"Backend":{"Type":"vxlan"},"EnableIPv4":true,"EnableNFTables":true,"Network":"10.244.0.0/16"}`,
		},
		{
			"IPv6", "flannel needs an explicit setting without IPv4",
			v1alpha1.Network{PodCIDR: []string{"fd00:244::/56"}, Flannel: v1alpha1.Flannel{Backend: "host-gw"}},
			`{"Backend":{"Type":"host-gw"},"EnableIPv4":false,"EnableIPv6":true,"EnableNFTables":true,"IPv6Network":"fd00:244::/56"}`,
		},
		{
			"both, small packets", "each IP version has a field",
			v1alpha1.Network{PodCIDR: []string{"10.244.0.0/16", "fd00:244::/56"}, Flannel: v1alpha1.Flannel{Backend: "vxlan", MTU: 1400}},
			`{"Backend":{"MTU":1400,"Type":"vxlan"},"EnableIPv4":true,"EnableIPv6":true,"EnableNFTables":true,` +
				`"IPv6Network":"fd00:244::/56","Network":"10.244.0.0/16"}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := netConf(environment(t, tc.network))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestInstallNetwork_EmptyWithoutPlugin(t *testing.T) {
	if m := InstallNetwork(environment(t, v1alpha1.Network{Plugin: "none"})); len(m.Tasks) != 0 {
		t.Errorf("%d tasks for a network that the user brings", len(m.Tasks))
	}
}
