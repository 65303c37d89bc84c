package executor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
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

// A Pool runs operations, at most one for each cluster, with a limit for all together.
type Pool struct {
	PoolConfig

	base   context.Context //nolint:containedctx // of all operations, until Close
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	running  map[types.NamespacedName]*attempt // by cluster
	delayed  map[types.UID]delay
	withheld map[types.UID]bool
	waiting  []waiter
	tasks    sync.WaitGroup
}

// A PoolConfig configures a Pool. All fields are required.
type PoolConfig struct {
	// Select returns how an operation runs.
	Select func(o *v1alpha1.Operation) Method
	// Slots is the number of operations that run at the same time, without the reserved slots.
	Slots int
	// Notify is called when the run of an operation has ended.
	Notify func(o *v1alpha1.Operation)
	Log    *slog.Logger
}

// A Method is a way to run operations.
type Method struct {
	Run RunFunc
	// IsElsewhere reports whether another process does the work. It continues if Run ends.
	IsElsewhere bool
}

// A RunFunc continues an operation until it has ended, or waits for an approval. See Runner.Run.
type RunFunc = func(ctx, withdrawn context.Context, key types.NamespacedName) error

// An attempt is a run in this process.
type attempt struct {
	key      types.NamespacedName
	uid      types.UID
	repair   bool
	method   Method
	withdraw context.CancelCauseFunc // ends the planning
	stop     context.CancelCauseFunc // stops the operation at a safe point
}

// A waiter is an operation that waits for a free slot.
type waiter struct {
	uid    types.UID
	repair bool
	seen   time.Time // when it last asked for a slot
}

// A delay is the wait for the next run of an operation whose latest run ended with an error.
type delay struct {
	length time.Duration
	until  time.Time
	err    error
	isHeld bool // another process works on the cluster
}

// NewPool returns a pool. Close ends it.
func NewPool(ctx context.Context, c PoolConfig) *Pool {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	return &Pool{
		PoolConfig: c, base: ctx, cancel: cancel,
		running: map[types.NamespacedName]*attempt{}, delayed: map[types.UID]delay{}, withheld: map[types.UID]bool{},
	}
}

// clusterOf returns the cluster of an operation.
func clusterOf(o *v1alpha1.Operation) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterRef.Name}
}

// FindRunning returns the UID of the operation that runs on the cluster of an operation, "" if none runs.
func (e *Pool) FindRunning(o *v1alpha1.Operation) types.UID {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is := e.running[clusterOf(o)]; is != nil {
		return is.uid
	}
	return ""
}

// CountRunning returns the number of operations that run.
func (e *Pool) CountRunning() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running)
}

// CountSlots returns the number of operations that can run at the same time.
func (e *Pool) CountSlots() int { return e.Slots + reservedSlots }

// RemainingDelay returns the time until Start can start an operation, 0 if it can start now. After errors the times grow. A
// controller repeats the operation then: a reconciler that only returned the error would begin again with
// the first delay, because each start is a success for its queue.
func (e *Pool) RemainingDelay(o *v1alpha1.Operation) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch left := time.Until(e.delayed[o.UID].until); {
	case left > 0:
		return left
	case e.withheld[o.UID]:
		return busyInterval
	case !e.hasRoom(o):
		e.noteWaiting(o)
		return busyInterval
	}
	return 0
}

// HeldTime returns the time until this process looks again whether another one still works on the cluster of an operation, 0
// if it does not wait for one.
func (e *Pool) HeldTime(o *v1alpha1.Operation) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is := e.delayed[o.UID]; is.isHeld {
		return max(0, time.Until(is.until))
	}
	return 0
}

// LastError returns the error of the latest run of an operation, nil if it had none.
func (e *Pool) LastError(o *v1alpha1.Operation) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.delayed[o.UID].err
}

// busyInterval is the time after which an operation asks again for a free slot. One that does not ask for several times
// does not wait any longer: it was cancelled, or deleted.
const busyInterval = 5 * time.Second

const (
	// heldInterval is the longest time between two looks at the lock of another process.
	heldInterval = 30 * time.Second
	// forgottenDelay is the time after which the delay of an operation is forgotten.
	forgottenDelay = 10 * time.Minute
)

// noteWaiting keeps the place of an operation that waits for a slot. The caller holds mu.
func (e *Pool) noteWaiting(o *v1alpha1.Operation) {
	now := time.Now()
	e.waiting = slices.DeleteFunc(e.waiting, func(w waiter) bool { return now.Sub(w.seen) > 3*busyInterval })
	for i := range e.waiting {
		if e.waiting[i].uid == o.UID {
			e.waiting[i].seen = now
			return
		}
	}
	e.waiting = append(e.waiting, waiter{o.UID, isRepairKind(o), now})
}

