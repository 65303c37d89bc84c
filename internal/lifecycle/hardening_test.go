package lifecycle

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// The profile is switched on and off on a cluster that runs, the manager killed at
// every step: each control plane then goes by it, or by nothing of it.
func TestKilledHardening(t *testing.T) {
	w := encrypting(t, "cp1", "cp2", "w1")
	w.create(event.Succeeded)
	for _, on := range []bool{true, false} {
		c := w.cluster()
		c.Spec.Kubernetes.Hardening = on
		request := Request{Kind: operation.Apply, Cluster: c}
		for _, m := range w.killed(t, request) {
			t.Run(m.name, func(t *testing.T) {
				k := m.world
				k.t, k.api.t = t, t
				k.goOn(request)
				k.hardened(on)
				if p := k.prepared(k.service().Prepare(t.Context(), request, nil)); !p.Plan().IsEmpty() {
					t.Errorf("applied again it would do %v", stepsOf(p.Plan().Steps))
				}
			})
		}
		w.hardened(on)
	}
}

func (w *world) hardened(want bool) {
	w.t.Helper()
	for _, name := range []string{"cp1", "cp2"} {
		m := w.machines[name]
		if m.has(spec.AuthenticationFile) != want || strings.Contains(m.files[module.APIServerManifest], spec.AuthenticationFile) != want {
			w.t.Errorf("%s: the file and the argument are to be there: %t", name, want)
		}
	}
	for name, m := range w.machines {
		if strings.Contains(m.files["/etc/kubernetes/kubelet.conf.d/50-slipway.conf"], "readOnlyPort") != want {
			w.t.Errorf("%s: the kubelet is to be hardened: %t", name, want)
		}
	}
}
