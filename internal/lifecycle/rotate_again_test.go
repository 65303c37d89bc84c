package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/pki"
)

// last returns the world that a kill at the very end of a request leaves. All work is done,
// but the operation is not saved as finished.
func (w *world) last(t *testing.T, r Request) *world {
	t.Helper()
	var left *world
	w.listened(t, r, func(e event.Event) {
		if e.Type == event.OperationFinished {
			left = w.fork(t)
		}
	})
	return left
}

// listened applies a request and calls tell with each event.
func (w *world) listened(t *testing.T, r Request, tell func(event.Event)) {
	t.Helper()
	p := w.prepared(w.service().Prepare(t.Context(), r, nil))
	if res, err := p.Apply(t.Context(), event.SinkFunc(tell)); err != nil || res.Outcome != event.Succeeded {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRotateAccounts_FinishesWithSameCommandAfterKill checks that the same command finishes a rotation that was killed at its
// very end, even after other operations. The command after that rotates again.
func TestRotateAccounts_FinishesWithSameCommandAfterKill(t *testing.T) {
	t.Parallel()
	w, from := rotatable(t)
	k := w.last(t, rotateAccounts())
	is := k.Hosts["cp1"].Files[saKey]
	k.do(applying(k.changed()), event.Succeeded)

	var list diag.List
	if _, err := k.service().PrepareResume(t.Context(), resuming(), nil); !errors.As(err, &list) || list[0].ID != idNothingUnfinished ||
		!strings.HasSuffix(list[0].Hint, ": slipway certs rotate-ca prod --which service-account") {
		t.Errorf("a resume after another operation: %v", err)
	}
	res := k.do(rotateAccounts(), event.Succeeded)
	k.exchanged(from)
	if k.Hosts["cp1"].Files[saKey] != is || len(res.Ready) == 0 {
		t.Errorf("it was rotated twice, or the result is empty: %q", res.Ready)
	}
	if _, ops := k.status(); !slices.Equal(ops, []string{"apply Succeeded", "rotate-ca Succeeded", "create Succeeded"}) {
		t.Errorf("operations %v", ops)
	}
	if _, err := k.service().PrepareResume(t.Context(), resuming(), nil); !errors.As(err, &list) ||
		strings.Contains(list[0].Hint, "rotate-ca") {
		t.Errorf("a resume when all is done: %v", err)
	}
	k.do(rotateAccounts(), event.Succeeded)
	if k.Hosts["cp1"].Files[saKey] == is {
		t.Error("the key cannot be rotated again")
	}
}

// TestRotateAccounts_RefusesStalePlanAfterResume checks that a planned request is refused if the rotation was
// finished since.
func TestRotateAccounts_RefusesStalePlanAfterResume(t *testing.T) {
	t.Parallel()
	w, _ := rotatable(t)
	k := w.last(t, rotateAccounts())
	p := k.prepared(k.service().Prepare(t.Context(), rotateAccounts(), nil))
	k.resume(event.Succeeded)
	var stale *StaleError
	if _, err := p.Apply(t.Context()); !errors.As(err, &stale) {
		t.Errorf("want it refused as stale: %v", err)
	}
}

// TestRotateCluster_RefusesUnfinishedApply checks that a rotation is refused while an apply is
// unfinished. kubeadm would write manifests with saved settings whose files may be on no
// host yet. An interrupted rotation can be repeated.
func TestRotateCluster_RefusesUnfinishedApply(t *testing.T) {
	t.Parallel()
	w, old := withAuthority(t)
	c := w.Manifest()
	c.Spec.Kubernetes.Audit = &v1alpha1.Audit{MaxAge: 1, MaxBackups: 1, MaxSize: 1}
	var k *world
	w.Hosts["cp1"].OnChange = func(what string) {
		if k == nil && strings.HasPrefix(what, "kubeadm.") {
			k = w.fork(t)
		}
	}
	w.do(applying(c), event.Succeeded)
	_, err := k.service().Prepare(t.Context(), rotateCluster(), nil)
	wantRefused(t, err, idOperationUnfinished)
	k.resume(event.Succeeded)
	k = k.cutOff(rotateCluster(), certs.StepTrusted, "cp2")[0]
	k.do(rotateCluster(), event.Succeeded)
	k.underAnother(old)
}

// TestRotateCluster_FinishesWithoutFirstControlPlane loses cp1, the only host with the next
// CA's key, during the rotation. A new CA replaces the next one unless all hosts have that
// already. In the end, no host trusts the old CA.
func TestRotateCluster_FinishesWithoutFirstControlPlane(t *testing.T) {
	for _, at := range [][2]string{
		{certs.StepTrusted, "cp2"},
		{certs.StepSigned, "cp2"},
		{certs.StepDropped, "cp2"},
		{"rotate.cluster.drop-nodes", "w1"},
	} {
		t.Run(at[0], func(t *testing.T) {
			t.Parallel()
			w, old := withAuthority(t)
			for i, k := range w.cutOff(rotateCluster(), at[0], at[1])[:2] {
				k.Hosts["cp1"].Down = errDown
				k.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}, Forget: true, Removal: Removal{Force: true}}, event.Succeeded)
				k.do(rotateCluster(), event.Succeeded)
				next := k.Hosts["cp2"].Files[caCert]
				if list, err := pki.ParseAuthorities([]byte(next)); err != nil || len(list) != 1 || next == old {
					t.Errorf("%d: cp2 trusts %d CAs, or the old CA: %v", i, len(list), err)
				}
				told, err := pki.KubeconfigCA([]byte(k.reads(clusterInfoPath, "kubeconfig")))
				if err != nil {
					t.Error(err)
				}
				for who, trusts := range map[string]string{
					"cp3": k.Hosts["cp3"].Files[caCert], "w1": k.Hosts["w1"].Files[caCert],
					"joining nodes": string(told), "pods": k.reads(lifecycletest.RootCAPath, "ca.crt"),
				} {
					if trusts != next {
						t.Errorf("%d: %s: the trusted CA differs from cp2", i, who)
					}
				}
			}
		})
	}
}
