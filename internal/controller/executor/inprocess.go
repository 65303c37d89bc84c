package executor

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// DefaultSlots is the number of operations that run at the same time. The reserved slots are for the deletion and
// repair of clusters, which must not wait for others.
const (
	DefaultSlots  = 8
	reservedSlots = 2
)

// Delays between two runs of an operation after an error that can end.
const (
	firstDelay = 100 * time.Millisecond
	lastDelay  = time.Minute
)

// InProcess runs operations in this process, at most one for each cluster.
type InProcess struct {
	runner *Runner
	slots  int
	notify func(*v1alpha1.Operation)

	base   context.Context //nolint:containedctx // of all operations, until Close
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	running  map[types.NamespacedName]*attempt // by cluster
	delayed  map[types.UID]delay
	withheld map[types.UID]bool
	tasks    sync.WaitGroup
}

// An attempt is a run in this process.
type attempt struct {
	uid      types.UID
	repair   bool
	withdraw context.CancelCauseFunc // ends the planning
}

// A delay is the wait for the next run of an operation whose latest run ended with an error.
type delay struct {
	length time.Duration
	until  time.Time
}

// NewInProcess returns an executor with at most slots operations and the reserved ones. notify is called when
// the run of an operation has ended. Close ends it.
func NewInProcess(ctx context.Context, r *Runner, slots int, notify func(*v1alpha1.Operation)) *InProcess {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	return &InProcess{
		runner: r, slots: slots, notify: notify, base: ctx, cancel: cancel,
		running: map[types.NamespacedName]*attempt{}, delayed: map[types.UID]delay{}, withheld: map[types.UID]bool{},
	}
}

// clusterOf returns the cluster of an operation.
func clusterOf(o *v1alpha1.Operation) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterRef.Name}
}

// FindRunning returns the UID of the operation that runs on the cluster of an operation, "" if none runs.
func (e *InProcess) FindRunning(o *v1alpha1.Operation) types.UID {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is := e.running[clusterOf(o)]; is != nil {
		return is.uid
	}
	return ""
}

// CountRunning returns the number of operations that run.
func (e *InProcess) CountRunning() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running)
}

// Slots returns the number of operations that can run at the same time.
func (e *InProcess) Slots() int { return e.slots + reservedSlots }

// RemainingDelay returns the time until Start can start an operation, 0 if it can start now. After errors the times grow. A
// controller repeats the operation then: a reconciler that only returned the error would begin again with
// the first delay, because each start is a success for its queue.
func (e *InProcess) RemainingDelay(o *v1alpha1.Operation) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch left := time.Until(e.delayed[o.UID].until); {
	case left > 0:
		return left
	case !e.hasRoom(o), e.withheld[o.UID]:
		return busyInterval
	}
	return 0
}

// busyInterval is the time after which an operation looks again for a free slot.
const busyInterval = 5 * time.Second

// isRepairKind reports whether an operation may use a reserved slot.
func isRepairKind(o *v1alpha1.Operation) bool {
	kind := operation.Kind(o.Spec.Kind)
	return kind.RemovesCluster() || kind.ReplacesEtcdData()
}

// hasRoom reports whether a slot is free for an operation. The caller holds mu.
func (e *InProcess) hasRoom(o *v1alpha1.Operation) bool {
	repair, used := isRepairKind(o), 0
	for _, is := range e.running {
		if repair || !is.repair {
			used++
		}
	}
	limit := e.slots
	if repair {
		limit += reservedSlots
	}
	return used < limit && len(e.running) < e.slots+reservedSlots && context.Cause(e.base) == nil
}

// Start starts an operation, unless one runs on its cluster, or the operation has to wait.
func (e *InProcess) Start(o *v1alpha1.Operation) {
	cluster := clusterOf(o)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running[cluster] != nil || e.withheld[o.UID] || !e.hasRoom(o) {
		return
	}
	withdrawn, withdraw := context.WithCancelCause(e.base)
	is := &attempt{uid: o.UID, repair: isRepairKind(o), withdraw: withdraw}
	e.running[cluster] = is
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	e.tasks.Go(func() {
		defer withdraw(nil)
		err := e.runner.Run(e.base, withdrawn, key)
		e.mu.Lock()
		delete(e.running, cluster)
		e.noteResult(is.uid, key, err)
		e.mu.Unlock()
		e.notify(o)
	})
}

// noteResult delays the next run after an error. The caller holds mu.
func (e *InProcess) noteResult(uid types.UID, key types.NamespacedName, err error) {
	if err == nil || context.Cause(e.base) != nil {
		delete(e.delayed, uid)
		return
	}
	length := min(max(firstDelay, 2*e.delayed[uid].length), lastDelay)
	e.delayed[uid] = delay{length: length, until: time.Now().Add(length)}
	e.runner.Log.Warn("the run of an operation ended with an error", "operation", key, "next", length, "error", err)
}

// Withdraw ends an operation that has not begun. If its planning runs, the run saves its end, and Withdraw
// returns false. Otherwise save saves it, and the operation does not start meanwhile.
func (e *InProcess) Withdraw(o *v1alpha1.Operation, why *End, save func() error) (ended bool, err error) {
	e.mu.Lock()
	if is := e.running[clusterOf(o)]; is != nil && is.uid == o.UID {
		is.withdraw(why)
		e.mu.Unlock()
		return false, nil
	}
	e.withheld[o.UID] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.withheld, o.UID)
		e.mu.Unlock()
	}()
	return true, save()
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
