// Package savedstate has the saved clusters and operations, in the form in which users see them.
// It stops running operations.
package savedstate

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/status"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idAmbiguous      = "ambiguous-operation"
	idNothingRunning = "nothing-running"

	idCancelUnreadable = "cancel-unreadable"
)

// A View shows the saved clusters and operations.
type View struct {
	Records records.Backend
	// Warn, if not nil, is called with saved items that are skipped because they are
	// damaged.
	Warn func(diag.List)
	// Object is the Cluster object of the only cluster, whose name others may have had. Zero: all clusters of files.
	Object operation.ClusterID
}

// A ClusterSummary is a line of `get clusters`.
type ClusterSummary struct {
	Name       string         `json:"name"`
	Phase      v1alpha1.Phase `json:"phase"`
	Kubernetes string         `json:"kubernetes"`
	Hosts      int            `json:"hosts"`
	// Ready is the number of ready nodes after the latest operation.
	Ready int `json:"ready"`
	// Endpoint is the address and port of the API from outside.
	Endpoint  string              `json:"endpoint"`
	Operation *v1alpha1.Operation `json:"operation,omitempty"` // the latest
	Created   time.Time           `json:"created"`
	// Problem is the reason why only the name is known, nil if there is none.
	Problem *diag.Diagnostic `json:"problem,omitempty"`
}

// ErrNotFound is returned for a cluster or operation that is not in the saved state.
var ErrNotFound = errors.New("not found")

// ConvertNotFound converts the store's errors for a missing or an ambiguous item into ErrNotFound
// or a diag.List.
func ConvertNotFound[T any](v T, err error) (T, error) {
	var several *records.AmbiguousError
	if errors.As(err, &several) {
		return v, diag.Refuse(idAmbiguous, several.Error(), "give more characters of the id; to list all ids: slipway operations list")
	}
	if errors.Is(err, records.ErrNotFound) {
		return v, &absent{err}
	}
	return v, err
}

// absent is ErrNotFound with the store's message.
type absent struct{ error }

func (a *absent) Unwrap() []error { return []error{ErrNotFound, a.error} }

// Clusters returns the saved clusters by name. A cluster with damaged state still exists
// and is listed too, so that a command without a cluster name does not choose another
// one instead.
func (r *View) Clusters(ctx context.Context) ([]ClusterSummary, error) {
	names, err := r.Records.Clusters().List(ctx)
	if err != nil {
		return nil, err
	}
	out := []ClusterSummary{}
	for _, name := range names {
		sum, err := r.summarizeCluster(ctx, name)
		var damaged diag.List
		switch {
		case errors.Is(err, records.ErrNotFound):
			continue // it was deleted in the meantime
		case errors.As(err, &damaged):
			sum = ClusterSummary{Name: name, Problem: &damaged[0]}
		case err != nil:
			return nil, err
		}
		out = append(out, sum)
	}
	return out, nil
}

func (r *View) summarizeCluster(ctx context.Context, name string) (sum ClusterSummary, err error) {
	c, err := r.Records.Clusters().Load(ctx, name)
	if err != nil {
		return sum, err
	}
	ops, err := r.Operations(ctx, name)
	if err != nil {
		return sum, err
	}
	if c, err = r.settlePhase(ctx, c); err != nil {
		return sum, err
	}
	sum = ClusterSummary{
		Name: name, Phase: c.Status.Phase, Kubernetes: c.Spec.Kubernetes.Version,
		Hosts: len(c.Spec.Hosts), Ready: readyNodes(c), Endpoint: access.OutsideAddress(c),
	}
	if len(ops) > 0 {
		sum.Operation = &ops[0]
	}
	sum.Created = beginOfCluster(ops)
	return sum, nil
}

// readyNodes returns the number of hosts that were ready nodes when they were last seen.
func readyNodes(c *v1alpha1.Cluster) (ready int) {
	if !status.ListsAllNodes(&c.Status) {
		return min(c.Status.NodeCounts.Ready, len(c.Spec.Hosts))
	}
	for _, n := range c.Status.Nodes {
		if n.Ready && spec.FindHost(c.Spec.Hosts, n.Name) >= 0 { // the host may have left since then
			ready++
		}
	}
	return ready
}

// beginOfCluster returns when the first attempt to create an existing cluster began. Its operations
// are sorted newest first and may include operations of earlier clusters with this name.
func beginOfCluster(ops []v1alpha1.Operation) (at time.Time) {
	for _, o := range ops {
		kind := operation.Kind(o.Spec.Kind)
		switch {
		case kind.RemovesCluster() && !at.IsZero():
			return at
		case kind.CreatesCluster() && o.Status.StartTime != nil:
			at = o.Status.StartTime.Time
		}
	}
	return at
}

// Cluster returns the saved spec with the latest status.
func (r *View) Cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	c, err := ConvertNotFound(r.Records.Clusters().Load(ctx, name))
	if err != nil {
		return nil, err
	}
	return r.settlePhase(ctx, c)
}

