package lifecycle

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/status"
)

// refusing returns a host that refuses a step with an error.
func refusing(step string, err op.Error) func(string, op.Op) *op.Error {
	return func(is string, _ op.Op) *op.Error {
		if is == step {
			return &err
		}
		return nil
	}
}

// TestStatus_HasErrorCodeIfOperationFails ends operations in several ways. The journal alone
// gives the same status.
func TestStatus_HasErrorCodeIfOperationFails(t *testing.T) {
	t.Parallel()
	lostLock := remote.LockState{
		Held: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", By: "mgr2", Fence: 7}, Highest: 7, AgeSeconds: 3,
	}
	for _, tc := range []struct {
		name, why string
		run       func(w *world)
		reason    string
		code      v1alpha1.ErrorCode
	}{
		{"step", "the disk of a host is full", func(w *world) {
			w.Hosts["w1"].Refuse = refusing("join.kubelet-start", op.Error{Reason: "DiskFull", Message: "no space left"})
			w.create(event.Failed)
		}, "DiskFull", v1alpha1.ErrorCapacity},
		{"step without code", "a program failed", func(w *world) {
			w.Hosts["w1"].Refuse = refusing("join.kubelet-start", op.Error{Reason: "CommandFailed", Message: "exit 1"})
			w.create(event.Failed)
		}, "CommandFailed", v1alpha1.ErrorInternal},
		{"partial", "a host was left out", func(w *world) {
			w.Hosts["w1"].Down = errDown
			w.do(CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Partial)
		}, string(remote.Unreachable), v1alpha1.ErrorUnreachable},
		{"locked", "another manager works on the cluster: the operation never begins", func(w *world) {
			w.create(event.Succeeded)
			w.Hosts["cp1"].Lock = lostLock
			_, err := w.prepared(w.service().Prepare(t.Context(), applying(w.changed()), nil)).Apply(t.Context())
			if locked := (*LockedError)(nil); !errors.As(err, &locked) {
				t.Errorf("got %v, want a locked cluster", err)
			}
		}, idLocked, v1alpha1.ErrorConflict},
		{"resumed", "the second attempt fails for another reason", func(w *world) {
			w.Hosts["w1"].Refuse = refusing("join.kubelet-start", op.Error{Reason: "DiskFull", Message: "no space left"})
			w.create(event.Failed)
			w.Hosts["w1"].Refuse = refusing("join.kubelet-start", op.Error{Reason: "Fenced", Message: "another manager"})
			w.resume(event.Failed)
		}, "Fenced", v1alpha1.ErrorConflict},
		{"succeeded later", "a resume removes the code", func(w *world) {
			w.Hosts["w1"].Refuse = refusing("join.kubelet-start", op.Error{Reason: "DiskFull", Message: "no space left"})
			w.create(event.Failed)
			w.Hosts["w1"].Refuse = nil
			w.resume(event.Succeeded)
		}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			tc.run(w)
			all, err := w.service().Operations(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			got := all[0].Status
			if got.Reason != tc.reason || got.ErrorCode != tc.code || (got.Message == "") != (tc.code == "") {
				t.Errorf("reason %q, code %q, message %q, want %q and %q: %s", got.Reason, got.ErrorCode, got.Message, tc.reason, tc.code, tc.why)
			}
			var reducer status.Reducer
			if err := w.service().Events(t.Context(), all[0].Name, false, func(e event.Event) error { reducer.Emit(e); return nil }); err != nil {
				t.Fatal(err)
			}
			reduced := reducer.Status()
			reduced.Plan, reduced.Attempt = got.Plan, got.Attempt
			if d := cmp.Diff(reduced, got); d != "" {
				t.Errorf("status (-from the journal +saved):\n%s", d)
			}
		})
	}
}

// TestOperation_HasErrorCodeIfProcessWasKilled reads an operation whose process no longer runs.
func TestOperation_HasErrorCodeIfProcessWasKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	res := w.create(event.Succeeded)
	for state, message := range map[v1alpha1.OperationState]string{
		v1alpha1.OperationRunning: records.ErrNoEnd.Error(),
		v1alpha1.OperationPending: "the operation did not begin: its process ended first",
	} {
		o, err := w.service().Records.Operations().Load(t.Context(), res.Operation)
		if err != nil {
			t.Fatal(err)
		}
		o.Status.State, o.Status.EndTime = state, nil
		if err := w.service().Records.Operations().Save(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		got, err := w.service().Operation(t.Context(), res.Operation)
		if err != nil {
			t.Fatal(err)
		}
		want := o.Status
		want.State, want.Reason, want.ErrorCode, want.Message = v1alpha1.OperationFailed, "Interrupted", v1alpha1.ErrorInternal, message
		if d := cmp.Diff(want, got.Status); d != "" {
			t.Errorf("%s operation (-want +got):\n%s", state, d)
		}
	}
}

// TestExplainFailure_SeparatesMessageAndRemedy: the command line prints both, and compares the
// message with the diagnostics of an error, so that it does not print the error again.
func TestExplainFailure_SeparatesMessageAndRemedy(t *testing.T) {
	list := diag.List{{ID: "records-unwritable", Message: "m", Hint: "h"}, {Message: "more"}}
	got := explainFailure(fmt.Errorf("writing the journal: %w", list))
	want := &event.Failure{Reason: "records-unwritable", Code: v1alpha1.ErrorCapacity, Message: "m", Remedy: "h", Detail: "more"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("failure (-want +got):\n%s", d)
	}
}

func TestExplainFailure_ReturnsReasonAndCode(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		err       error
		reason    string
		code      v1alpha1.ErrorCode
	}{
		{"locked", "another operation works on the cluster", &LockedError{Cluster: "prod"}, idLocked, v1alpha1.ErrorConflict},
		{"lost lock", "another manager may work on it", fmt.Errorf("x: %w", clusterlock.ErrLost), "LockLost", v1alpha1.ErrorConflict},
		{"host", "the connection failed", &remote.Error{Reason: remote.AuthFailed, Cause: "no"}, "ssh-auth-failed", v1alpha1.ErrorCredentials},
		{"API", "it did not respond", &kube.Error{Reason: kube.ReasonTimeout, Message: "late"}, "Error", v1alpha1.ErrorUnreachable},
		{"diagnosis", "it has an id", diag.Refuse("no-lock-majority", "no", ""), "no-lock-majority", v1alpha1.ErrorUnreachable},
		{"full disk", "of this machine", fmt.Errorf("writing the journal: %w", syscall.ENOSPC), "Error", v1alpha1.ErrorCapacity},
		{"other", "nothing is known", errors.New("unexpected"), "Error", v1alpha1.ErrorInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if f := explainFailure(tc.err); f.Reason != tc.reason || f.Code != tc.code || f.Message == "" {
				t.Errorf("%+v, want %s and %s: %s", f, tc.reason, tc.code, tc.why)
			}
		})
	}
}
