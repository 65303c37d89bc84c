package executor

import (
	"context"
	"errors"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kubeconfig"
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
