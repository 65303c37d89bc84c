package release_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

func loadCatalogue(t *testing.T, override string) (*release.Catalogue, error) {
	t.Helper()
	if override == "" {
		return release.Load("")
	}
	path := filepath.Join(t.TempDir(), "releases.yaml")
	if err := os.WriteFile(path, []byte(override), 0o644); err != nil {
		t.Fatal(err)
	}
	return release.Load(path)
}

func idOf(err error) string {
	var l diag.List
	if !errors.As(err, &l) || len(l) == 0 {
		return ""
	}
	return l[0].ID
}

func TestResolve_FindsReleases(t *testing.T) {
	tests := map[string]struct {
		reason, override, version   string
		kubernetes, etcd, pause, id string
		known                       bool
	}{
		"default":     {"no version named", "", "", "v1.37.1", "3.7.0", "3.10.2", "", true},
		"listed":      {"as people write it", "", "v1.36.4", "v1.36.4", "3.6.8", "3.10.2", "", true},
		"without v":   {"as modules have it", "", "1.35.6", "v1.35.6", "3.6.6", "3.10.1", "", true},
		"minor alone": {"its newest patch", "", "1.36", "v1.36.4", "3.6.8", "3.10.2", "", true},
		"newer patch": {"needs no newer Slipway", "", "v1.37.9", "v1.37.9", "3.7.0", "3.10.2", "", false},
		"older minor": {"not supported", "", "v1.12.3", "", "", "", release.IDUnsupported, false},
		"no version":  {"a typing error", "", "latest", "", "", "", release.IDUnsupported, false},
		"half":        {"two numbers of a minor we do not know", "", "1.99", "", "", "", release.IDUnsupported, false},
		"path":        {"a version becomes a path", "", "v1.37.1+../x", "", "", "", release.IDUnsupported, false},
		"override": {
			"a component of one minor", "minors: {\"1.37\": {versions: [v1.37.2], components: {etcd: 3.7.1}}}",
			"1.37", "v1.37.2", "3.7.1", "3.10.2", "", true,
		},
		"override all": {"a component of all", "components: {pause: 3.11.0}", "1.36", "v1.36.4", "3.6.8", "3.11.0", "", true},
		"new default":  {"another default", "default: v1.36.4", "", "v1.36.4", "3.6.8", "3.10.2", "", true},
		"new minor": {
			"a minor must name its own components", "minors: {\"1.38\": {versions: [v1.38.0]}}", "1.38",
			"", "", "", release.IDCatalogue, false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := loadCatalogue(t, tt.override)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.ResolveVersion(tt.version)
			if idOf(err) != tt.id {
				t.Fatalf("%s: got %v, want id %q", tt.reason, err, tt.id)
			}
			if tt.id == release.IDUnsupported && !strings.Contains(err.Error(), "$SLIPWAY_HOME/releases.yaml") {
				t.Errorf("%s: it does not say where a minor is added: %v", tt.reason, err)
			}
			got := []any{r.Kubernetes, r.Etcd, r.Pause, r.Known}
			if diff := cmp.Diff([]any{tt.kubernetes, tt.etcd, tt.pause, tt.known}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// A bundle's version of a later minor takes what the bundle names, and the rest of
// the newest minor. Listed versions are unchanged.
func TestWith_AddsABundleVersion(t *testing.T) {
	known, err := loadCatalogue(t, "")
	if err != nil {
		t.Fatal(err)
	}
	has := release.Components{Etcd: "3.8.1", EtcdImage: "3.8.1-0"}
	c := known.WithVersion("v1.38.0", has).WithVersion("v1.38.2", release.Components{}).WithVersion("v1.40.0", has).WithVersion("v1.37.1",
		has).WithVersion("v1.12.3",
		has).WithVersion("latest", has)
	for _, tt := range []struct {
		version, etcd, coredns, id string
		beyond                     bool
	}{
		{"v1.38.0", "3.8.1", "1.14.6", "", true},
		{"1.38.2", "3.7.0", "1.14.6", "", true},
		{"v1.38.1", "", "", release.IDUnsupported, false},
		{"v1.37.1", "3.7.0", "1.14.6", "", false},
		{"v1.12.3", "", "", release.IDUnsupported, false},
	} {
		r, err := c.ResolveVersion(tt.version)
		if idOf(err) != tt.id || r.Etcd != tt.etcd || r.CoreDNS != tt.coredns || r.Beyond != tt.beyond ||
			r.Beyond && (r.Known || len(r.Adds) > 0 || r.Pause == "") {
			t.Errorf("%s is %+v, %v", tt.version, r, err)
		}
	}
	if _, err := known.ResolveVersion("v1.38.0"); idOf(err) != release.IDUnsupported ||
		!strings.Contains(err.Error(), "slipway bundle import") {
		t.Errorf("it is known without a bundle, or how to have it is not said: %v", err)
	}
	for _, tt := range []struct {
		from, to string
		want     []string
		id       string
	}{
		{"v1.36.4", "v1.38.0", []string{"v1.37.1", "v1.38.0"}, ""},
		{"v1.38.0", "v1.38.2", []string{"v1.38.2"}, ""},
		{"v1.37.1", "v1.40.0", nil, release.IDUpgradePath},
		{"v1.38.0", "v1.37.1", nil, release.IDUpgradePath},
	} {
		if got, err := c.UpgradePath(tt.from, tt.to); idOf(err) != tt.id || !slices.Equal(got, tt.want) {
			t.Errorf("from %s to %s it goes over %v, %v", tt.from, tt.to, got, err)
		}
	}
	if got, err := c.WithVersion("v1.39.0", has).UpgradePath("v1.37.1", "v1.40.0"); err != nil ||
		!slices.Equal(got, []string{"v1.38.2", "v1.39.0", "v1.40.0"}) {
		t.Errorf("with all between it goes over %v, %v", got, err)
	}
	if slices.Contains(c.SupportedVersions(), "v1.38.0") {
		t.Error("what a bundle has is said to be supported")
	}
}

func TestLoad_RefusesInvalidCatalogues(t *testing.T) {
	for name, text := range map[string]string{
		"misspelt field":  "minor: {}",
		"wrong type":      "minors: [a]",
		"foreign version": "minors: {\"1.37\": {versions: [v1.36.9]}}",
		"no minor":        "minors: {latest: {versions: []}}",
		"without v":       "minors: {\"1.37\": {versions: [1.37.2]}}",
		"foreign modules": "minors: {\"1.37\": {modules: {v1.36.9: {k8s.io/api: v0.36.8}}}}",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadCatalogue(t, text); idOf(err) != release.IDCatalogue {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := release.Load(filepath.Join(t.TempDir(), "none.yaml")); err != nil {
		t.Errorf("without an override: %v", err)
	}
}

func TestSupported_ListsVersionsAndRefs(t *testing.T) {
	c, err := loadCatalogue(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1.35.4", "v1.35.6", "v1.36.4", "v1.37.1"}, c.SupportedVersions()); diff != "" {
		t.Errorf("supported (-want +got):\n%s", diff)
	}
	r, err := c.ResolveVersion("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	// As `kubeadm config images list` of that version prints them, and
	// our own.
	want := map[string]string{
		"kube-apiserver":          "registry.k8s.io/kube-apiserver:v1.37.1",
		"kube-controller-manager": "registry.k8s.io/kube-controller-manager:v1.37.1",
		"kube-scheduler":          "registry.k8s.io/kube-scheduler:v1.37.1",
		"kube-proxy":              "registry.k8s.io/kube-proxy:v1.37.1",
		"coredns":                 "registry.k8s.io/coredns/coredns:v1.14.6",
		"pause":                   "registry.k8s.io/pause:3.10.2",
		"etcd":                    "registry.k8s.io/etcd:3.7.0-0",
		"flannel":                 "ghcr.io/flannel-io/flannel:v0.28.4",
		"echo":                    "slipway.dev/echo:1",
		"haproxy":                 "slipway.dev/haproxy:1",
		"keepalived":              "slipway.dev/keepalived:1",
		"apiserver-updater":       "slipway.dev/apiserver-updater:2",
		"kube-vip":                "ghcr.io/kube-vip/kube-vip:v1.0.4",
		"metrics-server":          "registry.k8s.io/metrics-server/metrics-server:v0.9.0",
		"kube-state-metrics":      "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.20.0",
		"local-path":              "docker.io/rancher/local-path-provisioner:v0.0.30",
	}
	if diff := cmp.Diff(want, r.ImageRefs()); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}

func TestModules_ExistForEveryVersion(t *testing.T) {
	c, err := loadCatalogue(t, `minors: {"1.35": {versions: [v1.35.9], modules: {v1.35.9: {k8s.io/api: v0.35.8}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]map[string]string{
		"v1.35.4": nil,
		"v1.35.6": {"k8s.io/externaljwt": "v0.35.5", "k8s.io/kube-proxy": "v0.35.5", "k8s.io/mount-utils": "v0.35.4"},
		"v1.35.9": {"k8s.io/api": "v0.35.8"},
	} {
		r, err := c.ResolveVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Modules); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

func TestBehind_CountsMinors(t *testing.T) {
	for _, tt := range []struct {
		version, of string
		want        int
	}{
		{"v1.34.9", "v1.37.1", 3}, {"v1.37.0", "v1.37.1", 0}, {"v1.38.0", "v1.37.1", 0}, {"", "v1.37.1", 0}, {"v0.30.0", "v1.37.1", 0},
	} {
		if got := release.MinorsBehind(tt.version, tt.of); got != tt.want {
			t.Errorf("%s is %d minors behind %s, want %d", tt.version, got, tt.of, tt.want)
		}
	}
}

func TestUpgradePath_PassesEveryMinor(t *testing.T) {
	tests := map[string]struct {
		reason, from, to string
		want             []string
		id               string
	}{
		"same":       {"nothing to do", "v1.37.1", "v1.37.1", nil, ""},
		"patch":      {"one step", "v1.37.1", "v1.37.2", []string{"v1.37.2"}, ""},
		"next minor": {"one step", "v1.36.0", "v1.37.1", []string{"v1.37.1"}, ""},
		"two minors": {"through the one between", "v1.35.1", "1.37", []string{"v1.36.4", "v1.37.1"}, ""},
		"gap":        {"a minor between is not supported", "v1.33.0", "v1.37.1", nil, release.IDUpgradePath},
		"downgrade":  {"Kubernetes does not", "v1.37.1", "v1.36.4", nil, release.IDUpgradePath},
		"nonsense":   {"a cluster's version is input too", "x", "v1.36.4", nil, release.IDUnsupported},
	}
	c, err := loadCatalogue(t, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := c.UpgradePath(tt.from, tt.to)
			if idOf(err) != tt.id {
				t.Fatalf("%s: got %v, want id %q", tt.reason, err, tt.id)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestMinors_CompareVersions(t *testing.T) {
	for _, tc := range []struct {
		minor, version string
		reached, same  bool
	}{
		{"1.37", "v1.37.1", true, true},
		{"1.36", "v1.37.1", true, false},
		{"1.38", "v1.37.1", false, false},
		{"", "v1.37.1", false, false},
	} {
		if got := release.HasReached(tc.minor, tc.version); got != tc.reached {
			t.Errorf("%s has come to %q: %t", tc.version, tc.minor, got)
		}
		if got := release.SameMinor("v"+tc.minor+".0", tc.version); got != tc.same {
			t.Errorf("%s is of %q: %t", tc.version, tc.minor, got)
		}
	}
	c, err := loadCatalogue(t, `minors: {"1.37": {adds: [example.com/v1/things]}}`)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.ResolveVersion("1.37")
	if err != nil || len(r.Adds) < 2 || r.Adds[len(r.Adds)-1] != "example.com/v1/things" {
		t.Errorf("it adds %v, %v", r.Adds, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("default: v1.37.1\nminors: {\"1.37\": {versions: [v1.37.1]}}"), "v1.37.1")
	f.Add([]byte("components: {etcd: x}"), "1.37")
	f.Fuzz(func(t *testing.T, data []byte, version string) {
		c, err := release.Parse(data)
		if err != nil {
			return
		}
		if _, err := c.ResolveVersion(version); err != nil && idOf(err) == "" {
			t.Errorf("an error without a diagnostic: %v", err)
		}
		c.SupportedVersions()
	})
}
