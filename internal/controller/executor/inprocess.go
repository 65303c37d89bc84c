package executor

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// The number of operations that run at the same time. Reserved slots are for the deletion and repair of
// clusters, which must not wait for others.
const (
	DefaultSlots  = 8
	ReservedSlots = 2
)

// InProcess runs operations in this process, at most one for each cluster.
type InProcess struct {
	runner *Runner
	slots  int
	notify func(*v1alpha1.Operation)

	base   context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	running map[types.NamespacedName]*attempt // by cluster
	failed  map[types.UID]error
	tasks   sync.WaitGroup
}

// An attempt is a run in this process.
type attempt struct {
	uid    types.UID
	repair bool
	cancel context.CancelCauseFunc
}

// NewInProcess returns an executor with at most slots operations and the reserved ones. notify is called when
// the run of an operation has ended. Close ends it.
func NewInProcess(ctx context.Context, r *Runner, slots int, notify func(*v1alpha1.Operation)) *InProcess {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	return &InProcess{
		runner: r, slots: slots, notify: notify, base: ctx, cancel: cancel,
		running: map[types.NamespacedName]*attempt{}, failed: map[types.UID]error{},
	}
}

// clusterOf returns the cluster of an operation.
func clusterOf(o *v1alpha1.Operation) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterRef.Name}
}

// Running returns the UID of the operation that runs on the cluster of an operation, "" if none runs.
func (e *InProcess) Running(o *v1alpha1.Operation) types.UID {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is := e.running[clusterOf(o)]; is != nil {
		return is.uid
	}
	return ""
}

// TakeError returns the error of the latest run of an operation, once.
func (e *InProcess) TakeError(o *v1alpha1.Operation) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.failed[o.UID]
	delete(e.failed, o.UID)
	return err
}

// repairs reports whether an operation may use a reserved slot.
func repairs(o *v1alpha1.Operation) bool {
	kind := operation.Kind(o.Spec.Kind)
	return kind.RemovesCluster() || kind.ReplacesEtcdData()
}

// Start starts an operation, unless one runs on its cluster. It reports false if all slots are used.
func (e *InProcess) Start(o *v1alpha1.Operation) bool {
	cluster := clusterOf(o)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running[cluster] != nil {
		return true
	}
	repair := repairs(o)
	used := 0
	for _, is := range e.running {
		if repair || !is.repair {
			used++
		}
	}
	if limit := e.slots; used >= limit && !repair || used >= limit+ReservedSlots || context.Cause(e.base) != nil {
		return false
	}
	ctx, cancel := context.WithCancelCause(e.base)
	is := &attempt{uid: o.UID, repair: repair, cancel: cancel}
	e.running[cluster] = is
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	e.tasks.Go(func() {
		defer cancel(nil)
		err := e.runner.Run(ctx, key)
		e.mu.Lock()
		delete(e.running, cluster)
		if err != nil && context.Cause(e.base) == nil {
			e.failed[is.uid] = err
		}
		e.mu.Unlock()
		e.notify(o)
	})
	return true
}

// Cancel ends the planning of an operation. A running operation sees the request itself, and stops at a safe
// point.
func (e *InProcess) Cancel(o *v1alpha1.Operation, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is := e.running[clusterOf(o)]; is != nil && is.uid == o.UID {
		is.cancel(cause)
	}
}

// Close stops all operations at a safe point and waits for them, at most for the given time.
func (e *InProcess) Close(limit time.Duration) {
	e.cancel(ErrStopped)
	done := make(chan struct{})
	go func() { // ends with the operations
		e.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
		e.runner.Log.Warn("operations did not reach a safe point in time; they continue after the next start")
	}
}
