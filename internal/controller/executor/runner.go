// Package executor runs operations that are objects of an API, through package lifecycle.
package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/hostguard"
	"slipway.dev/slipway/internal/controller/intent"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/diag/errorcode"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/status"
)

// Reasons of operations that do not come from package lifecycle.
const (
	ReasonClusterGone  = "ClusterNotFound"
	ReasonOtherCluster = "OtherCluster"
	ReasonNewerIntent  = "NewerIntent"
	ReasonPlanChanged  = "PlanChanged"
	ReasonDeadline     = "DeadlineExceeded"
	ReasonApproval     = "ApprovalRequired"
	ReasonCancelled    = "Cancelled"
	ReasonStopped      = "ManagementPlaneStopped"
	ReasonNothingToDo  = "NothingToDo"
	ReasonDeletion     = "ClusterDeleted"
	ReasonOtherState   = "OtherClusterState"
	ReasonProtected    = "ClusterProtected"
	ReasonNotCreated   = "ClusterNotCreated"
	ReasonInterrupted  = "Interrupted"
)

// Causes of the end of a context.
var (
	// ErrStopped ends a run because the management plane stops. The operation continues after its start.
	ErrStopped = errors.New("the management plane stops")

	// ErrDeleted ends a run because the object of its operation was deleted. Nothing can be saved.
	ErrDeleted = errors.New("the object of the operation was deleted")

	errDeadline = errors.New("the deadline of the operation has passed")
)

// An End ends an operation with a state that package lifecycle does not give.
type End struct {
	State           v1alpha1.OperationState
	Reason, Message string
	Code            v1alpha1.ErrorCode
}

func (e *End) Error() string { return e.Message }

// SetStatus sets the state of an operation that has ended.
func (e *End) SetStatus(s *v1alpha1.OperationStatus, now time.Time) {
	at := metav1.NewTime(now)
	s.State, s.Reason, s.ErrorCode, s.EndTime, s.QueuePosition = e.State, e.Reason, e.Code, &at, 0
	s.Message = status.LimitMessage(e.Message, v1alpha1.MaxStatusMessage)
}

// Ends that do not depend on the operation.
var (
	Cancelled = &End{v1alpha1.OperationCancelled, ReasonCancelled, "a user has cancelled the operation", ""}

	DeadlineExceeded = &End{v1alpha1.OperationFailed, ReasonDeadline, "the operation was stopped at its deadline", v1alpha1.ErrorInternal}

	// Interrupted ends a part of another operation: its process ended before the part began.
	Interrupted = &End{
		v1alpha1.OperationCancelled, ReasonInterrupted, "the process that created the operation ended before it began", "",
	}

	Superseded = &End{v1alpha1.OperationSuperseded, ReasonNewerIntent, "the Cluster has changed before the operation began", ""}

	ClusterDeleted = &End{v1alpha1.OperationFailed, ReasonDeletion, "the Cluster is being deleted", v1alpha1.ErrorConflict}
)

// A Runner plans and applies operations.
type Runner struct {
	service.Opener
	// Writer writes the spec of operations.
	Writer client.Writer
	// Guard compares the hosts of Clusters before an operation begins. nil: the process that has started this one did.
	Guard *hostguard.Guard
	// OwnCA has the CA certificates of the cluster in which this process runs, in PEM form. Empty: it runs in none.
	OwnCA []byte
}

// Run continues an operation until it has ended, or waits for an approval. The status of the operation has the
// result. An error can end: the operation continues with the next call. The end of withdrawn ends the
// planning, its cause is an *End.
func (r *Runner) Run(ctx, withdrawn context.Context, key types.NamespacedName) error {
	backend, err := r.OpenRecords(key.Namespace)
	if err != nil {
		return err
	}
	o, err := LoadUnfinished(ctx, backend, key.Name)
	if o == nil {
		return err
	}
	// A request that waits for another operation has the deadline of that one.
	if at := o.Status.Deadline; at != nil && !operation.Kind(o.Spec.Kind).ContinuesAnother() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, at.Time, errDeadline)
		defer cancel()
	}
	planning, withdraw := context.WithCancelCause(ctx)
	defer withdraw(nil)
	defer context.AfterFunc(withdrawn, func() { withdraw(context.Cause(withdrawn)) })()
	n := &run{Runner: r, backend: backend, key: key, operation: o, seen: seenOf(o), ctx: ctx, planning: planning}
	return n.saveResult(n.runAttempt())
}

