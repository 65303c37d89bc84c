package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/process"
	"slipway.dev/slipway/internal/status"
	"slipway.dev/slipway/internal/store"
)

// found converts the store's errors for a missing or an ambiguous item into ErrNotFound
// or a diag.List.
func found[T any](v T, err error) (T, error) {
	var several *store.AmbiguousError
	if errors.As(err, &several) {
		return v, refused(idAmbiguous, several.Error(), "give more characters of the id; to list all ids: slipway operations list")
	}
	if errors.Is(err, store.ErrNotFound) {
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
func (s *Service) Clusters(ctx context.Context) ([]ClusterSummary, error) {
	names, err := s.Store.Clusters().List()
	if err != nil {
		return nil, err
	}
	out := []ClusterSummary{}
	for _, name := range names {
		sum, err := s.summary(ctx, name)
		var damaged diag.List
		switch {
		case errors.Is(err, store.ErrNotFound):
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

func (s *Service) summary(ctx context.Context, name string) (sum ClusterSummary, err error) {
	c, err := s.Store.Clusters().Load(name)
	if err != nil {
		return sum, err
	}
	ops, err := s.Operations(ctx, name)
	if err != nil {
		return sum, err
	}
	if c, err = s.settle(c); err != nil {
		return sum, err
	}
	sum = ClusterSummary{
		Name: name, Phase: c.Status.Phase, Kubernetes: c.Spec.Kubernetes.Version,
		Hosts: len(c.Spec.Hosts), Endpoint: access.OutsideAddress(c),
	}
	for _, n := range c.Status.Nodes {
		if n.Ready && find(c.Spec.Hosts, n.Name) >= 0 { // the host may have left since then
			sum.Ready++
		}
	}
	if len(ops) > 0 {
		sum.Operation = &ops[0]
	}
	sum.Created = begun(ops)
	return sum, nil
}

// begun returns when the first attempt to create an existing cluster began. Its operations
// are sorted newest first and may include operations of earlier clusters with this name.
func begun(ops []v1alpha1.Operation) (at time.Time) {
	for _, o := range ops {
		kind := operation.Kind(o.Spec.Type)
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
func (s *Service) Cluster(_ context.Context, name string) (*v1alpha1.Cluster, error) {
	c, err := found(s.Store.Clusters().Load(name))
	if err != nil {
		return nil, err
	}
	return s.settle(c)
}

// settle corrects the phase of a cluster whose operation was killed: its lock is free, so
// no operation is running.
func (s *Service) settle(c *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	if status.SettledPhase(c.Status.Phase) == c.Status.Phase {
		return c, nil
	}
	holder, err := s.Store.Locks().Holder(c.Name)
	if err != nil || holder != nil {
		return c, err
	}
	now, err := s.record(c.Name) // it may have ended in the meantime
	if now == nil || err != nil {
		return c, err
	}
	now.Status.Phase = status.SettledPhase(now.Status.Phase)
	return now, nil
}

// Operations returns the operations of a cluster, or of all clusters if it is "", newest
// first. It warns about an
// operation whose saved state is damaged and still returns the others.
func (s *Service) Operations(_ context.Context, cluster string) ([]v1alpha1.Operation, error) {
	ops, damaged, err := s.Store.Operations().ListReadable(cluster)
	if err != nil {
		return nil, err
	}
	s.warn(damaged)
	for i := range ops {
		if err := s.interrupted(&ops[i]); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// interrupted corrects the phase of an operation that was killed.
func (s *Service) interrupted(o *v1alpha1.Operation) error {
	if o.Status.Phase != v1alpha1.OperationRunning {
		return nil
	}
	holder, err := s.Store.Locks().Holder(o.Spec.Cluster)
	if err != nil || holder != nil && (holder.Operation == o.Name || holder.Operation == "") {
		return err
	}
	now, err := s.Store.Operations().Load(o.Name) // it may have ended in the meantime
	if err != nil {
		return err
	}
	*o = *now
	if o.Status.Phase == v1alpha1.OperationRunning {
		o.Status.Phase, o.Status.Message = v1alpha1.OperationFailed, store.ErrNoEnd.Error()
	}
	return nil
}

// Operation finds an operation by its id or a unique prefix of it.
func (s *Service) Operation(_ context.Context, id string) (*v1alpha1.Operation, error) {
	o, err := found(s.Store.Operations().Find(id))
	if err != nil {
		return nil, err
	}
	return o, s.interrupted(o)
}

// Events calls fn for each event of an operation. With follow, it continues until the
// operation has ended.
func (s *Service) Events(ctx context.Context, id string, follow bool, fn func(event.Event) error) error {
	o, err := found(s.Store.Operations().Find(id))
	if err != nil {
		return err
	}
	if follow {
		return s.Store.Journals().FollowEvents(ctx, o.Name, fn)
	}
	return s.Store.Journals().ReadEvents(o.Name, fn)
}

// terminate asks the process that a lock names to stop. It returns os.ErrProcessDone if
// the process has ended. The lock file belongs to the user, so only a process of this
// program gets the signal.
func terminate(h *store.Holder) error {
	p, err := process.Find(h.PID)
	if errors.Is(err, fs.ErrNotExist) {
		return os.ErrProcessDone
	}
	if err == nil {
		p.Start = cmp.Or(h.Start, p.Start)
		err = p.StopSame()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, process.ErrOtherProgram) {
		return fmt.Errorf("stopping %s: %w", h, err)
	}
	return err
}

// notSlipway is the error for a held lock that names a process which does not hold it.
func notSlipway(name string, h *store.Holder) error {
	return refused(idNotSlipway, fmt.Sprintf("the lock of cluster %s names process %d, which is not a process of Slipway", name, h.PID),
		"find the process that holds the lock file with 'fuser', and stop it")
}

// Cancel asks the process that runs the cluster's operation to stop cleanly, and returns
// when it has ended or ctx is done. progress, which may be nil, receives an event when the
// process has been asked.
func (s *Service) Cancel(ctx context.Context, name string, progress event.Sink) error {
	holder, err := s.Store.Locks().Holder(name)
	if err != nil {
		return err
	}
	if holder == nil {
		return refused(idNothingRunning, "no operation is running on cluster "+name, "list its operations: slipway operations list "+name)
	}
	here, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding this machine's name: %w", err)
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	asked := 0 // the process that was asked to stop
	ended := 0 // the process that the lock named and that had ended
	for {
		now, err := s.Store.Locks().Holder(name)
		if err != nil || now == nil || asked != 0 && now.PID != asked {
			return err
		}
		if now.Host != "" && now.Host != here {
			return refused(idRunsElsewhere,
				"operation "+now.Operation+" of cluster "+name+" is running on another machine: "+now.String(), "stop the operation on that machine")
		}
		if now.PID > 0 && asked == 0 { // the holder may not have written its PID yet
			switch err := terminate(now); {
			case errors.Is(err, process.ErrOtherProgram), errors.Is(err, os.ErrProcessDone) && ended == now.PID:
				return notSlipway(name, now)
			case errors.Is(err, os.ErrProcessDone):
				ended = now.PID // the lock may be free in a moment
			case err != nil:
				return err
			default:
				asked = now.PID
				note(progress, "", "stopping the operation on cluster "+name)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
