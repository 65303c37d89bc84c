package lifecycle

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// TestSettingsOnPath_ReportsUnknownSettings finds settings that a version on the path does not
// have, each once and by the first version, before anything of an upgrade begins.
func TestSettingsOnPath_ReportsUnknownSettings(t *testing.T) {
	t.Parallel()
	c := &v1alpha1.Cluster{}
	c.Spec.Kubernetes.Version = "v1.35.6"
	for name, tc := range map[string]struct {
		gates map[string]bool
		etcd  map[string]string
		path  []string
		want  []string
	}{
		"nothing":          {path: []string{"v1.36.4", "v1.37.1"}},
		"known on the way": {gates: map[string]bool{"SidecarContainers": true}, path: []string{"v1.36.4"}},
		"gone at its end": {
			gates: map[string]bool{"SidecarContainers": true}, path: []string{"v1.36.4", "v1.37.1"},
			want: []string{`Kubernetes v1.37.1 has no feature gate "SidecarContainers"`},
		},
		"gone with the next": {
			gates: map[string]bool{"HonorPVReclaimPolicy": true},
			path:  []string{"v1.36.4", "v1.37.1"}, want: []string{`Kubernetes v1.36.4 has no feature gate "HonorPVReclaimPolicy"`},
		},
		"a flag of etcd": {
			etcd: map[string]string{"experimental-initial-corrupt-check": "true"},
			path: []string{"v1.36.4", "v1.37.1"}, want: []string{"etcd 3.7.0 has no flag --experimental-initial-corrupt-check"},
		},
	} {
		c.Spec.Kubernetes.FeatureGates, c.Spec.Etcd.ExtraArgs = tc.gates, tc.etcd
		var got []string
		var list diag.List
		if err := checkSettingsOnPath(c, "v1.35.6", tc.path); errors.As(err, &list) {
			for _, d := range list {
				got = append(got, d.Message)
				if want := "remove the setting first: run 'slipway apply' with a file that does not have it, with version: v1.35.6"; d.Hint != want {
					t.Errorf("%s: hint %q, want %q", name, d.Hint, want)
				}
			}
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
