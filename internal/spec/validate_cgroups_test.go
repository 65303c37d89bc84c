package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestCgroups_RefusesDriverChange(t *testing.T) {
	config := func(value string) string {
		return "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = " + value
	}
	const fixed = "SystemdCgroup of runtime runc cannot change: running pods keep the cgroups of the previous driver"
	for _, tc := range []struct {
		name, reason, was, is string
		want                  []string
	}{
		{"nothing", "Slipway's setting stays", "", "[debug]\nlevel = 'info'", nil},
		{"in words", "it is Slipway's setting", "", config("true"), nil},
		{"away from systemd", "kubelets would look for pods elsewhere", "", config("false"), []string{fixed}},
		{"to systemd", "the same", config("false"), "", []string{fixed}},
		{"as it was made", "a cluster keeps what it began with", config("false"), config("false") + "\n[debug]\nlevel = 'info'", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			of := func(config string) *v1alpha1.Cluster {
				c := &v1alpha1.Cluster{}
				c.Spec.ContainerRuntime = v1alpha1.ContainerRuntime{Type: "containerd", Config: config}
				return c
			}
			var got []string
			for _, d := range FindForbiddenChanges(of(tc.was), of(tc.is)) {
				got = append(got, d.Message)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}
