// Package clusters has the controller of Clusters: it requests operations until each cluster matches its
// object. It connects to no host.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/hostguard"
	"slipway.dev/slipway/internal/controller/intent"
	"slipway.dev/slipway/internal/controller/operations"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
)

// Finalizer keeps a Cluster until its deletion policy was carried out.
const Finalizer = v1alpha1.Group + "/cluster"

// A Reconciler makes operations for Clusters.
type Reconciler struct {
	// Client reads from the cache, and Live from the API.
	Client client.Client
	Live   client.Reader
	// OpenRecords returns the records of a namespace.
	OpenRecords func(namespace string) (records.Backend, error)
	// Lifecycle has the configuration for reading the records.
	Lifecycle lifecycle.Config
	// Executor runs the operations.
	Executor *executor.Pool
	// Guard compares the hosts of Clusters.
	Guard *hostguard.Guard
	// OwnCA has the CA certificates of the cluster in which the controllers run, in PEM form. Empty: they run in none.
	OwnCA []byte
}

// recordsInterval is the time after which a pass tries again to use the records.
const recordsInterval = time.Minute

// A pass is one reconciliation of a Cluster.
type pass struct {
	*Reconciler
	cluster *v1alpha1.Cluster
	records records.Backend
	// operations are the operations of the cluster, oldest first.
	operations []v1alpha1.Operation
	state      state
	again      time.Duration // until the next pass, if it is not 0
}

// Reconcile requests the next operation of a cluster, and shows its state.
func (r *Reconciler) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	c := new(v1alpha1.Cluster)
	if err := r.Client.Get(ctx, key.NamespacedName, c); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p := &pass{Reconciler: r, cluster: c}
	var err error
	if p.records, err = r.OpenRecords(c.Namespace); err != nil {
		return reconcile.Result{}, err
	}
	all, err := operations.ListOf(ctx, r.Client, key.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	id := operation.ClusterIDOf(c)
	p.operations = slices.DeleteFunc(all, func(o v1alpha1.Operation) bool { return !id.Has(&o) })
	p.state.beginPass(c)
	if c.DeletionTimestamp != nil {
		err = p.reconcileDeletion(ctx)
	} else {
		err = p.reconcileIntent(ctx)
	}
	if refused := diag.List(nil); errors.As(err, &refused) { // a user has to repair it
		p.state.showRecords(refused)
		p.requeueAfter(recordsInterval)
		err = nil
	}
	if err := errors.Join(err, p.saveState(ctx)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.again}, nil
}

// reconcileIntent requests the next operation that brings the cluster closer to its object.
func (p *pass) reconcileIntent(ctx context.Context) error {
	wants, err := intent.Load(ctx, p.Live, p.records.ClusterFiles(), p.cluster, p.Lifecycle.Catalogue.DefaultVersion())
	var refused diag.List
	isInvalid := errors.As(err, &refused)
	if !isInvalid || p.hasBegun() {
		if err := p.addFinalizer(ctx); err != nil {
			return err
		}
	}
	if isInvalid {
		p.state.showProblems(reasonInvalid, refused)
		return p.withdrawAll(ctx) // a change of the object or of its files is seen
	}
	if err != nil {
		return err
	}
	if isSecond, err := p.refuseSharedHosts(ctx); isSecond || err != nil {
		return err
	}
	p.state.showValid()
	if p.cluster.Spec.Paused {
		p.state.showPaused()
		return p.withdrawAll(ctx)
	}
	if err := p.withdrawPending(ctx, wants.Digest); err != nil {
		return err
	}
	if err := p.repeatLatest(ctx, wants.Digest); err != nil {
		return err
	}
	return p.reconcileLatest(ctx, wants)
}

// hasBegun reports whether there can be something that the deletion policy is about.
func (p *pass) hasBegun() bool {
	return len(p.operations) > 0 || p.cluster.Status.AppliedIntent != "" || savedstate.IsCreated(p.cluster)
}

