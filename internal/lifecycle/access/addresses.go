package access

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/clusterstate"
)

// readyTimeout limits the wait for the API at its addresses, which are tried at the same
// time.
const readyTimeout = 3 * time.Second

// OutsideAddress returns the API address of a cluster for this machine. It returns "" if the
// description of the cluster is not complete yet.
func OutsideAddress(c *v1alpha1.Cluster) string {
	if addresses := clusterstate.APIAddresses(c); len(addresses) > 0 {
		return addresses[0]
	}
	return ""
}

// FirstReadyAddress returns the first of the addresses at which the API is ready. It returns
// "" if there is none.
func (a *Access) FirstReadyAddress(ctx context.Context, conf []byte, addresses []string) string {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	var requests errgroup.Group
	defer func() {
		cancel()
		_ = requests.Wait() // the results are in ready
	}()
	ready := make([]chan bool, len(addresses))
	for i, address := range addresses {
		ready[i] = make(chan bool, 1)
		requests.Go(func() error {
			ready[i] <- a.isAPIReady(ctx, conf, address)
			return nil
		})
	}
	for i, address := range addresses {
		if <-ready[i] {
			return address
		}
	}
	return ""
}

func (a *Access) isAPIReady(ctx context.Context, conf []byte, address string) bool {
	client, err := kube.New(conf, a.c.DialAPI, kube.Options{Address: address})
	if err != nil {
		return false
	}
	defer client.Close()
	return client.CheckReady(ctx) == nil
}

// withReadyAddress returns a kubeconfig whose server is the first address at which the API is
// ready. If there is none, it uses the first address: the caller's request reports the
// error.
func (a *Access) withReadyAddress(ctx context.Context, env module.Env, conf []byte) ([]byte, error) {
	admin, err := kubeconfig.ParseAdmin(conf)
	if err != nil {
		return nil, err
	}
	address := OutsideAddress(env.Cluster)
	if addresses := clusterstate.APIAddresses(env.Cluster); len(addresses) > 1 {
		address = cmp.Or(a.FirstReadyAddress(ctx, conf, addresses), address)
	}
	return clusterstate.MakeKubeconfigFor(env, admin, address)
}
