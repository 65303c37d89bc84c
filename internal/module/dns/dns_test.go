package dns

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
)

// TestRenderCorefile_EqualsFileOfKubeadm compares the file with the one that kubeadm
// 1.35 to 1.37 create (cmd/kubeadm/app/phases/addons/dns/manifests.go): the first apply
// after the phase of kubeadm changes nothing.
func TestRenderCorefile_EqualsFileOfKubeadm(t *testing.T) {
	kubeadm, err := os.ReadFile("testdata/kubeadm.Corefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, reason string
		dns          v1alpha1.DNS
		golden       string
	}{
		{"plain", "kubeadm's", v1alpha1.DNS{}, string(kubeadm)},
		{"own servers and hosts", "addresses are sorted, and other names are still resolved", v1alpha1.DNS{
			Upstream: []string{"192.0.2.53", "2001:db8::53"},
			Hosts:    map[string][]string{"192.0.2.9": {"git.example.com", "git"}, "192.0.2.10": {"mail.example.com"}},
		}, read(t, "testdata/own.Corefile")},
		{"zones", "a zone has its own servers, and the entries of all zones", v1alpha1.DNS{
			Hosts: map[string][]string{"192.0.2.9": {"git.corp.example.com"}},
			Zones: []v1alpha1.DNSZone{
				{Names: []string{"corp.example.com", "10.in-addr.arpa"}, Servers: []string{"192.0.2.53", "[2001:db8::53]:5353"}},
				{Names: []string{"lab.example.com"}, Servers: []string{"192.0.2.54"}, CacheSeconds: 5},
			},
		}, read(t, "testdata/zones.Corefile")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.Kubernetes.DNSDomain, c.Spec.DNS = "cluster.local", tc.dns
			got, err := renderCorefile(module.Env{Cluster: c})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.golden, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
