package lifecycle

import (
	"cmp"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/spec"
)

// newer is a recorded cluster in the next version on its way to the one that is
// asked for; as it is, if it has come there. The request then knows where it
// goes, and what the record is to have of its file.
func (s *service) newer(r *Request, recorded *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	if !created(recorded) {
		return nil, refused(idNotCreated, "cluster "+recorded.Name+" has not come to run yet", "finish its creation first: slipway resume "+recorded.Name)
	}
	if recorded.Status.Phase != v1alpha1.PhaseRunning {
		return nil, refused(idOperationUnfinished, "the latest operation of cluster "+recorded.Name+" has not come to its end", "finish it first: slipway resume "+recorded.Name)
	}
	if _, err := engine.Bound(r.Rollout.MaxUnavailable, 1); err != nil {
		return nil, refused(idUpgradeHow, "how many workers may be out of service at once: "+err.Error(), "write a number, or a share of them such as 20%")
	}
	was := recorded.Spec.Kubernetes.Version
	file := r.Cluster
	if file != nil {
		r.Version = cmp.Or(r.Version, file.Spec.Kubernetes.Version)
		if file.Spec.Kubernetes.Version != "" && file.Spec.Kubernetes.Version != r.Version {
			return nil, refused(idUpgradeHow, "the file says Kubernetes "+file.Spec.Kubernetes.Version+", and --to "+r.Version, "let them say the same, or leave --to out")
		}
		file = spec.Copy(file)
		file.Spec.Kubernetes.Version = was
		if c := s.complete(file, recorded); !sameButOrder(c, recorded) {
			return nil, refused(idUpgradeHow, "the file differs from what is recorded of the cluster in more than the version of Kubernetes",
				"apply the rest first, with version: "+was+": slipway apply -f "+cmp.Or(r.File, "FILE"))
		}
	}
	path, err := s.Catalogue.UpgradePath(was, r.Version)
	if err != nil {
		return nil, err
	}
	wanted := spec.Copy(recorded)
	if len(path) == 0 {
		return wanted, nil
	}
	wanted.Spec.Kubernetes.Version, wanted.Spec.Bundle = path[0], r.Bundle
	if r.Version = path[len(path)-1]; r.Version != path[0] {
		r.Source = nil // the file says where it goes in the end
	}
	return wanted, nil
}

// upgraded refuses to change a cluster in whose midst an upgrade has stopped:
// its nodes are of two versions, and only the upgrade knows in which order they
// go on.
func (s *service) upgraded(recorded *v1alpha1.Cluster) error {
	ops, err := s.Store.Operations(recorded.Name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool { return !beside(Kind(o.Spec.Type)) && o.Status.StartTime != nil })
	if at < 0 || Kind(ops[at].Spec.Type) != Upgrade || ops[at].Status.Phase == v1alpha1.OperationSucceeded {
		return nil
	}
	return refused(idUpgradeUnfinished, "the upgrade of cluster "+recorded.Name+" to "+recorded.Spec.Kubernetes.Version+" has not come to its end",
		"finish it first: slipway resume "+recorded.Name)
}