// addFinalizer keeps the object until its deletion policy was carried out.
func (p *pass) addFinalizer(ctx context.Context) error {
	was := p.cluster.DeepCopy()
	if !controllerutil.AddFinalizer(p.cluster, Finalizer) {
		return nil
	}
	// An update would add the empty fields of the Go types to the spec of the user.
	return p.Client.Patch(ctx, p.cluster, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
}

// reconcileLatest shows the latest operation for an intent, or requests the next one.
func (p *pass) reconcileLatest(ctx context.Context, wants *intent.Intent) error {
	latest := p.latestIntent()
	switch {
	case latest == nil && p.cluster.Status.AppliedIntent == wants.Digest:
		p.state.showApplied(wants.Digest) // its operation was archived
		return nil
	case latest == nil || latest.Spec.IntentDigest != wants.Digest:
		return p.requestOperation(ctx, wants)
	case !operation.HasEnded(latest):
		p.state.showUnfinished(latest)
		return nil
	case latest.Status.State == v1alpha1.OperationSucceeded:
		return p.reconcileSuccess(ctx, wants)
	case isStale(latest), p.isAppliedSince(latest):
		return p.requestOperation(ctx, wants)
	}
	p.state.showFailed(latest, p.describeNextAttempt(latest))
	return nil
}

// refuseSharedHosts shows hosts that belong to another Cluster. It reports whether no operation may begin: because
// of such a host, or because it is not known yet.
func (p *pass) refuseSharedHosts(ctx context.Context) (bool, error) {
	found, wait, err := p.Guard.Check(ctx, p.cluster)
	switch {
	case err != nil:
		return true, err
	case wait > 0:
		p.requeueAfter(wait)
		return true, nil
	case len(found) == 0:
		return false, nil
	}
	p.state.showProblems(reasonHostInUse, found)
	return true, p.withdrawAll(ctx) // a change of the other object is seen
}

// isStale reports whether an operation has failed because the hosts have changed since a user approved its plan. The
// next one has a new plan, which needs an approval again.
func isStale(o *v1alpha1.Operation) bool {
	return o.Status.State == v1alpha1.OperationFailed && o.Status.Reason == executor.ReasonPlanChanged && o.Status.StartTime == nil
}

// isAppliedSince reports whether an operation that a user has requested or repeated has applied the Cluster after a failure.
func (p *pass) isAppliedSince(failed *v1alpha1.Operation) bool {
	return slices.ContainsFunc(p.operations, func(o v1alpha1.Operation) bool {
		kind := operation.Kind(o.Spec.Kind)
		isLater := failed.Status.EndTime != nil && o.Status.EndTime != nil && !o.Status.EndTime.Before(failed.Status.EndTime)
		return isLater && o.Status.State == v1alpha1.OperationSucceeded && !isAutomatic(&o) &&
			(kind.CreatesCluster() || kind.ChangesCluster()) && !kind.RollsBack()
	})
}

// isAutomatic reports whether an operation does not show what a user wants. It was due, it repairs hosts, or it is a part of
// another operation, such as the rollback of settings that do not work.
func isAutomatic(o *v1alpha1.Operation) bool {
	return operation.IsInternal(o) || executor.IsAutomatic(o)
}

// reconcileSuccess finishes an intent, unless the cluster is on the way to its version.
func (p *pass) reconcileSuccess(ctx context.Context, wants *intent.Intent) error {
	has, err := p.service().HasVersion(ctx, wants.Cluster)
	if err != nil {
		return err
	}
	if has {
		p.state.showApplied(wants.Digest)
		return nil
	}
	return p.requestOperation(ctx, wants)
}

// service returns a service that reads the records. It has no files of the cluster.
func (p *pass) service() *lifecycle.Service {
	return service.WithoutFiles(p.Lifecycle, p.records, p.cluster)
}

// latestIntent returns the latest operation for an intent, nil if there is none. One that was withdrawn before it
// began does not count.
func (p *pass) latestIntent() *v1alpha1.Operation {
	for i := range slices.Backward(p.operations) {
		if o := &p.operations[i]; o.Spec.IntentDigest != "" && o.Status.State != v1alpha1.OperationSuperseded {
			return o
		}
	}
	return nil
}

// requestOperation creates the next operation for an intent. Two passes at the same time create the same object.
func (p *pass) requestOperation(ctx context.Context, wants *intent.Intent) error {
	next, err := p.service().NextOperation(ctx, wants.Cluster)
	if err != nil {
		return err
	}
	o := p.newOperation(next.Kind, wants.Digest)
	o.Spec.IntentDigest, o.Spec.Parameters.Version = wants.Digest, next.Version
	if err := p.createOperation(ctx, o); err != nil {
		return err
	}
	switch {
	case !operation.HasEnded(o):
		p.state.showUnfinished(o)
	case o.Status.State == v1alpha1.OperationFailed, o.Status.State == v1alpha1.OperationCancelled:
		p.state.showFailed(o, p.describeNextAttempt(o))
	default:
		p.requeueAfter(withdrawInterval) // the cache does not have its end yet
	}
	return nil
}

// newOperation returns an operation that follows the others of the cluster.
func (p *pass) newOperation(kind operation.Kind, wanted string) *v1alpha1.Operation {
	return operations.NewRequest(p.cluster, kind, wanted, p.operations, p.Lifecycle.Now())
}

// createOperation creates an operation. It exists already if an earlier pass was interrupted, or the cache is old.
func (p *pass) createOperation(ctx context.Context, o *v1alpha1.Operation) error {
	wanted := o.Spec
	err := p.Client.Create(ctx, o)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	if o.Spec.Kind != wanted.Kind || o.Spec.IntentDigest != wanted.IntentDigest {
		return fmt.Errorf("operation %s exists with another request; delete it", o.Name)
	}
	return nil
}

// withdrawInterval is the time after which a pass checks again if a planning or a run has ended.
const withdrawInterval = 2 * time.Second

// withdrawPending withdraws operations for other intents that have not begun.
func (p *pass) withdrawPending(ctx context.Context, digest string) error {
	for i := range p.operations {
		o := &p.operations[i]
		if o.Spec.IntentDigest == "" || o.Spec.IntentDigest == digest || operation.HasEnded(o) || o.Status.StartTime != nil ||
			operation.IsBeginning(o) { // its next attempt finds out whether it has begun
			continue
		}
		if err := p.withdraw(ctx, o, executor.Superseded); err != nil {
			return err
		}
	}
	return nil
}

// withdraw ends an operation that has not begun.
func (p *pass) withdraw(ctx context.Context, o *v1alpha1.Operation, why *executor.End) error {
	ended, err := p.Executor.Withdraw(o, why, func() error {
		return p.updateOperation(ctx, o, func(s *v1alpha1.OperationStatus) { why.SetStatus(s, p.Lifecycle.Now()) })
	})
	if err == nil && !ended {
		p.requeueAfter(withdrawInterval)
	}
	return err
}

// withdrawAll withdraws all operations for intents that have not begun, and ends automatic attempts.
func (p *pass) withdrawAll(ctx context.Context) error {
	return errors.Join(p.withdrawPending(ctx, ""), p.endAttempts(ctx, nil))
}
