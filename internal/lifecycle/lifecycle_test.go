package lifecycle

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

func TestCreateApplyDelete(t *testing.T) {
	w := newWorld(t, "cp1", "w1", "w2")
	res := w.create(event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
	w.whole()
	if res.Kubeconfig == "" || len(res.Ready) == 0 || res.Changed == 0 {
		t.Errorf("the result says too little: %+v", res)
	}

	res = w.do(Request{Kind: Apply, Cluster: w.cluster()}, event.Succeeded)
	if res.Operation != "" || res.Changed != 0 {
		t.Errorf("an apply with nothing to do began operation %q", res.Operation)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")

	w.do(Request{Kind: Delete, Name: "prod"}, event.Succeeded)
	w.wantStatus("", "delete Succeeded", "create Succeeded")
	w.bare()
}
