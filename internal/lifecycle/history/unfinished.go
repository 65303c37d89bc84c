package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/spec"
)

// Unfinished returns the latest operation of a cluster if it has not succeeded.
// It skips operations that never began: they changed nothing.
func (h History) Unfinished(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	ops, err := h.ListBegun(ctx, name)
	if err != nil {
		return nil, err
	}
	recorded, err := h.View.Saved(ctx, name)
	if err != nil {
		return nil, err
	}
	message, hint := "the latest operation of cluster "+name+" succeeded", "change the cluster with: slipway apply -f FILE"
	if far, onward, ok := DescribeUnfinishedUpgrade(ops, recorded); ok {
		message, hint = far, onward
	}
	if len(ops) > 0 && ops[0].Status.State != v1alpha1.OperationSucceeded {
		hint = cmp.Or(operation.Kind(ops[0].Spec.Kind).Repeat(), hint)
	}
	if cut := operation.UnfinishedRotations(ops); len(cut) > 0 {
		hint = rotationHint(name, cut[0])
	}
	ops = slices.DeleteFunc(ops, func(o v1alpha1.Operation) bool {
		if !operation.Kind(o.Spec.Kind).Resumable() && recorded != nil {
			return true // it concerns hosts or etcd, not the cluster
		}
		if k := operation.Kind(o.Spec.Kind); !k.Supersedes() && k.Resumable() && o.Status.State == v1alpha1.OperationSucceeded {
			return true // it did not finish an earlier operation
		}
		// An operation that has not started may still have recorded the
		// cluster; then the status names it, or none yet.
		return o.Status.StartTime == nil && (recorded == nil || recorded.Status.Operation != o.Name && recorded.Status.Operation != "")
	})
	if len(ops) == 0 {
		return nil, fmt.Errorf("an operation of cluster %s: %w", name, savedstate.ErrNotFound)
	}
	if ops[0].Status.State == v1alpha1.OperationSucceeded {
		return nil, diag.Refuse(IDNothingUnfinished, message, hint)
	}
	if kind := ops[0].Spec.Kind; !operation.Kind(kind).Known() {
		return nil, diag.Refuse(idUnknownOperation,
			fmt.Sprintf("operation %s has a kind that this version of slipway does not know: %q", ops[0].Name, kind),
			"resume the operation with the version of slipway that started the operation")
	}
	return &ops[0], nil
}

// rotationHint returns how to continue an interrupted rotation.
func rotationHint(name string, o *v1alpha1.Operation) string {
	return "continue the interrupted rotation: slipway certs rotate-ca " + name + " --which " +
		strings.Join(slices.Sorted(maps.Keys(o.Spec.Parameters.Rotates)), ",")
}

// FindUnfinished returns the latest unfinished operation of a cluster. It refuses another one, if id names one.
func (h History) FindUnfinished(ctx context.Context, name, id string) (*v1alpha1.Operation, error) {
	o, err := h.Unfinished(ctx, name)
	switch {
	case errors.Is(err, savedstate.ErrNotFound):
		return nil, diag.Refuse(IDNothingUnfinished, "cluster "+name+" has no operation that has begun", "request the operation again")
	case err == nil && id != "" && id != o.Name:
		return nil, diag.Refuse(IDOperationUnfinished, "operation "+id+" is not the latest unfinished operation of cluster "+name,
			"name operation "+o.Name)
	}
	return o, err
}

