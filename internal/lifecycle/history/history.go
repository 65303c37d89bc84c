// Package history finds what earlier operations of a cluster have done, and which of them are
// unfinished. It reads only the saved operations and their journals.
package history

import (
	"context"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/noderemoval"
	"slipway.dev/slipway/internal/spec"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	IDNothingUnfinished   = "nothing-unfinished"
	IDOperationUnfinished = "operation-unfinished"
	IDUpgradeUnfinished   = "upgrade-unfinished"
	IDMigrationAlone      = "runtime-change-alone"
	IDNoWayBack           = "no-way-back"
	idUnknownOperation    = "unknown-operation"
	idRescueUnfinished    = "rescue-unfinished"
)

// History finds the earlier operations of clusters.
type History struct{ View *savedstate.View }

// ListBegun returns the operations of a cluster, newest first, without mere requests and without operations of earlier
// clusters of that name. The process of an operation can end before it has saved the start: then the status of the cluster
// names the operation, and it is not a mere request, although it is planned again.
func (h History) ListBegun(ctx context.Context, name string) ([]v1alpha1.Operation, error) {
	ops, err := h.View.Records.Operations().List(ctx, name)
	if err != nil {
		return nil, err
	}
	named := ""
	if slices.ContainsFunc(ops, isPlannedRequest) {
		recorded, err := h.View.Saved(ctx, name)
		if err != nil {
			return nil, err
		}
		if recorded != nil {
			named = recorded.Status.Operation
		}
	}
	return slices.DeleteFunc(ops, func(o v1alpha1.Operation) bool {
		return !h.View.Object.Has(&o) || operation.IsRequest(&o) && !(isPlannedRequest(o) && o.Name == named)
	}), nil
}

// isPlannedRequest reports whether an operation that has not ended was planned, and its start was not saved.
func isPlannedRequest(o v1alpha1.Operation) bool {
	return operation.IsRequest(&o) && o.Status.Plan != nil && !operation.HasEnded(&o)
}

// Steps returns two sets of steps of an operation. done has the steps that succeeded
// and must not be repeated; the engine uses it only for steps that are declared so.
// begun has the steps that may have changed something. A step that failed or was killed
// may have done all its work: if a later attempt finds nothing to do, the step may
// still have changed something earlier.
func (h History) Steps(ctx context.Context, id string) (done, begun map[string]bool, err error) {
	done, begun = map[string]bool{}, map[string]bool{}
	before := map[string]bool{} // begun in earlier attempts
	err = h.View.Records.Journals().ReadEvents(ctx, id, func(e event.Event) error {
		step := e.Task + "@" + e.Host
		switch {
		case e.Type == event.OperationStarted:
			before = maps.Clone(begun)
		case e.Type == event.StepStarted:
			begun[step] = true
		case e.Type == event.StepFinished && e.Outcome == event.Changed:
			done[step], begun[step] = true, true
		case e.Type == event.StepFinished && (e.Outcome == event.Unchanged && !before[step] || refusesPlace(e)) && !done[step]:
			delete(begun, step)
		}
		return nil
	})
	return done, begun, err
}

// refusesPlace reports whether a step failed because the machine to be replaced is
// running: that machine keeps its place in the cluster.
func refusesPlace(e event.Event) bool {
	return e.Outcome == event.Failed && e.Failure != nil && e.Failure.Reason == noderemoval.IDNodeRuns
}

