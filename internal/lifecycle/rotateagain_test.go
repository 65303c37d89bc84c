package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/pki"
)

// last is the world as it is left when the process is killed at the very end of a request:
// all is done, and only that is not on record.
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

// listened carries a request out, and tells of what happens.
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

// TestRotateAgain: an exchange that was killed at its very end is finished by the same
// command, whatever else was done since, and that is on record; the one after that is
// another exchange.
func TestRotateAgain(t *testing.T) {
	w, from := rotatable(t)
	k := w.last(t, rotateAccounts())
	is := k.machines["cp1"].files[saKey]
	k.do(Request{Kind: operation.Apply, Cluster: k.changed()}, event.Succeeded)

	var list diag.List
	if _, err := k.service().PrepareResume(t.Context(), "prod", Request{}, nil); !errors.As(err, &list) || list[0].ID != idNothingUnfinished ||
		!strings.HasSuffix(list[0].Hint, ": slipway certs rotate-ca prod --which service-account") {
		t.Errorf("a resume after something else: %v", err)
	}
	res := k.do(rotateAccounts(), event.Succeeded)
	k.exchanged(from)
	if k.machines["cp1"].files[saKey] != is || len(res.Ready) == 0 {
		t.Errorf("it was exchanged twice, or says nothing: %q", res.Ready)
	}
	if _, ops := k.status(); !slices.Equal(ops, []string{"apply Succeeded", "rotate-ca Succeeded", "create Succeeded"}) {
		t.Errorf("operations %v", ops)
	}
	if _, err := k.service().PrepareResume(t.Context(), "prod", Request{}, nil); !errors.As(err, &list) ||
		strings.Contains(list[0].Hint, "rotate-ca") {
		t.Errorf("a resume when all is done: %v", err)
	}
	k.do(rotateAccounts(), event.Succeeded)
	if k.machines["cp1"].files[saKey] == is {
		t.Error("it cannot be exchanged any more")
	}
}

// TestRotateAgainMeanwhile: what somebody else has finished since it was planned is not
// done again.
func TestRotateAgainMeanwhile(t *testing.T) {
	w, _ := rotatable(t)
	k := w.last(t, rotateAccounts())
	p := k.prepared(k.service().Prepare(t.Context(), rotateAccounts(), nil))
	k.resume(event.Succeeded)
	var stale *StaleError
	if _, err := p.Apply(t.Context()); !errors.As(err, &stale) {
		t.Errorf("it is applied: %v", err)
	}
}

// TestExchanges: what of the exchanges on record has not come to its end.
func TestExchanges(t *testing.T) {
	op := func(name string, kind operation.Kind, phase v1alpha1.OperationPhase, rotates ...string) (o v1alpha1.Operation) {
		o.Name, o.Spec.Type, o.Status.Phase, o.Status.StartTime = name, string(kind), phase, &metav1.Time{}
		o.Spec.Rotates = map[string]string{}
		for _, r := range rotates {
			o.Spec.Rotates[r] = "from"
		}
		return o
	}
	const failed, succeeded = v1alpha1.OperationFailed, v1alpha1.OperationSucceeded
	unbegun := op("a", operation.RotateCA, failed, "etcd")
	unbegun.Status.StartTime = nil
	for _, tc := range []struct {
		name, reason string
		ops          []v1alpha1.Operation // newest first
		want         string
	}{
		{"one that failed", "it goes on", []v1alpha1.Operation{op("a", operation.RotateCA, failed, "etcd")}, "a"},
		{"one that never began", "it changed nothing", []v1alpha1.Operation{unbegun}, ""},
		{
			"something else since", "that has finished no exchange",
			[]v1alpha1.Operation{op("b", operation.Apply, succeeded), op("a", operation.RotateCA, failed, "etcd")},
			"a",
		},
		{
			"the same since", "that has finished it",
			[]v1alpha1.Operation{op("b", operation.RotateCA, succeeded, "etcd", "cluster"), op("a", operation.RotateCA, failed, "etcd")},
			"",
		},
		{
			"a part of it since", "the rest is as it was",
			[]v1alpha1.Operation{op("b", operation.RotateCA, succeeded, "etcd"), op("a", operation.RotateCA, failed, "etcd", "cluster")},
			"a",
		},
		{
			"all parts of it since", "nothing is left",
			[]v1alpha1.Operation{
				op("c", operation.RotateCA, succeeded, "etcd"), op("b", operation.RotateCA, succeeded, "cluster"),
				op("a", operation.RotateCA, failed, "etcd", "cluster"),
			},
			"",
		},
		{
			"two", "each goes on",
			[]v1alpha1.Operation{op("b", operation.RotateCA, failed, "cluster"), op("a", operation.RotateCA, failed, "etcd")},
			"b a",
		},
		{
			"one before another that succeeded", "it is over",
			[]v1alpha1.Operation{
				op("c", operation.RotateCA, failed, "etcd"),
				op("b", operation.RotateCA, succeeded, "etcd"), op("a", operation.RotateCA, failed, "etcd"),
			},
			"c",
		},
	} {
		var got []string
		for _, o := range unfinishedRotations(tc.ops) {
			got = append(got, o.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, want %q: %s", tc.name, got, tc.want, tc.reason)
		}
	}
}

// TestRotateClusterUnapplied: an exchange has kubeadm write the manifests of all control
// planes by what is on record: not before that has come to its end, for files that API
// servers then go by may be on no host yet. One that was cut off itself goes on.
func TestRotateClusterUnapplied(t *testing.T) {
	w, old := withAuthority(t)
	c := w.cluster()
	c.Spec.Kubernetes.Audit = &v1alpha1.Audit{MaxAge: 1, MaxBackups: 1, MaxSize: 1}
	var k *world
	w.machines["cp1"].touched = func(what string) {
		if k == nil && strings.HasPrefix(what, "kubeadm.") {
			k = w.fork(t)
		}
	}
	w.do(Request{Kind: operation.Apply, Cluster: c}, event.Succeeded)
	_, err := k.service().Prepare(t.Context(), rotateCluster(), nil)
	wantRefused(t, err, idOperationUnfinished)
	k.resume(event.Succeeded)
	k = k.cutOff(rotateCluster(), certs.StepTrusted, "cp2")[0]
	k.do(rotateCluster(), event.Succeeded)
	k.underAnother(old)
}

// TestRotateClusterFirstLost: the control plane that alone has what comes is gone for good
// in the midst of the exchange. What has come everywhere by then stays, another comes else,
// and nobody trusts the old one in the end.
func TestRotateClusterFirstLost(t *testing.T) {
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
				k.machines["cp1"].down = errDown
				k.do(Request{
					Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{"cp1"}, Forget: true,
					Removal: Removal{Force: true},
				}, event.Succeeded)
				k.do(rotateCluster(), event.Succeeded)
				next := k.machines["cp2"].files[caCrt]
				if list, err := pki.ParseAuthorities([]byte(next)); err != nil || len(list) != 1 || next == old {
					t.Errorf("%d: cp2 trusts %d authorities, or the old one: %v", i, len(list), err)
				}
				told, err := pki.KubeconfigCA([]byte(k.reads(clusterInfoPath, "kubeconfig")))
				if err != nil {
					t.Error(err)
				}
				for who, trusts := range map[string]string{
					"cp3": k.machines["cp3"].files[caCrt], "w1": k.machines["w1"].files[caCrt],
					"who joins": string(told), "pods": k.reads(rootCAPath, "ca.crt"),
				} {
					if trusts != next {
						t.Errorf("%d: %s: something else is trusted than on cp2", i, who)
					}
				}
			}
		})
	}
}
