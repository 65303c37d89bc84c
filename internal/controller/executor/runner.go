// Package executor runs operations that are objects of an API, through package lifecycle.
package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/intent"
	"slipway.dev/slipway/internal/controller/service"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/diag/errorcode"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
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
)

// Causes of the end of a context.
var (
	// ErrStopped ends a run because the management plane stops. The operation continues after its start.
	ErrStopped = errors.New("the management plane stops")
	// ErrCancelled ends the planning of an operation that a user has cancelled.
	ErrCancelled = errors.New("a user has cancelled the operation")

	errDeadline = errors.New("the deadline of the operation has passed")
)

// A Runner plans and applies operations.
type Runner struct{ service.Opener }

// Run continues an operation until it has ended, or waits for an approval. The status of the operation has the
// result. An error can end: the operation continues with the next call.
func (r *Runner) Run(ctx context.Context, key types.NamespacedName) error {
	backend, err := r.OpenRecords(key.Namespace)
	if err != nil {
		return err
	}
	o, err := backend.Operations().Load(ctx, key.Name)
	if errors.Is(err, records.ErrNotFound) || err == nil && operation.HasEnded(o) {
		return nil
	}
	if err != nil {
		return err
	}
	if at := o.Status.Deadline; at != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, at.Time, errDeadline)
		defer cancel()
	}
	n := &run{Runner: r, backend: backend, key: key, operation: o, ctx: context.WithoutCancel(ctx)}
	return n.end(ctx, n.run(ctx))
}

// A run is one attempt of an operation.
type run struct {
	*Runner
	backend   records.Backend
	key       types.NamespacedName
	operation *v1alpha1.Operation
	ctx       context.Context // of the attempt, for the writes of its progress
}

// An endError ends an operation with a state that package lifecycle does not give.
type endError struct {
	state           v1alpha1.OperationState
	reason, message string
	code            v1alpha1.ErrorCode
}

func (e *endError) Error() string { return e.message }

func (n *run) run(ctx context.Context) error {
	object := new(v1alpha1.Cluster)
	err := n.Client.Get(ctx, types.NamespacedName{Namespace: n.key.Namespace, Name: n.operation.Spec.ClusterRef.Name}, object)
	switch uid := n.operation.Spec.ClusterRef.UID; {
	case apierrors.IsNotFound(err):
		return &endError{v1alpha1.OperationFailed, ReasonClusterGone, "the Cluster does not exist", v1alpha1.ErrorConflict}
	case err != nil:
		return fmt.Errorf("reading Cluster %s/%s: %w", n.key.Namespace, n.operation.Spec.ClusterRef.Name, err)
	case uid != "" && uid != object.UID:
		return &endError{
			v1alpha1.OperationFailed, ReasonOtherCluster, "the Cluster was deleted, and another one has its name", v1alpha1.ErrorConflict,
		}
	}
	svc, err := n.Open(ctx, object)
	if err != nil {
		return err
	}
	defer svc.Close()
	return n.planAndApply(ctx, svc.Service, object, svc.Intent)
}

// planAndApply plans the operation, and applies it unless it needs an approval.
func (n *run) planAndApply(ctx context.Context, svc *lifecycle.Service, object *v1alpha1.Cluster, wants *intent.Intent) error {
	o := n.operation
	wanted := wants.Cluster
	if err := n.withdrawRepair(object, wants); err != nil {
		return err
	}
	if o.Status.StartTime == nil && o.Spec.IntentDigest != "" {
		if o.Spec.IntentDigest != wants.Digest {
			return &endError{v1alpha1.OperationSuperseded, ReasonNewerIntent, "the Cluster has changed since the operation was requested", ""}
		}
		next, err := svc.NextOperation(ctx, wanted)
		if err != nil {
			return err
		}
		wanted = next.Cluster
	}
	if o.Status.StartTime == nil && o.Status.State != v1alpha1.OperationPlanning {
		o.Status.State, o.Status.Reason, o.Status.Message, o.Status.ErrorCode = v1alpha1.OperationPlanning, "", "", ""
		if err := n.backend.Operations().Save(ctx, o); err != nil {
			return err
		}
	}
	p, err := svc.PrepareOperation(ctx, o, wanted, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err := p.Close(); err != nil {
			n.Log.Warn("closing the connections of an operation", "operation", n.key, "error", err)
		}
	}()
	if err := n.refuseRepair(ctx, svc, p); err != nil {
		return err
	}
	if why := n.needsApproval(p, object); why != "" {
		o.Status.State, o.Status.Reason, o.Status.Message = v1alpha1.OperationAwaitingApproval, ReasonApproval, why
		return n.backend.Operations().SavePlan(ctx, o, p.Plan())
	}
	shown := n.newProgress()
	defer shown.stop()
	res, err := p.Apply(ctx, shown)
	switch {
	case err != nil:
		return err
	case res.Operation == "":
		return &endError{v1alpha1.OperationSucceeded, ReasonNothingToDo, "the hosts are in the wanted state", ""}
	case res.Cancelled != nil && res.Outcome == event.Cancelled:
		return res.Cancelled
	}
	return nil
}