// DescribeUnfinishedUpgrade describes a cluster that is between two minors of an upgrade: its progress
// and the command to continue. ok is false for other clusters. An upgrade of which
// only the version is saved has not begun yet.
func DescribeUnfinishedUpgrade(ops []v1alpha1.Operation, recorded *v1alpha1.Cluster) (message, hint string, ok bool) {
	if recorded == nil || recorded.Status.Phase != v1alpha1.PhaseRunning {
		return "", "", false
	}
	is := RunningVersion(recorded)
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		return operation.Kind(o.Spec.Kind).Supersedes() &&
			(o.Status.StartTime != nil || operation.IsUpgrade(&o) && is != recorded.Spec.Kubernetes.Version)
	})
	if at < 0 || !operation.IsUpgrade(&ops[at]) || ops[at].Spec.Parameters.Version == "" || ops[at].Spec.Parameters.Version == is {
		return "", "", false
	}
	to := ops[at].Spec.Parameters.Version
	return "the upgrade of cluster " + recorded.Name + " to " + to + " has reached " + is,
		"continue with: " + operation.UpgradeCommand(recorded.Name, to, ops[at].Spec.Parameters.File), true
}

// RunningVersion returns the version that a cluster was last known to have. The saved
// description may have the version of an upgrade that never began.
func RunningVersion(c *v1alpha1.Cluster) string {
	return cmp.Or(c.Status.Version, c.Spec.Kubernetes.Version)
}

// ChangesOnlyVersion sets what an upgrade changes in a wanted cluster to the saved values: the version, the add-ons and the
// bundle. It reports whether nothing else differs. complete adds the saved values of fields that wanted does not set.
// An upgrade can have saved its version, and ended before it began.
func ChangesOnlyVersion(wanted, recorded *v1alpha1.Cluster, complete func(c, recorded *v1alpha1.Cluster) *v1alpha1.Cluster) bool {
	saved := recorded.DeepCopy()
	saved.Spec.Kubernetes.Version = RunningVersion(recorded)
	to := &wanted.Spec
	to.Kubernetes.Version, to.Addons, to.Bundle = saved.Spec.Kubernetes.Version, saved.Spec.Addons, saved.Spec.Bundle
	return savedstate.HaveSameSpecInAnyOrder(complete(wanted, saved), saved)
}

// LatestUpgrade returns the latest upgrade of a cluster that has begun, nil if there is none.
func (h History) LatestUpgrade(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	ops, err := h.ListBegun(ctx, name)
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		return operation.IsUpgrade(&o) && o.Status.StartTime != nil
	})
	if at < 0 {
		return nil, err
	}
	return &ops[at], err
}

// UnfinishedEtcdSwap returns the latest restore or rescue that has begun to replace the
// etcd data. It returns nil if there is none, or if that operation or a later restore or
// rescue has reached the point at which all members serve the new data.
func (h History) UnfinishedEtcdSwap(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	ops, err := h.ListBegun(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		kind := operation.Kind(o.Spec.Kind)
		if kind.CreatesCluster() || kind.ReplacesEtcdData() && o.Status.State == v1alpha1.OperationSucceeded {
			break
		}
		if !kind.ReplacesEtcdData() || o.Status.StartTime == nil {
			continue
		}
		done, begun, err := h.Steps(ctx, o.Name)
		switch {
		case err != nil:
			return nil, err
		case hasStep(done, etcdbackup.StepReached):
			return nil, nil
		case hasStep(begun, etcdbackup.StepSwap):
			return &o, nil
		}
	}
	return nil, nil
}

// hasStep reports whether a step is in the set for any host.
func hasStep(steps map[string]bool, id string) bool {
	for step := range steps {
		if task, _, _ := strings.Cut(step, "@"); task == id {
			return true
		}
	}
	return false
}

// RefuseDuringEtcdSwap refuses to change hosts while a restore or a rescue is unfinished:
// some etcd members may have the new data and others the previous data. Only that
// operation knows which, and stops what must not run in the meantime.
func (h History) RefuseDuringEtcdSwap(ctx context.Context, recorded *v1alpha1.Cluster) error {
	swaps, err := h.UnfinishedEtcdSwap(ctx, recorded.Name)
	if swaps == nil || err != nil {
		return err
	}
	id := IDOperationUnfinished
	if operation.Kind(swaps.Spec.Kind).DeclaresLost() {
		id = idRescueUnfinished
	}
	return diag.Refuse(id, "operation "+swaps.Name+" has begun to replace the etcd data of cluster "+recorded.Name+" and is unfinished",
		"finish the operation first: slipway resume "+recorded.Name)
}

