package executor

import (
	"context"
	"errors"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/records"
)

// OwnCluster ends the removal of the cluster in which the controllers run: they would remove themselves before the end.
var OwnCluster = &End{
	v1alpha1.OperationFailed, "ControllersInCluster",
	"the controllers run in this cluster, so they cannot remove it from its hosts\n" +
		"to remove it, use the command line: slipway delete cluster -f FILE --take-over",
	v1alpha1.ErrorUserInput,
}

// ownEtcd ends an operation that replaces the data of etcd in the cluster in which the controllers run: it stops their API,
// with the records of the operation.
var ownEtcd = &End{
	v1alpha1.OperationFailed, OwnCluster.Reason,
	"the controllers and their API run in this cluster, and the operation stops the API\n" +
		"use the command line: slipway etcd restore or slipway etcd rescue, with --take-over",
	v1alpha1.ErrorUserInput,
}

// endInOwnCluster returns the end of an operation in the cluster in which the controllers run, nil if it can run there.
func endInOwnCluster(kind operation.Kind) *End {
	switch {
	case kind.RemovesCluster():
		return OwnCluster
	case kind.ReplacesEtcdData():
		return ownEtcd
	}
	return nil
}

// HasControllers reports whether a cluster has one of the CA certificates of the cluster in which the controllers run.
// Without such certificates, they run in none.
func HasControllers(ctx context.Context, backend records.Backend, cluster string, ownCA []byte) (bool, error) {
	if len(ownCA) == 0 {
		return false, nil
	}
	admin, err := backend.Kubeconfigs().Load(ctx, cluster)
	if errors.Is(err, records.ErrNotFound) {
		return false, nil
	}
	own, wrong := pki.ParseAuthorities(ownCA)
	theirs, _ := pki.ParseAuthorities(kubeconfig.RecordedCA(admin)) // none if it is damaged
	isOwn := slices.ContainsFunc(theirs, func(a pki.Authority) bool { return pki.TrustsCA(own, a.ID) })
	return isOwn, errors.Join(err, wrong)
}
