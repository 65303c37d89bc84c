package lifecycle

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/spec"
)

// A NextOperation is the operation that brings a cluster closer to its wanted state.
type NextOperation struct {
	Kind operation.Kind
	// Cluster is the wanted state of the operation. An upgrade changes nothing but the version, the add-ons and the
	// bundle, so other changes come first, in the current version.
	Cluster *v1alpha1.Cluster
	// Version is the final version of an upgrade.
	Version string
}

// NextOperation returns the next operation for a wanted state. It reads only the records.
func (s *Service) NextOperation(ctx context.Context, wanted *v1alpha1.Cluster) (NextOperation, error) {
	next := NextOperation{Kind: operation.Apply, Cluster: wanted}
	recorded, err := s.Saved(ctx, wanted.Name)
	if err != nil {
		return next, err
	}
	if !savedstate.IsCreated(recorded) {
		next.Kind = operation.Create
		return next, nil
	}
	version, is := wanted.Spec.Kubernetes.Version, history.RunningVersion(recorded)
	if version == "" || version == is {
		return next, nil
	}
	first := wanted.DeepCopy()
	if err := spec.MakePathsAbsolute(first, spec.Paths{Dir: s.object().FilesDir, Home: s.Home}); err != nil {
		return next, err
	}
	if history.ChangesOnlyVersion(first, recorded, s.asRecorded) {
		next.Kind, next.Version = operation.Upgrade, version
		return next, nil
	}
	next.Cluster = first
	return next, nil
}

// HasVersion reports whether a cluster has the version of its wanted state.
func (s *Service) HasVersion(ctx context.Context, wanted *v1alpha1.Cluster) (bool, error) {
	recorded, err := s.Saved(ctx, wanted.Name)
	if recorded == nil || err != nil {
		return false, err
	}
	version := wanted.Spec.Kubernetes.Version
	return version == "" || version == history.RunningVersion(recorded), nil
}