// RefuseUnfinished returns an error if any operation of a cluster is unfinished: only the manager with
// its records can finish it.
func (h History) RefuseUnfinished(ctx context.Context, recorded *v1alpha1.Cluster) error {
	ops, err := h.ListBegun(ctx, recorded.Name)
	if err != nil {
		return err
	}
	if message, hint, ok := DescribeUnfinishedUpgrade(ops, recorded); ok {
		return diag.Refuse(IDUpgradeUnfinished, message, hint)
	}
	if err := cmp.Or(h.RefuseDuringDelete(ctx, recorded.Name), h.RefuseDuringEtcdSwap(ctx, recorded), h.RefuseDuringUpgrade(ctx, recorded),
		RefuseUnbegunUpgrade("", recorded)); err != nil {
		return err
	}
	unfinished := operation.UnfinishedRotations(ops)
	o, err := h.Unfinished(ctx, recorded.Name)
	var refused diag.List
	switch {
	case err == nil:
		unfinished = append(unfinished, o)
	case !errors.Is(err, savedstate.ErrNotFound) && !(errors.As(err, &refused) && refused[0].ID == IDNothingUnfinished):
		return err
	}
	between, err := h.NodesBetweenRuntimes(ctx, recorded.Name)
	hint := "finish it first: slipway resume " + recorded.Name
	switch {
	case err != nil:
		return err
	case len(unfinished) == 0 && len(between) == 0:
		return nil
	case len(unfinished) == 0:
		return diag.Refuse(IDOperationUnfinished, "the change of the container runtime of "+strings.Join(between, ", ")+" is unfinished", hint)
	case len(unfinished[0].Spec.Parameters.Rotates) > 0:
		hint = rotationHint(recorded.Name, unfinished[0])
	}
	return diag.Refuse(IDOperationUnfinished, "operation "+unfinished[0].Name+" of cluster "+recorded.Name+" is unfinished", hint)
}

// RefuseDuringDelete returns an error if the removal of a cluster has begun and is unfinished: it has removed data of
// hosts, and only it knows which.
func (h History) RefuseDuringDelete(ctx context.Context, name string) error {
	ops, err := h.ListBegun(ctx, name)
	if err != nil || len(ops) == 0 {
		return err
	}
	o := ops[0]
	if operation.Kind(o.Spec.Kind).RemovesCluster() && o.Status.StartTime != nil && o.Status.State != v1alpha1.OperationSucceeded {
		return diag.Refuse(IDOperationUnfinished, "operation "+o.Name+" has begun to delete cluster "+name+" and is unfinished",
			"finish the operation first: slipway resume "+name)
	}
	return nil
}

// RefuseUnbegunUpgrade refuses to change a cluster whose saved version belongs to an upgrade
// that was interrupted before it began: a change would bring that version to all nodes in
// no particular order.
func RefuseUnbegunUpgrade(kind operation.Kind, recorded *v1alpha1.Cluster) error {
	wanted := recorded.Spec.Kubernetes.Version
	if kind.ChangesVersion() || recorded.Status.Phase != v1alpha1.PhaseRunning ||
		RunningVersion(recorded) == wanted {
		return nil
	}
	return diag.Refuse(IDUpgradeUnfinished, "the upgrade of cluster "+recorded.Name+" to "+wanted+" was interrupted before it began",
		"start the upgrade again: slipway upgrade "+recorded.Name+" --to "+wanted)
}

