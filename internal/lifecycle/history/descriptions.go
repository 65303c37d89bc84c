package history

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// PlannedCluster returns the cluster description of an operation's plan.
func (h History) PlannedCluster(ctx context.Context, id string) (*v1alpha1.Cluster, error) {
	c, err := h.View.Records.Operations().LoadPlannedCluster(ctx, id)
	if err != nil {
		return nil, err
	}
	spec.CanonicalizeAddresses(c) // in the form of the descriptions that it is compared with
	return c, nil
}

// plannedClusterWithout returns the same without the hosts that were force-removed since then.
func (h History) plannedClusterWithout(ctx context.Context, id string, lost []string) (*v1alpha1.Cluster, error) {
	c, err := h.PlannedCluster(ctx, id)
	if err == nil {
		spec.RemoveHosts(c, lost...)
	}
	return c, err
}

// DescriptionsSince returns the descriptions of a cluster that hosts may have applied, oldest first.
// The first one is from the latest successful operation, or from the creation if none succeeded
// after it. The others are from all operations that have begun since. Hosts that were
// force-removed since then are left out.
func (h History) DescriptionsSince(ctx context.Context, recorded *v1alpha1.Cluster) (out []*v1alpha1.Cluster, err error) {
	ops, err := h.ListBegun(ctx, recorded.Name)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, o := range ops {
		kind := operation.Kind(o.Spec.Kind)
		if !kind.CreatesCluster() && !kind.ChangesCluster() || o.Status.StartTime == nil {
			continue
		}
		if operation.HasForgottenNodes(&o) {
			lost = append(lost, o.Spec.Parameters.Nodes...)
			continue
		}
		was, err := h.plannedClusterWithout(ctx, o.Name, lost)
		if err != nil {
			return nil, err
		}
		out = append(out, was)
		if kind.CreatesCluster() || o.Status.State == v1alpha1.OperationSucceeded {
			slices.Reverse(out)
			return out, nil
		}
	}
	base, err := h.loadBase(ctx, recorded.Name)
	if base.Cluster == nil || err != nil {
		return nil, err // only the saved description is known
	}
	spec.RemoveHosts(base.Cluster, lost...)
	out = append(out, base.Cluster)
	slices.Reverse(out)
	return out, nil
}

// HasUnfinishedEndpointChange reports whether a change of the control plane endpoint is unfinished. The next
// operation continues that change on all hosts.
func (h History) HasUnfinishedEndpointChange(ctx context.Context, recorded *v1alpha1.Cluster) (bool, error) {
	if !savedstate.IsCreated(recorded) || recorded.Status.Phase == v1alpha1.PhaseRunning {
		return false, nil
	}
	been, err := h.DescriptionsSince(ctx, recorded)
	return slices.ContainsFunc(been, func(c *v1alpha1.Cluster) bool {
		return !reflect.DeepEqual(c.Spec.ControlPlaneEndpoint, recorded.Spec.ControlPlaneEndpoint)
	}), err
}

// SourceBefore returns the previous cluster file, or empty text if it is not known: the
// saved file belongs to the operation that is rolled back.
func (h History) SourceBefore(ctx context.Context, name string) ([]byte, error) {
	text, err := h.View.Records.Clusters().LoadKeptSource(ctx, name)
	if errors.Is(err, records.ErrNotFound) {
		return []byte{}, nil
	}
	return text, err
}

// DescriptionBefore returns the description of the latest successful operation; if there is none,
// the description of the creation. Hosts that were force-removed since then are left out.
func (h History) DescriptionBefore(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	ops, err := h.ListBegun(ctx, name)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, o := range ops {
		switch kind := operation.Kind(o.Spec.Kind); {
		case operation.HasForgottenNodes(&o):
			lost = append(lost, o.Spec.Parameters.Nodes...)
		case kind.CreatesCluster(), kind.ChangesCluster() && o.Status.State == v1alpha1.OperationSucceeded:
			return h.plannedClusterWithout(ctx, o.Name, lost)
		}
	}
	base, err := h.loadBase(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case base.Cluster != nil:
		spec.RemoveHosts(base.Cluster, lost...)
		return base.Cluster, nil
	}
	return nil, diag.Refuse(IDNoWayBack, "cluster "+name+" has no successful operation to roll back to", "continue with: slipway resume "+name)
}

// ClusterBeforeUpgrade returns the cluster before the upgrade to this version: as the latest
// operation left it that planned another version.
func (h History) ClusterBeforeUpgrade(ctx context.Context, name, version string) (*v1alpha1.Cluster, error) {
	ops, err := h.ListBegun(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		if kind := operation.Kind(o.Spec.Kind); !kind.CreatesCluster() &&
			(!kind.ChangesCluster() || o.Status.State != v1alpha1.OperationSucceeded) {
			continue
		}
		c, err := h.PlannedCluster(ctx, o.Name)
		if err != nil || c.Spec.Kubernetes.Version != version {
			return c, err
		}
	}
	base, err := h.loadBase(ctx, name)
	if err != nil || base.Cluster != nil && base.Cluster.Spec.Kubernetes.Version != version {
		return base.Cluster, err
	}
	return nil, diag.Refuse(IDNoWayBack, "the saved state of cluster "+name+" does not contain its version before "+version,
		"finish the upgrade: slipway resume "+name)
}