// end saves the result of a run that package lifecycle has not saved.
func (n *run) end(ctx context.Context, err error) error {
	var (
		ends  *endError
		list  diag.List
		stale *lifecycle.StaleError
	)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errDeadline):
		ends = &endError{
			v1alpha1.OperationFailed, ReasonDeadline, "the operation was stopped at its deadline", v1alpha1.ErrorInternal,
		}
	case errors.Is(context.Cause(ctx), ErrStopped):
		return n.suspend(ctx)
	case errors.Is(context.Cause(ctx), ErrCancelled):
		ends = &endError{v1alpha1.OperationCancelled, ReasonCancelled, ErrCancelled.Error(), ""}
	case errors.As(err, &ends):
	case errors.As(err, &list):
		ends = endOf(list)
	case errors.As(err, &stale) && n.operation.Spec.ApprovedPlan != "":
		ends = &endError{v1alpha1.OperationFailed, ReasonPlanChanged, describeDifference(stale), v1alpha1.ErrorConflict}
	default:
		return err
	}
	return n.saveEnd(ctx, ends)
}

// endOf returns the end of an operation that package lifecycle has refused.
func endOf(list diag.List) *endError {
	refused := list.Errors()
	first := refused[0]
	return &endError{v1alpha1.OperationFailed, first.ID, refused.Error(), errorcode.Of(first.ID, nil)}
}

// maxDifference limits the lines of a difference in a message.
const maxDifference = 20

// describeDifference returns what has changed since a plan was approved.
func describeDifference(stale *lifecycle.StaleError) string {
	lines := strings.Split(strings.TrimSpace(stale.Difference), "\n")
	if len(lines) > maxDifference {
		lines = append(lines[:maxDifference], "…")
	}
	return stale.Error() + "\n" + strings.Join(lines, "\n")
}

// saveEnd saves the end of an operation. If it has run, its latest status stays.
func (n *run) saveEnd(ctx context.Context, ends *endError) error {
	ctx, cancel := saving(ctx)
	defer cancel()
	o, err := n.backend.Operations().Load(ctx, n.key.Name)
	if err != nil {
		return err
	}
	now := metav1.NewTime(n.Lifecycle.Now())
	o.Status.State, o.Status.Reason, o.Status.ErrorCode, o.Status.EndTime = ends.state, ends.reason, ends.code, &now
	o.Status.Message = status.LimitMessage(ends.message, v1alpha1.MaxStatusMessage)
	return n.backend.Operations().Save(ctx, o)
}

// suspend marks an operation that continues after the next start of the management plane.
func (n *run) suspend(ctx context.Context) error {
	ctx, cancel := saving(ctx)
	defer cancel()
	o, err := n.backend.Operations().Load(ctx, n.key.Name)
	if err != nil || o.Status.StartTime == nil {
		return err // it is planned again
	}
	o.Status.State, o.Status.EndTime, o.Status.ErrorCode = v1alpha1.OperationRunning, nil, ""
	o.Status.Reason, o.Status.Message = ReasonStopped, "the management plane has stopped: the operation continues after its start"
	return n.backend.Operations().Save(ctx, o)
}

// saveTime limits the time to save the end of an operation.
const saveTime = 30 * time.Second

// saving returns a context to save with, also after the end of ctx.
func saving(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), saveTime)
}
