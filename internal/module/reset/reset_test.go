package reset

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// TestLeftLines_ReportOnlyRemainingObjects: only what remains on a host is reported to
// the user.
func TestLeftLines_ReportOnlyRemainingObjects(t *testing.T) {
	got := leftLines([]op.Result{
		{Output: []byte("/opt/cni: left: not empty\n")},
		{Output: []byte("/etc/fstab: restored\n/etc/x.conf: left: changed by other software since then; the original " +
			"is next to it as x.conf.slipway-orig\n\n")},
		{},
	})
	want := []string{
		"/opt/cni: left on the host: not empty",
		"/etc/x.conf: left on the host: changed by other software since then; the original is next to it as x.conf.slipway-orig",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestRemoveRuntime_StopsDockerBeforeContainerd: the service that starts containers is
// stopped before the service that stores them. Its data is removed only if it belongs
// to the cluster: from nodes that have it, whatever runtime the cluster changes to.
func TestRemoveRuntime_StopsDockerBeforeContainerd(t *testing.T) {
	env := module.Env{Cluster: &v1alpha1.Cluster{}}
	host := &engine.Host{Facts: &op.HostFacts{}}
	at := func() op.Reset { return runtimeState(env, host).(op.Reset) }
	if r := at(); slices.Contains(r.Paths, "/var/lib/docker") || slices.Contains(r.Units, "docker.service") {
		t.Errorf("Docker of another owner is changed: %v %v", r.Units, r.Paths)
	}
	host.Facts.Present = []string{module.DockerUnit}
	r := at()
	if d := cmp.Diff([]string{"kubelet.service", "cri-docker.service", "docker.service", "containerd.service"}, r.Units); d != "" {
		t.Errorf("units (-want +got):\n%s", d)
	}
	for _, path := range []string{"/var/lib/docker", "/var/lib/cri-dockerd", "/run/docker", "/run/cri-dockerd.sock"} {
		if !slices.Contains(r.Paths, path) {
			t.Errorf("%s remains", path)
		}
	}
}
