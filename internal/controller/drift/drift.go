// Package drift finds differences between hosts and what was last applied to them. It plans and never applies.
package drift

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// A Config configures a Checker. All fields except Interval are required.
type Config struct {
	// Client reads from a cache, and writes to the API.
	Client client.Client
	// Live reads from the API.
	Live   client.Reader
	Opener service.Opener
	Events events.EventRecorder
	// Interval is the time between two checks of a cluster. It varies by a fifth. Default: 1 h.
	Interval time.Duration
	Now      func() time.Time
	Log      *slog.Logger
}

const (
	defaultInterval = time.Hour
	// workers is the number of checks at the same time. A check plans for all hosts of a cluster.
	workers = 4
	// checkTime limits a check.
	checkTime = 15 * time.Minute
)

// A Checker checks clusters from time to time.
type Checker struct {
	Config
	queue workqueue.TypedDelayingInterface[types.NamespacedName]

	mu      sync.Mutex
	known   map[types.NamespacedName]bool
	running map[types.NamespacedName]context.CancelFunc
}

// New returns a checker. It begins with Start.
func New(c Config) *Checker {
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	return &Checker{
		Config: c, queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		known: map[types.NamespacedName]bool{}, running: map[types.NamespacedName]context.CancelFunc{},
	}
}

// Reconcile begins to check a cluster, or ends it. It ends a check when an operation of the cluster begins. It
// connects to nothing.
func (k *Checker) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	c := new(v1alpha1.Cluster)
	err := k.Client.Get(ctx, key.NamespacedName, c)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil {
		k.Forget(key.NamespacedName)
		return reconcile.Result{}, nil
	}
	cancel := k.track(key.NamespacedName)
	if cancel == nil {
		return reconcile.Result{}, nil
	}
	all, err := operations.ListOf(ctx, k.Live, key.NamespacedName)
	if hasUnfinished(all) {
		cancel()
	}
	return reconcile.Result{}, err
}

// track schedules the first check of a new cluster. It returns the function that ends the check that runs, nil if none
// runs.
func (k *Checker) track(key types.NamespacedName) context.CancelFunc {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known[key] {
		k.known[key] = true
		k.queue.AddAfter(key, rand.N(k.Interval)) //nolint:gosec // it spreads load
	}
	return k.running[key]
}

// Forget ends the checks of a cluster.
func (k *Checker) Forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, key)
	if cancel := k.running[key]; cancel != nil {
		cancel()
	}
}

// isKnown reports whether a cluster is checked.
func (k *Checker) isKnown(key types.NamespacedName) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[key]
}

// hasUnfinished reports whether an operation is unfinished. One that waits for a maintenance window changes nothing.
func hasUnfinished(all []v1alpha1.Operation) bool {
	return slices.ContainsFunc(all, func(o v1alpha1.Operation) bool { return !operation.HasEnded(&o) && !operations.WaitsForWindow(&o) })
}

// Start works until ctx ends, and waits for the checks that run.
func (k *Checker) Start(ctx context.Context) error {
	var tasks sync.WaitGroup
	for range workers {
		tasks.Go(func() {
			for {
				key, over := k.queue.Get()
				if over {
					return
				}
				if ctx.Err() == nil {
					k.checkAndRepeat(ctx, key)
				}
				k.queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	tasks.Wait()
	return nil
}

// checkAndRepeat checks a cluster, and schedules the next check.
func (k *Checker) checkAndRepeat(ctx context.Context, key types.NamespacedName) {
	if !k.isKnown(key) {
		return
	}
	c := new(v1alpha1.Cluster)
	err := k.Client.Get(ctx, key, c)
	if apierrors.IsNotFound(err) {
		return // it begins again with a new object
	}
	if err == nil {
		err = k.check(ctx, c)
	}
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("a cluster was not checked for differences", "cluster", key, "error", err)
	}
	k.queue.AddAfter(key, k.Interval*4/5+rand.N(k.Interval*2/5)) //nolint:gosec // it spreads load
}

// check plans for what was last applied, and shows the differences. It checks nothing while an operation runs or is
// wanted.
func (k *Checker) check(ctx context.Context, c *v1alpha1.Cluster) error {
	key := client.ObjectKeyFromObject(c)
	if !savedstate.IsCreated(c) || c.DeletionTimestamp != nil || c.Spec.Paused || c.Status.AppliedIntent == "" {
		return nil
	}
	planning, cancel := context.WithCancel(ctx)
	defer cancel()
	k.mu.Lock()
	k.running[key] = cancel
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.running, key)
		k.mu.Unlock()
	}()
	before, err := operations.ListOf(ctx, k.Live, key)
	if err != nil || hasUnfinished(before) {
		return err
	}
	svc, err := k.Opener.Open(ctx, c)
	if err != nil {
		return k.show(ctx, c, failure(err))
	}
	defer svc.Close()
	if svc.Intent.Digest != c.Status.AppliedIntent {
		return nil // an operation follows
	}
	found, err := k.plan(planning, svc, c)
	if planning.Err() != nil { // an operation begins, or the cluster is forgotten
		return nil
	}
	if err != nil {
		return k.show(ctx, c, failure(err))
	}
	after, err := operations.ListOf(ctx, k.Live, key)
	if err != nil || !isSame(before, after) || planning.Err() != nil {
		return err // the plan may have been made during an operation
	}
	return k.react(ctx, c, svc, found, after)
}

// isSame reports whether two lists have the same operations.
func isSame(a, b []v1alpha1.Operation) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.Operation) bool { return a.UID == b.UID })
}

// plan returns the differences. It leaves nothing on hosts, as "slipway plan".
func (k *Checker) plan(ctx context.Context, svc *service.Opened, c *v1alpha1.Cluster) (_ *finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	p, err := svc.Prepare(ctx, lifecycle.ApplyRequest{Subject: lifecycle.Subject{Name: c.Name, Dir: svc.Object.FilesDir}}, nil)
	if err != nil {
		return nil, err
	}
	return differences(p.Plan()), p.Close()
}