// LoadUnfinished returns an operation, nil if it has ended or does not exist.
func LoadUnfinished(ctx context.Context, backend records.Backend, name string) (*v1alpha1.Operation, error) {
	o, err := backend.Operations().Load(ctx, name)
	if errors.Is(err, records.ErrNotFound) || err == nil && operation.HasEnded(o) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// A run is one attempt of an operation.
type run struct {
	*Runner
	backend   records.Backend
	key       types.NamespacedName
	operation *v1alpha1.Operation
	ctx       context.Context //nolint:containedctx // of the attempt
	planning  context.Context //nolint:containedctx // until the plan is applied
	applies   bool            // the plan is applied
	seen      seen            // when the operation was loaded
	holds     bool            // this run has had the lock of the cluster
}

// loadCluster returns the Cluster object of the operation.
func (n *run) loadCluster() (*v1alpha1.Cluster, error) {
	object := new(v1alpha1.Cluster)
	o := n.operation
	err := n.Client.Get(n.planning, types.NamespacedName{Namespace: n.key.Namespace, Name: o.Spec.ClusterRef.Name}, object)
	switch failed := v1alpha1.OperationFailed; {
	case apierrors.IsNotFound(err):
		return nil, &End{failed, ReasonClusterGone, "the Cluster does not exist", v1alpha1.ErrorConflict}
	case err != nil:
		return nil, fmt.Errorf("reading Cluster %s/%s: %w", n.key.Namespace, o.Spec.ClusterRef.Name, err)
	case !operation.ClusterIDOf(object).Has(o):
		return nil, &End{failed, ReasonOtherCluster, "the Cluster was deleted, and another one has its name", v1alpha1.ErrorConflict}
	case object.DeletionTimestamp != nil && o.Status.StartTime == nil && !operation.Kind(o.Spec.Kind).RemovesCluster():
		return nil, ClusterDeleted
	}
	if o.Status.StartTime == nil {
		err = n.refuseCluster(object)
	}
	return object, err
}

// refuseCluster ends an operation that has not begun, and that the Cluster does not allow: it is protected against its
// removal, it has the controllers, or a host belongs to another Cluster. A removal uses only hosts that the cluster has.
func (n *run) refuseCluster(object *v1alpha1.Cluster) error {
	kind := operation.Kind(n.operation.Spec.Kind)
	if end := endInOwnCluster(kind); end != nil {
		isOwn, err := HasControllers(n.planning, n.backend, object.Name, n.OwnCA)
		if err != nil || isOwn {
			return cmp.Or(err, error(end))
		}
	}
	if kind.RemovesCluster() {
		if object.DeletionTimestamp == nil && object.IsProtected() {
			return &End{
				v1alpha1.OperationFailed, ReasonProtected,
				"the Cluster is protected against deletion; to allow it, remove the annotation " + v1alpha1.AnnotationProtection,
				v1alpha1.ErrorUserInput,
			}
		}
		return nil
	}
	if n.Guard == nil {
		return nil
	}
	return CheckHosts(n.planning, n.Guard, n.operation, object)
}

// CheckHosts ends an operation that has not begun if a host of its Cluster belongs to another one. It waits until that
// is known.
func CheckHosts(ctx context.Context, guard *hostguard.Guard, o *v1alpha1.Operation, object *v1alpha1.Cluster) error {
	for {
		found, wait, err := guard.Check(ctx, object)
		switch {
		case err != nil:
			return err
		case len(found) > 0 && o.Spec.IntentDigest != "": // the controller of clusters shows the hosts
			return &End{v1alpha1.OperationSuperseded, found[0].ID, found.Error(), ""}
		case len(found) > 0:
			return endOf(found)
		case wait == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// loadIntent returns the intent of the cluster. An operation that has begun continues its own plan, and others use the
// saved cluster. They need nothing but the files, so the Cluster can have errors.
func (n *run) loadIntent(object *v1alpha1.Cluster) (*intent.Intent, error) {
	o := n.operation
	wants, err := intent.Load(n.planning, n.Client, n.backend.ClusterFiles(), object, n.Lifecycle.Catalogue.DefaultVersion())
	var refused diag.List
	switch {
	case !errors.As(err, &refused):
		return wants, err
	case o.Status.StartTime != nil || operation.Kind(o.Spec.Kind).UsesSavedCluster():
		return intent.LoadFiles(n.planning, n.Client, n.backend.ClusterFiles(), object)
	case o.Spec.IntentDigest != "": // the controller of clusters shows the errors
		return nil, &End{
			v1alpha1.OperationSuperseded, ReasonNewerIntent, "the Cluster or its files have errors now: " + refused.Errors().Error(), "",
		}
	}
	return nil, err
}

func (n *run) runAttempt() error {
	if err := n.checkHolder(); err != nil {
		return err
	}
	if err := n.adoptStart(); err != nil {
		return err
	}
	object, err := n.loadCluster()
	if err != nil {
		return err
	}
	if operation.Kind(n.operation.Spec.Kind).ContinuesAnother() {
		return n.continueAnother(object)
	}
	wants, err := n.loadIntent(object)
	if err != nil {
		return err
	}
	opener := n.Opener
	opener.OpenRecords = n.openRecords
	svc, err := opener.OpenIntent(n.planning, object, wants)
	if err != nil {
		return err
	}
	defer svc.Close()
	return n.planAndApply(svc.Service, object, wants)
}

// adoptStart is AdoptStart for this run. A part of another operation ends if it has not begun.
func (n *run) adoptStart() error {
	ctx, cancel := n.newSavingContext()
	defer cancel()
	if err := AdoptStart(ctx, n.backend, n.operation, n.Lifecycle.Now()); err != nil {
		return err
	}
	n.seen = seenOf(n.operation)
	if operation.IsInternal(n.operation) && n.operation.Status.StartTime == nil {
		return Interrupted
	}
	return nil
}

// findWanted returns the cluster that the operation wants. An operation that has not begun ends if its intent is not the
// latest one, or if the cluster needs another operation now.
func (n *run) findWanted(svc *lifecycle.Service, wants *intent.Intent) (*v1alpha1.Cluster, error) {
	o := n.operation
	if o.Status.StartTime != nil || o.Spec.IntentDigest == "" {
		return wants.Cluster, nil
	}
	if o.Spec.IntentDigest != wants.Digest {
		return nil, Superseded
	}
	next, err := svc.NextOperation(n.planning, wants.Cluster)
	if err != nil {
		return nil, err
	}
	if string(next.Kind) != o.Spec.Kind || next.Version != o.Spec.Parameters.Version {
		return nil, &End{v1alpha1.OperationSuperseded, ReasonOtherState, "the cluster needs operation " + string(next.Kind) + " now", ""}
	}
	return next.Cluster, nil
}

// planAndApply plans the operation, and applies it unless it needs an approval.
func (n *run) planAndApply(svc *lifecycle.Service, object *v1alpha1.Cluster, wants *intent.Intent) error {
	o := n.operation
	if err := n.withdrawRepair(object, wants); err != nil {
		return err
	}
	wanted, err := n.findWanted(svc, wants)
	if err != nil {
		return err
	}
	if o.Status.StartTime == nil && o.Status.State != v1alpha1.OperationPlanning {
		o.Status.State, o.Status.Reason, o.Status.Message, o.Status.ErrorCode = v1alpha1.OperationPlanning, "", "", ""
		if err := n.update(n.planning, func(now *v1alpha1.Operation) bool {
			now.Status.State, now.Status.Reason, now.Status.Message, now.Status.ErrorCode = o.Status.State, "", "", ""
			return true
		}); err != nil {
			return err
		}
	}
	p, err := svc.PrepareOperation(n.planning, o, wanted, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err := p.Close(); err != nil {
			n.Log.Warn("closing the connections of an operation", "operation", n.key, "error", err)
		}
	}()
	if err := n.refuseRepair(n.planning, svc, p); err != nil {
		return err
	}
	if why := n.needsApproval(p, object); why != "" {
		o.Status.State, o.Status.Reason, o.Status.Message = v1alpha1.OperationAwaitingApproval, ReasonApproval, why
		if err := n.checkUnchanged(n.planning); err != nil {
			return err
		}
		err := n.backend.Operations().SavePlan(n.planning, o, p.Plan())
		return errors.Join(err, context.Cause(n.planning))
	}
	if err := context.Cause(n.planning); err != nil {
		return err
	}
	if now, err := LoadUnfinished(n.planning, n.backend, n.key.Name); now == nil {
		return err // it was withdrawn while no controller observed this process
	}
	n.applies = true
	shown := n.newProgress()
	defer shown.stopWrites()
	res, err := p.Apply(n.ctx, shown)
	why := context.Cause(n.ctx)
	switch {
	case err != nil:
		return err
	case res.Operation == "":
		return &End{v1alpha1.OperationSucceeded, ReasonNothingToDo, "the hosts are in the wanted state", ""}
	case res.Outcome == event.Cancelled, errors.Is(why, errDeadline) && res.Outcome == event.Failed:
		return why // nil if a user has cancelled it
	}
	return nil
}

// saveResult saves the result of a run that package lifecycle has not saved.
func (n *run) saveResult(err error) error {
	var (
		ends  *End
		list  diag.List
		stale *lifecycle.StaleError
	)
	why := context.Cause(n.ctx)
	switch {
	case err == nil:
		return nil
	case isHeld(err), errors.Is(err, records.ErrLost):
		return err // another process saves the result
	case errors.Is(why, ErrDeleted):
		return nil // nothing can be saved
	case errors.Is(why, errDeadline):
		ends = DeadlineExceeded
	case errors.Is(why, ErrStopped):
		return n.markSuspended()
	case errors.As(err, &ends), !n.applies && errors.As(context.Cause(n.planning), &ends):
	case errors.As(err, new(*savedstate.CancelledError)):
		ends = Cancelled // before the attempt has changed anything
	case errors.As(err, &list):
		ends = endOf(list)
	case errors.Is(err, savedstate.ErrNotFound):
		ends = &End{v1alpha1.OperationFailed, ReasonNotCreated, err.Error() + ": it is not created yet", v1alpha1.ErrorUserInput}
	case errors.As(err, &stale) && n.operation.Spec.ApprovedPlan != "":
		ends = &End{v1alpha1.OperationFailed, ReasonPlanChanged, describeDifference(stale), v1alpha1.ErrorConflict}
	default:
		return err
	}
	return n.saveEnd(ends)
}

// endOf returns the end of an operation that package lifecycle has refused.
func endOf(list diag.List) *End {
	refused := list.Errors()
	first := refused[0]
	return &End{v1alpha1.OperationFailed, first.ID, refused.Error(), errorcode.Of(first.ID, nil)}
}

// maxDifference limits the lines of a difference in a message.
const maxDifference = 20

// describeDifference describes the changes since a plan was approved.
func describeDifference(stale *lifecycle.StaleError) string {
	lines := strings.Split(strings.TrimSpace(stale.Difference), "\n")
	if len(lines) > maxDifference {
		lines = append(lines[:maxDifference], "…")
	}
	return strings.TrimSpace(stale.Error() + "\n" + strings.Join(lines, "\n"))
}

// saveEnd saves the end of an operation. If it has run, its latest status is kept, and so is a success.
func (n *run) saveEnd(ends *End) error {
	ctx, cancel := n.newSavingContext()
	defer cancel()
	if !n.holds {
		if err := CheckFree(ctx, n.backend, n.operation.Spec.ClusterRef.Name); err != nil {
			return err
		}
	}
	return n.update(ctx, func(now *v1alpha1.Operation) bool { return setEnd(now, ends, n.Lifecycle.Now()) })
}

// setEnd sets the end of an operation, and reports whether it had not succeeded before.
func setEnd(o *v1alpha1.Operation, ends *End, now time.Time) bool {
	if o.Status.State == v1alpha1.OperationSucceeded {
		return false
	}
	ends.SetStatus(&o.Status, now)
	return true
}

// SaveEnd saves the end of an operation that no process runs, unless it has succeeded or does not exist.
func SaveEnd(ctx context.Context, operations records.Operations, name string, ends *End, now time.Time) error {
	return updateStatus(ctx, operations, name, func(o *v1alpha1.Operation) (bool, error) { return setEnd(o, ends, now), nil })
}

// saveTime limits the time to save the end of an operation.
const saveTime = 30 * time.Second

// newSavingContext returns a context to save with, also after the end of the attempt.
func (n *run) newSavingContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(n.ctx), saveTime)
}
