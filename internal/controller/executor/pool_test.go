package executor

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// newWaiting returns an operation of a cluster with its name.
func newWaiting(name string, kind operation.Kind) *v1alpha1.Operation {
	o := new(v1alpha1.Operation)
	o.Namespace, o.Name, o.UID = "default", name, types.UID(name)
	o.Spec.ClusterRef.Name, o.Spec.Kind = name, string(kind)
	return o
}

// TestStopDeleted_KeepsTheRunOfTheObject has an object that was deleted and created again under its name.
func TestStopDeleted_KeepsTheRunOfTheObject(t *testing.T) {
	e := NewPool(t.Context(), PoolConfig{Slots: 1})
	o := newWaiting("apply", operation.Apply)
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	var why error
	e.running[clusterOf(o)] = &attempt{key: key, uid: o.UID, stop: func(err error) { why = err }}
	e.StopDeleted(key, o.UID)
	if why != nil {
		t.Errorf("the run of an existing object was stopped: %v", why)
	}
	if e.StopDeleted(key, "another"); !errors.Is(why, ErrDeleted) {
		t.Errorf("the run of an object that was replaced was not stopped: %v", why)
	}
	why = nil
	if e.StopDeleted(key, ""); !errors.Is(why, ErrDeleted) {
		t.Errorf("the run of a deleted object was not stopped: %v", why)
	}
}

// TestPool_GivesSlotsInOrder has operations that wait for the only slot. One of them no longer asks.
func TestPool_GivesSlotsInOrder(t *testing.T) {
	e := NewPool(t.Context(), PoolConfig{Slots: 1})
	running, first, second, gone := newWaiting("running", operation.Apply), newWaiting("first", operation.Apply),
		newWaiting("second", operation.Apply), newWaiting("gone", operation.Apply)
	e.running[clusterOf(running)] = &attempt{uid: running.UID}
	for _, o := range []*v1alpha1.Operation{gone, first, second} {
		if got := e.RemainingDelay(o); got != busyInterval {
			t.Fatalf("operation %s waits %s while the slot is in use", o.Name, got)
		}
	}
	if got := e.RemainingDelay(newWaiting("repair", operation.Delete)); got != 0 {
		t.Errorf("a deletion waits %s although a reserved slot is free", got)
	}
	e.waiting[0].seen = time.Now().Add(-4 * busyInterval)
	delete(e.running, clusterOf(running))
	if got := e.RemainingDelay(second); got != busyInterval {
		t.Errorf("the second operation waits %s, although another one came first", got)
	}
	if got := e.RemainingDelay(first); got != 0 {
		t.Errorf("the first operation waits %s for a free slot", got)
	}
	e.waiting = e.waiting[1:]
	if len(e.waiting) != 1 || e.waiting[0].uid != second.UID || e.RemainingDelay(second) != 0 {
		t.Errorf("waiting are %+v, want the second operation, which can start", e.waiting)
	}
}