// RefuseDuringUpgrade refuses to change a cluster while an upgrade or its rollback is unfinished:
// the nodes have two versions, and only that operation knows their order. An operation
// without a saved start also counts if the cluster's status names it: the cluster
// description already has its version.
func (h History) RefuseDuringUpgrade(ctx context.Context, recorded *v1alpha1.Cluster) error {
	ops, err := h.ListBegun(ctx, recorded.Name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		return operation.Kind(o.Spec.Kind).Supersedes() && (o.Status.StartTime != nil || o.Name == recorded.Status.Operation)
	})
	if at < 0 || !operation.Kind(ops[at].Spec.Kind).ChangesVersion() || ops[at].Status.State == v1alpha1.OperationSucceeded {
		return nil
	}
	what := "the upgrade of cluster " + recorded.Name + " to "
	if !operation.IsUpgrade(&ops[at]) {
		what = "the rollback of cluster " + recorded.Name + " to "
	}
	return diag.Refuse(IDUpgradeUnfinished, what+recorded.Spec.Kubernetes.Version+" is unfinished",
		"finish it first: slipway resume "+recorded.Name)
}

// NodesBetweenRuntimes returns the nodes on which, since the latest successful change or the creation, an
// unfinished change of the runtime has begun to stop containers and that are not back in service.
func (h History) NodesBetweenRuntimes(ctx context.Context, cluster string) (out []string, err error) {
	ops, err := h.ListBegun(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		kind := operation.Kind(o.Spec.Kind)
		return kind.CreatesCluster() ||
			kind.ChangesCluster() && !operation.HasForgottenNodes(&o) && o.Status.State == v1alpha1.OperationSucceeded
	}); at >= 0 {
		ops = ops[:at]
	}
	changes := false // an unfinished change has begun
	for _, o := range slices.Backward(ops) {
		changes = changes || operation.Kind(o.Spec.Kind).ChangesCluster() && o.Status.StartTime != nil &&
			o.Status.State != v1alpha1.OperationSucceeded
		if !changes {
			continue
		}
		err := h.View.Records.Journals().ReadEvents(ctx, o.Name, func(e event.Event) error {
			at := slices.Index(out, e.Host)
			switch {
			case e.Task == "reset.runtime" && e.Type == event.StepStarted && at < 0:
				out = append(out, e.Host)
			case e.Task == "upgrade.uncordon" && e.Type == event.StepFinished &&
				(e.Outcome == event.Changed || e.Outcome == event.Unchanged) && at >= 0:
				out = slices.Delete(out, at, at+1)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RefuseDuringRuntimeChange refuses to add or remove hosts while a change of the container runtime is
// unfinished: only that change knows which runtime each node shall have.
func (h History) RefuseDuringRuntimeChange(ctx context.Context, kind operation.Kind, recorded *v1alpha1.Cluster) error {
	if !kind.ChangesNodes() {
		return nil
	}
	been, err := h.DescriptionsSince(ctx, recorded)
	if err != nil || !slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool { return spec.UsesDocker(c) != spec.UsesDocker(been[0]) }) {
		return err
	}
	return diag.Refuse(IDMigrationAlone, "the change of the container runtime of cluster "+recorded.Name+" is unfinished",
		"finish this operation first: slipway resume "+recorded.Name)
}

// CountEtcdReplacements returns how many restores and rescues of a cluster began since its creation,
// and before the operation that continues, if there is one. A new cluster has a new etcd.
func (h History) CountEtcdReplacements(ctx context.Context, name string, goesOn *v1alpha1.Operation) (n int, err error) {
	ops, err := h.ListBegun(ctx, name)
	base, wrong := h.loadBase(ctx, name)
	n = base.EtcdReplacements
	for _, o := range ops {
		if operation.Kind(o.Spec.Kind).CreatesCluster() && o.Status.StartTime != nil {
			n -= base.EtcdReplacements // they were before the creation
			break
		}
		if operation.Kind(o.Spec.Kind).ReplacesEtcdData() && o.Status.StartTime != nil && (goesOn == nil || o.Name < goesOn.Name) {
			n++
		}
	}
	return n, errors.Join(err, wrong)
}