// EarlierAttempts returns what was done by all operations of a cluster since the latest one
// that succeeded: together they are one attempt. Steps from before a delete or a
// rollback do not count as done.
func (h History) EarlierAttempts(ctx context.Context, name string) (a Attempts, err error) {
	ops, err := h.ListBegun(ctx, name)
	if err != nil {
		return a, err
	}
	a.Done, a.Begun = map[string]bool{}, map[string]bool{}
	again := false // at least a part of the earlier work was removed later
	for _, o := range ops {
		if !operation.Kind(o.Spec.Kind).Supersedes() {
			continue // it concerns hosts, etcd data or certificates, not the cluster's description
		}
		if o.Status.State == v1alpha1.OperationSucceeded {
			break
		}
		if operation.Kind(o.Spec.Kind).RemovesCluster() {
			again = again || o.Status.StartTime != nil
			continue
		}
		steps, begun, err := h.Steps(ctx, o.Name)
		if err != nil {
			return a, err
		}
		hosts, err := h.changed(ctx, o.Name, begun)
		if err != nil {
			return a, err
		}
		a.Any, a.Touched = true, append(a.Touched, hosts...)
		maps.Copy(a.Begun, begun)
		if !again {
			maps.Copy(a.Done, steps)
		}
	}
	return a, nil
}

// Attempts has the steps that were done since the latest successful operation.
type Attempts struct {
	// Any reports whether there is such an operation.
	Any bool
	// Done and Begun are sets of steps: see Steps.
	Done, Begun map[string]bool
	// Touched are the changed hosts, as described at that time.
	Touched []v1alpha1.Host
}

// isVacated reports whether the place of a host in the cluster may have been given to
// another machine: another machine began to join, or the removal of the host began.
func (a Attempts) isVacated(h v1alpha1.Host) bool {
	votes := spec.HasRole(h, v1alpha1.RoleControlPlane) || spec.HasRole(h, v1alpha1.RoleEtcd)
	for step := range a.Begun {
		task, host, _ := strings.Cut(step, "@")
		own := host == h.Name && (strings.HasPrefix(task, "leave.") || strings.HasPrefix(task, "join."))
		if own || votes && (task == "leave.member" || strings.HasSuffix(task, ".make-room")) {
			return true
		}
	}
	return false
}

// changed returns the hosts that an operation keeps in the cluster and on which it has
// begun steps.
func (h History) changed(ctx context.Context, id string, steps map[string]bool) (hosts []v1alpha1.Host, err error) {
	if len(steps) == 0 {
		return nil, nil
	}
	c, err := h.PlannedCluster(ctx, id)
	if err != nil {
		return nil, err
	}
	for step := range steps {
		_, name, _ := strings.Cut(step, "@")
		at := spec.FindHost(c.Spec.Hosts, name)
		if at >= 0 && spec.FindHost(hosts, name) < 0 {
			hosts = append(hosts, c.Spec.Hosts[at])
		}
	}
	return hosts, nil
}

// ContainsAddressOf reports whether one of the hosts has the same address as h, whatever their names.
func ContainsAddressOf(hosts []v1alpha1.Host, h v1alpha1.Host) bool {
	return slices.ContainsFunc(hosts, func(o v1alpha1.Host) bool {
		return o.Address == h.Address && o.SSH.Port == h.SSH.Port || o.InternalAddress != "" && o.InternalAddress == h.InternalAddress
	})
}

// TouchedHosts returns the hosts of an existing cluster that were changed since its
// latest successful operation, without the hosts that were in the cluster then, which
// another machine may replace. placed lists the hosts that still have their places.
func (h History) TouchedHosts(ctx context.Context, recorded *v1alpha1.Cluster) (touched, placed []v1alpha1.Host, err error) {
	a, err := h.EarlierAttempts(ctx, recorded.Name)
	if !a.Any || err != nil {
		return nil, nil, err
	}
	before, err := h.DescriptionBefore(ctx, recorded.Name)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := h.View.Records.Clusters().LoadNodes(ctx, recorded)
	if err != nil {
		return nil, nil, err
	}
	touched = slices.DeleteFunc(a.Touched, func(h v1alpha1.Host) bool {
		return ContainsAddressOf(before.Spec.Hosts, h) || slices.ContainsFunc(nodes, func(n v1alpha1.NodeStatus) bool {
			return n.Name == h.Name && n.InternalIP == module.InternalAddress(h) && n.Version != ""
		})
	})
	return touched, slices.DeleteFunc(slices.Clone(before.Spec.Hosts), a.isVacated), nil
}