// countBefore returns the number of operations that wait for the same slots and came before an operation. The caller
// holds mu.
func (e *Pool) countBefore(o *v1alpha1.Operation) (n int) {
	repair := isRepairKind(o)
	for _, w := range e.waiting {
		if w.uid == o.UID {
			return n
		}
		if w.repair == repair && time.Since(w.seen) <= 3*busyInterval {
			n++
		}
	}
	return n
}

// isRepairKind reports whether an operation may use a reserved slot.
func isRepairKind(o *v1alpha1.Operation) bool {
	kind := operation.Kind(o.Spec.Kind)
	return kind.RemovesCluster() || kind.ReplacesEtcdData()
}

// hasRoom reports whether a slot is free for an operation. The caller holds mu.
func (e *Pool) hasRoom(o *v1alpha1.Operation) bool {
	repair, used := isRepairKind(o), 0
	for _, is := range e.running {
		if repair || !is.repair {
			used++
		}
	}
	limit := e.Slots
	if repair {
		limit += reservedSlots
	}
	return used+e.countBefore(o) < limit && len(e.running) < e.CountSlots() && context.Cause(e.base) == nil
}

// Start starts an operation, unless one runs on its cluster, or the operation has to wait.
func (e *Pool) Start(o *v1alpha1.Operation) {
	cluster := clusterOf(o)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running[cluster] != nil || e.withheld[o.UID] || !e.hasRoom(o) {
		return
	}
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	ctx, stop := context.WithCancelCause(e.base)
	withdrawn, withdraw := context.WithCancelCause(ctx)
	is := &attempt{key: key, uid: o.UID, repair: isRepairKind(o), method: e.Select(o), withdraw: withdraw, stop: stop}
	e.running[cluster] = is
	e.waiting = slices.DeleteFunc(e.waiting, func(w waiter) bool { return w.uid == o.UID })
	e.tasks.Go(func() {
		defer stop(nil)
		defer withdraw(nil)
		err := is.method.Run(ctx, withdrawn, key)
		e.mu.Lock()
		delete(e.running, cluster)
		e.noteResult(is.uid, key, err)
		e.mu.Unlock()
		e.Notify(o)
	})
}

// noteResult delays the next run after an error. The caller holds mu.
func (e *Pool) noteResult(uid types.UID, key types.NamespacedName, err error) {
	if err == nil || context.Cause(e.base) != nil {
		delete(e.delayed, uid)
		return
	}
	now := time.Now()
	maps.DeleteFunc(e.delayed, func(_ types.UID, d delay) bool { return now.Sub(d.until) > forgottenDelay }) // another process ended it
	if held := (*HeldError)(nil); errors.As(err, &held) {
		wait := min(max(busyInterval, held.Wait+time.Second), heldInterval)
		e.delayed[uid] = delay{until: now.Add(wait), isHeld: true}
		return
	}
	length := min(max(firstDelay, 2*e.delayed[uid].length), lastDelay)
	e.delayed[uid] = delay{length: length, until: now.Add(length), err: err}
	e.Log.Warn("the run of an operation ended with an error", "operation", key, "next", length, "error", err)
}

// StopDeleted stops an operation whose object was deleted, at a safe point. Its end cannot be saved. now is the UID of another
// object with its name, "" for none.
func (e *Pool) StopDeleted(key types.NamespacedName, now types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, is := range e.running {
		if is.key == key && is.uid != now {
			is.stop(ErrDeleted)
		}
	}
}

// Leave ends the observation of an operation whose work another process does: it is observed elsewhere now. Other
// operations continue in this process.
func (e *Pool) Leave(o *v1alpha1.Operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is := e.running[clusterOf(o)]; is != nil && is.uid == o.UID && is.method.IsElsewhere {
		is.stop(ErrStopped)
	}
}

// Withdraw ends an operation that has not begun. If its planning runs, the run saves its end, and Withdraw
// returns false. Otherwise save saves it, and the operation does not start meanwhile.
func (e *Pool) Withdraw(o *v1alpha1.Operation, why *End, save func() error) (ended bool, err error) {
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
func (e *Pool) Close(limit time.Duration) {
	e.cancel(ErrStopped)
	done := make(chan struct{})
	go func() { // ends with the operations
		e.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
		e.Log.Warn("operations did not reach a safe point in time; they continue after the next start")
	}
}
