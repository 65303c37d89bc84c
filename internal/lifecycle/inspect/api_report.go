package inspect

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// APIReport is the state of the API of a cluster and of its nodes.
type APIReport struct {
	// Answers reports whether the API responds. Message is the reason if it does not.
	Answers bool
	Message string
	// Address is the address that responded. Through is the host over which the API was queried; ""
	// means from this machine.
	Address, Through string
	// Endpoint is the state of the control plane endpoint for this machine: "ok", the reason why it
	// does not respond, or "" if this machine cannot query it.
	Endpoint string
	// Nodes are the hosts that run a kubelet, and all other nodes of the cluster.
	Nodes []NodeInfo
}

// firstTime limits the query of the first address, before the other addresses are tried.
const firstTime = 2 * time.Second

// QueryAPI queries the API of a cluster from this machine, with the saved kubeconfig. It connects to no
// host over SSH.
func (in *Inspector) QueryAPI(ctx context.Context, name string) (*APIReport, error) {
	c, err := in.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	admin, err := in.c.Access.SavedKubeconfig(ctx, name)
	if err != nil {
		return nil, err
	}
	addresses := clusterstate.APIAddresses(c)
	if len(addresses) == 0 {
		return &APIReport{Message: "the cluster has no API address yet"}, nil
	}
	first := addresses[0]
	out, err := in.queryAddress(ctx, c, admin, first, firstTime)
	if err == nil {
		if hasEndpoint(c, first) {
			out.Endpoint = "ok"
		}
		return out, nil
	}
	failed := &APIReport{Message: describeAPIError(err)}
	if hasEndpoint(c, first) {
		failed.Endpoint = failed.Message
	}
	other := in.c.Access.FirstReadyAddress(ctx, admin, addresses) // the first one may only be slow
	if other == "" {
		return failed, nil
	}
	if out, err = in.queryAddress(ctx, c, admin, other, in.Limits.Through); err != nil {
		return failed, nil //nolint:nilerr // the report has the reason
	}
	out.Endpoint = failed.Endpoint
	if other == first && hasEndpoint(c, first) {
		out.Endpoint = "ok"
	}
	return out, nil
}

// hasEndpoint reports whether an address is the endpoint of all control planes, and not one of them.
func hasEndpoint(c *v1alpha1.Cluster, address string) bool {
	ep := c.Spec.ControlPlaneEndpoint
	host := ep.Address
	if host == "" && ep.Mode == v1alpha1.EndpointExternal {
		host = ep.Domain
	}
	return host != "" && address == net.JoinHostPort(host, strconv.Itoa(ep.Port))
}

// queryAddress queries the API at an address.
func (in *Inspector) queryAddress(
	ctx context.Context, c *v1alpha1.Cluster, admin []byte, address string, limit time.Duration,
) (*APIReport, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client, err := kube.New(admin, in.c.DialAPI, kube.Options{Address: address})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	nodes, err := client.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	out := (&apiResult{answers: true, nodes: nodes}).report(c)
	out.Address = address
	return out, nil
}

// report returns a result as a report.
func (a *apiResult) report(c *v1alpha1.Cluster) *APIReport {
	var in Info
	for _, h := range c.Spec.Hosts {
		if hostroles.RunsKubelet(h.Roles) {
			in.Nodes = append(in.Nodes, NodeInfo{Name: h.Name, Roles: h.Roles, Ready: "Unknown"})
		}
	}
	a.addTo(&in)
	return &APIReport{Answers: a.answers, Message: a.message, Through: a.through, Nodes: in.Nodes}
}

// QueryAPIThroughHosts queries the API of a cluster over SSH, through the control plane that is reached
// first.
func (in *Inspector) QueryAPIThroughHosts(ctx context.Context, name string) (*APIReport, error) {
	c, err := in.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, s, done, err := in.StartSession(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	s.Select(func(h v1alpha1.Host) bool { return spec.HasRole(h, v1alpha1.RoleControlPlane) })
	var asked sync.WaitGroup
	var api *apiResult
	asked.Go(func() { api = s.queryAPI(ctx) })
	s.QueryHosts(ctx, in.Limits.Host, nil, func(context.Context, *Host) {})
	asked.Wait()
	out := api.report(c)
	out.Message = cmp.Or(out.Message, api.message)
	return out, nil
}