// settlePhase corrects the phase of a cluster whose operation was killed: its lock is free, so
// no operation is running.
func (r *View) settlePhase(ctx context.Context, c *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	if status.SettledPhase(c.Status.Phase) == c.Status.Phase {
		return c, nil
	}
	holder, err := r.Records.Locks().Holder(ctx, c.Name)
	if err != nil || holder != nil {
		return c, err
	}
	now, err := r.Saved(ctx, c.Name) // it may have ended in the meantime
	if now == nil || err != nil {
		return c, err
	}
	now.Status.Phase = status.SettledPhase(now.Status.Phase)
	return now, nil
}

// Operations returns the operations of a cluster, or of all clusters if it is "", newest
// first. It warns about an
// operation whose saved state is damaged and still returns the others.
func (r *View) Operations(ctx context.Context, cluster string) ([]v1alpha1.Operation, error) {
	ops, damaged, err := r.Records.Operations().ListReadable(ctx, cluster)
	if err != nil {
		return nil, err
	}
	r.WarnOf(damaged)
	for i := range ops {
		if err := r.markInterrupted(ctx, &ops[i]); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// markInterrupted corrects the state of an operation that was killed, or that could not begin
// and could not save this, for example on a full disk.
func (r *View) markInterrupted(ctx context.Context, o *v1alpha1.Operation) error {
	if !needsProcess(o) {
		return nil
	}
	holder, err := r.Records.Locks().Holder(ctx, o.Spec.ClusterRef.Name)
	if err != nil || holder != nil && (holder.Operation == o.Name || holder.Operation == "") {
		return err
	}
	now, err := r.Records.Operations().Load(ctx, o.Name) // it may have ended in the meantime
	if err != nil {
		return err
	}
	*o = *now
	if !needsProcess(o) {
		return nil
	}
	o.Status.Message = records.ErrNoEnd.Error()
	if o.Status.State == v1alpha1.OperationPending {
		o.Status.Message = "the operation did not begin: its process ended first"
	}
	o.Status.State, o.Status.Reason, o.Status.ErrorCode = v1alpha1.OperationFailed, "Interrupted", v1alpha1.ErrorInternal
	return nil
}

// needsProcess reports whether an operation is in a state in which a process has its lock:
// it runs, or it was saved with its plan to run. An object of an API can wait for its turn.
func needsProcess(o *v1alpha1.Operation) bool {
	switch o.Status.State {
	case v1alpha1.OperationRunning:
		return true
	case v1alpha1.OperationPending:
		return o.UID == "" && !operation.IsRequest(o)
	}
	return false
}

// Operation finds an operation by its id or a unique prefix of it.
func (r *View) Operation(ctx context.Context, id string) (*v1alpha1.Operation, error) {
	o, err := ConvertNotFound(r.Records.Operations().Find(ctx, id))
	if err != nil {
		return nil, err
	}
	return o, r.markInterrupted(ctx, o)
}

// Events calls fn for each event of an operation. With follow, it continues until the
// operation has ended.
func (r *View) Events(ctx context.Context, id string, follow bool, fn func(event.Event) error) error {
	o, err := ConvertNotFound(r.Records.Operations().Find(ctx, id))
	if err != nil {
		return err
	}
	if id != string(o.UID) { // which selects an archived operation whose name a later one has
		id = o.Name
	}
	if follow {
		return r.Records.Journals().FollowEvents(ctx, id, fn)
	}
	return r.Records.Journals().ReadEvents(ctx, id, fn)
}

// Saved returns the saved cluster, nil if there is none.
func (r *View) Saved(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	c, err := r.Records.Clusters().Load(ctx, name)
	if errors.Is(err, records.ErrNotFound) {
		return nil, nil
	}
	return c, err
}

// List returns the names of the saved clusters.
func (r *View) List(ctx context.Context) ([]string, error) { return r.Records.Clusters().List(ctx) }

// Load returns a saved cluster as it was saved.
func (r *View) Load(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	return ConvertNotFound(r.Records.Clusters().Load(ctx, name))
}

// WarnOf reports saved items that are skipped.
func (r *View) WarnOf(damaged diag.List) {
	if r.Warn == nil || len(damaged) == 0 {
		return
	}
	for i := range damaged {
		damaged[i].Severity = diag.Warning
	}
	r.Warn(damaged)
}

// ConditionCreated is the condition that a cluster's creation has finished: from then
// on it is changed and no longer created.
const ConditionCreated = "Created"

// IsCreated reports whether a cluster's creation has finished and its removal has not
// begun.
func IsCreated(c *v1alpha1.Cluster) bool {
	return c != nil && (c.Status.Phase == v1alpha1.PhaseRunning || meta.IsStatusConditionTrue(c.Status.Conditions, ConditionCreated))
}
