package executor

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
)

// newRun returns a run that has loaded an operation of cluster prod.
func newRun(t *testing.T) *run {
	t.Helper()
	backend := recordstest.NewMemory(t).Open()
	spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "apply"}
	o, err := backend.Operations().Create(t.Context(), time.Now(), spec, new(plan.Plan))
	if err != nil {
		t.Fatal(err)
	}
	return &run{
		Runner:  &Runner{Opener: service.Opener{Lifecycle: lifecycle.Config{Now: time.Now}}},
		backend: backend, key: types.NamespacedName{Name: o.Name}, operation: o, seen: seenOf(o), ctx: t.Context(),
	}
}

// change changes the operation as another process does.
func (n *run) change(t *testing.T, f func(*v1alpha1.Operation)) {
	t.Helper()
	o, err := n.backend.Operations().Load(t.Context(), n.key.Name)
	if err != nil {
		t.Fatal(err)
	}
	f(o)
	if err := n.backend.Operations().Save(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func begin(o *v1alpha1.Operation) {
	o.Status.State, o.Status.StartTime = v1alpha1.OperationRunning, &o.CreationTimestamp
	o.Status.Attempt++
}

// TestRun_OtherProcessDecides saves the end of a run while another process works on its operation.
func TestRun_OtherProcessDecides(t *testing.T) {
	for name, c := range map[string]struct {
		holds bool
		other func(t *testing.T, n *run)
		saves bool
	}{
		"nothing has changed": {false, func(*testing.T, *run) {}, true},
		"it is planned elsewhere": {false, func(t *testing.T, n *run) {
			n.change(t, func(o *v1alpha1.Operation) { o.Status.State = v1alpha1.OperationPlanning })
		}, true},
		"it has begun elsewhere": {false, func(t *testing.T, n *run) { n.change(t, begin) }, false},
		"it has ended elsewhere": {false, func(t *testing.T, n *run) {
			n.change(t, func(o *v1alpha1.Operation) { o.Status.State = v1alpha1.OperationSuperseded })
		}, false},
		"it was approved": {false, func(t *testing.T, n *run) {
			n.change(t, func(o *v1alpha1.Operation) { o.Spec.ApprovedPlan = "sha256:a" })
		}, false},
		"the lock is held": {false, func(t *testing.T, n *run) {
			if _, err := n.backend.Locks().Acquire(t.Context(), "prod", records.Holder{}); err != nil {
				t.Fatal(err)
			}
		}, false},
		"this run has begun it": {true, func(t *testing.T, n *run) { n.change(t, begin) }, true},
		"this run has lost it": {true, func(t *testing.T, n *run) {
			n.change(t, begin)
			n.change(t, begin)
		}, false},
		"another operation has its name": {true, func(_ *testing.T, n *run) { n.seen.uid = "former" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newRun(t)
			n.holds = c.holds
			c.other(t, n)
			err := n.saveResult(DeadlineExceeded)
			if isHeld(err) == c.saves || c.saves && err != nil {
				t.Errorf("saving the end: %v", err)
			}
			o, err := n.backend.Operations().Load(t.Context(), n.key.Name)
			if err != nil {
				t.Fatal(err)
			}
			if saved := o.Status.Reason == ReasonDeadline; saved != c.saves {
				t.Errorf("the end was saved: %t, want %t", saved, c.saves)
			}
			if !c.saves && c.holds {
				if err := n.markSuspended(); !isHeld(err) {
					t.Errorf("suspending an operation of another process: %v", err)
				}
			}
		})
	}
}

// TestRun_LosesLock leaves the result to the process that has taken the lock.
func TestRun_LosesLock(t *testing.T) {
	n := newRun(t)
	n.holds = true
	n.change(t, begin)
	if err := n.saveResult(errors.Join(errors.New("a step has failed"), records.ErrLost)); !errors.Is(err, records.ErrLost) {
		t.Errorf("got %v", err)
	}
	if o, err := n.backend.Operations().Load(t.Context(), n.key.Name); err != nil || operation.HasEnded(o) {
		t.Errorf("the operation is %+v, %v", o.Status, err)
	}
}

// TestLocks_AreGivenOnce plans the same operation in two processes, and both then want the lock.
func TestLocks_AreGivenOnce(t *testing.T) {
	first := newRun(t)
	second := *first
	lock, err := ownLocks{first.backend.Locks(), first}.Acquire(t.Context(), "prod", records.Holder{})
	if err != nil || !first.holds {
		t.Fatalf("the first process: %v", err)
	}
	locks := ownLocks{first.backend.Locks(), &second}
	if _, err := locks.Acquire(t.Context(), "prod", records.Holder{}); !isHeld(err) || errors.As(err, new(*records.HeldError)) {
		t.Errorf("while the lock is held: %v", err) // package lifecycle would make another error of a records.HeldError
	}
	first.change(t, begin)
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Acquire(t.Context(), "prod", records.Holder{}); !isHeld(err) || second.holds {
		t.Errorf("after the first process has begun the operation: %v", err)
	}
	if err := CheckFree(t.Context(), first.backend, "prod"); err != nil {
		t.Errorf("the lock was not released: %v", err)
	}
}

// TestPool_WaitsForOtherProcess looks at the lock of another process a few times in a minute, and shows no error.
func TestPool_WaitsForOtherProcess(t *testing.T) {
	e := NewPool(t.Context(), PoolConfig{Slots: 1})
	o := newWaiting("prod", operation.Apply)
	for _, c := range []struct{ left, least, most time.Duration }{
		{0, busyInterval - time.Second, busyInterval},
		{20 * time.Second, 20 * time.Second, 21 * time.Second},
		{time.Hour, heldInterval - time.Second, heldInterval},
	} {
		e.noteResult(o.UID, types.NamespacedName{}, &HeldError{Holder: "process 7", Wait: c.left})
		if got := e.HeldTime(o); got < c.least || got > c.most {
			t.Errorf("it waits %s for a lock that ends in %s", got, c.left)
		}
	}
	if err := e.LastError(o); err != nil {
		t.Errorf("it shows the error %v", err)
	}
	e.delayed[o.UID] = delay{until: time.Now().Add(-2 * forgottenDelay), isHeld: true}
	e.noteResult("other", types.NamespacedName{}, &HeldError{Holder: "process 7"})
	if len(e.delayed) != 1 {
		t.Errorf("%d delays, want one: the other operation has ended elsewhere", len(e.delayed))
	}
}
