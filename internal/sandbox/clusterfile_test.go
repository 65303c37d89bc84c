package sandbox

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/testutil/golden"
)

func demoFile() clusterFile {
	return clusterFile{
		Name: "dev", KeyFile: "/home/me/it's here/id_ed25519",
		Hosts: []clusterHost{
			{"dev-1", "198.18.0.2", "control-plane", "ssh-ed25519 AAAA1"},
			{"dev-2", "198.18.0.3", "worker", "ssh-ed25519 AAAA2"},
		},
	}
}

func TestClusterFile_MatchesGolden(t *testing.T) {
	full := demoFile()
	full.Kubernetes, full.CgroupV1 = "v1.37.1", true
	v1 := demoFile()
	v1.CgroupV1 = true
	theirs, err := os.ReadFile("testdata/theirs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason string
		render func() ([]byte, error)
	}{
		"plain":   {"cgroup v2 needs no settings", demoFile().renderYAML},
		"v1":      {"the kubelet refuses cgroup v1 unless told", v1.renderYAML},
		"full":    {"a version is named", full.renderYAML},
		"rewrite": {"what is not about reaching hosts stays, comments too", func() ([]byte, error) { return rewriteHosts(theirs, full) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.render()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".yaml.golden", got)
			var c v1alpha1.Cluster
			if err := yaml.UnmarshalStrict(got, &c); err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			var addresses []string
			for _, h := range c.Spec.Hosts {
				addresses = append(addresses, h.Address)
			}
			if d := cmp.Diff([]string{"198.18.0.2", "198.18.0.3"}, addresses); d != "" {
				t.Errorf("addresses (-want +got):\n%s", d)
			}
		})
	}
}

func TestWantedRange_KeepsPossibleAddresses(t *testing.T) {
	pool := netip.MustParsePrefix("198.18.0.0/16")
	tests := map[string]struct {
		reason    string
		addresses []string
		want      string
	}{
		"fits":    {"addresses a sandbox can have are kept", []string{"198.18.9.11", "198.18.9.12"}, "198.18.9.0/24"},
		"private": {"others are replaced", []string{"10.0.0.11"}, ""},
		"two":     {"a sandbox has one range", []string{"198.18.9.11", "198.18.8.11"}, ""},
		"twice":   {"two machines cannot share one", []string{"198.18.9.11", "198.18.9.11"}, ""},
		"gateway": {"the first address is the host's", []string{"198.18.9.1"}, ""},
		"name":    {"a name is no address", []string{"node1.example.com"}, ""},
		"none":    {"no hosts want nothing", nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var hosts []v1alpha1.Host
			for _, a := range tt.addresses {
				hosts = append(hosts, v1alpha1.Host{Address: a})
			}
			got, ok := wantedRange(pool, hosts)
			if ok != (tt.want != "") || (ok && got.String() != tt.want) {
				t.Errorf("%s: got %s, %t; want %q", tt.reason, got, ok, tt.want)
			}
		})
	}
}

func TestReadHosts_RejectsInvalidFiles(t *testing.T) {
	tests := map[string]struct{ reason, text string }{
		"no hosts":  {"there is nothing to make", "spec: {}"},
		"no name":   {"machines go by name", "spec: {hosts: [{address: 10.0.0.1}]}"},
		"same name": {"a name is one machine's", "spec: {hosts: [{name: a}, {name: a}]}"},
		"path":      {"a name becomes a directory", "spec: {hosts: [{name: ../a}]}"},
		"no yaml":   {"the file is something else", "{"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if hosts, err := readHosts(path); err == nil {
				t.Errorf("%s: got %v, want an error", tt.reason, hosts)
			}
		})
	}
}
