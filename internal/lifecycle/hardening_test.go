package lifecycle

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// The hardening profile is enabled and disabled on a running cluster, with a kill at every
// step. Each control plane then has the whole profile or none of it.
func TestHardening_ResumesAfterKill(t *testing.T) {
	t.Parallel()
	w := encrypting(t, "cp1", "cp2", "w1")
	w.create(event.Succeeded)
	for _, on := range []bool{true, false} {
		c := w.Manifest()
		c.Spec.Kubernetes.Hardening = on
		request := applying(c)
		for _, m := range w.killed(t, request) {
			t.Run(m.name, func(t *testing.T) {
				k := m.world
				k.t, k.API.T = t, t
				k.goOn(request)
				k.hardened(on)
				if p := k.prepared(k.service().Prepare(t.Context(), request, nil)); !p.Plan().IsEmpty() {
					t.Errorf("a second apply would do %v", stepsOf(p.Plan().Steps))
				}
			})
		}
		w.hardened(on)
	}
}

func (w *world) hardened(want bool) {
	w.t.Helper()
	for _, name := range []string{"cp1", "cp2"} {
		m := w.Hosts[name]
		if m.HasFile(spec.AuthenticationFile) != want || strings.Contains(m.Files[module.APIServerManifest], spec.AuthenticationFile) != want {
			w.t.Errorf("%s: want file and argument: %t", name, want)
		}
	}
	for name, m := range w.Hosts {
		if strings.Contains(m.Files["/etc/kubernetes/kubelet.conf.d/50-slipway.conf"], "readOnlyPort") != want {
			w.t.Errorf("%s: want a hardened kubelet: %t", name, want)
		}
	}
}
