package schedule

import (
	"context"
	"hash/fnv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// A Reconciler requests operations that are due. All fields except Jitter and Period are required.
type Reconciler struct {
	// Client reads from the cache, and writes to the API. Live reads from the API.
	Client client.Client
	Live   client.Reader
	// Observe returns what the hosts of a cluster have shown since the start of the process. ok is false if they have
	// shown nothing yet: an older status may lack what the hosts have done meanwhile.
	Observe func(cluster types.NamespacedName) (seen health.Observation, ok bool)
	// Jitter spreads the operations that became due while the process did not run. Default: 10 min.
	Jitter time.Duration
	// Period is the longest time between two checks of a cluster. Default: 1 min.
	Period  time.Duration
	Started time.Time
	Now     func() time.Time
}

// The defaults.
const (
	defaultJitter = 10 * time.Minute
	defaultPeriod = time.Minute
)

// SetDefaults sets zero fields.
func (r *Reconciler) SetDefaults() {
	if r.Jitter == 0 {
		r.Jitter = defaultJitter
	}
	if r.Period == 0 {
		r.Period = defaultPeriod
	}
}

// Reconcile requests the operations of a cluster that are due.
func (r *Reconciler) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	c := new(v1alpha1.Cluster)
	if err := r.Client.Get(ctx, key.NamespacedName, c); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	again := reconcile.Result{RequeueAfter: r.Period}
	if !savedstate.IsCreated(c) || c.DeletionTimestamp != nil || c.Spec.Paused {
		return reconcile.Result{}, nil // a change of the object is seen
	}
	seen, ok := r.Observe(key.NamespacedName)
	if !ok {
		return again, nil
	}
	now := r.Now()
	for _, t := range listTasks(seen, begunAt(c, &seen), now) {
		due, next, ok := t.slot(now)
		switch wait := r.remainingJitter(c, t, now); {
		case !ok:
			again.RequeueAfter = min(again.RequeueAfter, next)
		case wait > 0:
			again.RequeueAfter = min(again.RequeueAfter, wait)
		default:
			again.RequeueAfter = min(again.RequeueAfter, next)
			if err := r.request(ctx, c, t, due); err != nil {
				return reconcile.Result{}, err
			}
		}
	}
	return again, nil
}

// begunAt returns the time from which the first interval counts: the creation of the cluster or, as long as there was no
// backup, the latest change of the cluster, which can have begun the backups.
func begunAt(c *v1alpha1.Cluster, seen *health.Observation) time.Time {
	at := c.CreationTimestamp.Time
	if is := meta.FindStatusCondition(c.Status.Conditions, savedstate.ConditionCreated); is != nil {
		at = is.LastTransitionTime.Time
	}
	if is := meta.FindStatusCondition(c.Status.Conditions, "Reconciled"); is != nil && seen.LastBackup.IsZero() {
		at = is.LastTransitionTime.Time
	}
	return at
}

// remainingJitter returns the time until a task can begin after the start of the process. It depends on the cluster and
// the kind.
func (r *Reconciler) remainingJitter(c *v1alpha1.Cluster, t task, now time.Time) time.Duration {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(string(c.UID) + "\x00" + string(t.kind))) // it does not fail
	window := min(r.Jitter, t.every)
	wait := r.Started.Add(time.Duration(sum.Sum64() % uint64(max(window, 1)))).Sub(now)
	if wait > window {
		return 0 // the clock was set back
	}
	return wait
}

// request creates the operation for a due time, unless there is one. Two processes create the same object.
func (r *Reconciler) request(ctx context.Context, c *v1alpha1.Cluster, t task, due time.Time) error {
	now := r.Now()
	all, err := operations.ListOf(ctx, r.Client, client.ObjectKeyFromObject(c))
	if err != nil || t.isRequested(due, now, all) {
		return err
	}
	// The cache can be older than the latest operation.
	if all, err = operations.ListOf(ctx, r.Live, client.ObjectKeyFromObject(c)); err != nil || t.isRequested(due, now, all) {
		return err
	}
	err = r.Client.Create(ctx, operations.NewScheduled(c, t.kind, due, all, now))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
