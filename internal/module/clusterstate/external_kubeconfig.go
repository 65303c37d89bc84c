package clusterstate

import (
	"errors"
	"net"
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// APIAddresses returns the API addresses from outside of the cluster, as host and port: the
// endpoint, if it is reachable for others than the nodes, and each control plane, in the
// order of the file. It returns none before the description is complete.
func APIAddresses(c *v1alpha1.Cluster) (addresses []string) {
	ep := c.Spec.ControlPlaneEndpoint
	if ep.Port == 0 {
		return nil
	}
	add := func(host string) {
		address := net.JoinHostPort(host, strconv.Itoa(ep.Port))
		if host != "" && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	switch {
	case ep.Mode == v1alpha1.EndpointUpdater: // only nodes can reach the address of the Service
	case ep.Address == "" && ep.Mode == v1alpha1.EndpointExternal:
		add(ep.Domain)
	default:
		add(ep.Address)
	}
	for _, h := range spec.HostsWithRole(c, v1alpha1.RoleControlPlane) {
		if h.Address == "localhost" { // it would mean another host elsewhere
			h.Address = module.InternalAddress(h)
		}
		add(h.Address)
	}
	return addresses
}

// IDUntrusted identifies the rejection of a kubeconfig from a host; see
// docs/guide/errors.md.
const IDUntrusted = "kubeconfig-untrusted"

// MakeExternalKubeconfig returns a kubeconfig for use outside of the nodes, made from the kubeconfig of a
// control plane, with the first API address as its server. recorded is the saved
// kubeconfig; nil if there is none. A diag.List contains the reason why the kubeconfig of
// the control plane is rejected.
func MakeExternalKubeconfig(env module.Env, from kubeconfig.Untrusted, recorded []byte) ([]byte, error) {
	admin, err := from.Verify(kubeconfig.RecordedCA(recorded))
	if err != nil {
		d := diag.Diagnostic{
			ID: IDUntrusted, Severity: diag.Error, Message: "/etc/kubernetes/admin.conf of the control plane is rejected: " + err.Error(),
			Hint: "find out who changed the file; " +
				"then move it away on the host and run 'slipway apply " + env.Cluster.Name + "', which creates it again",
		}
		if errors.Is(err, kubeconfig.ErrOtherCA) {
			d.Hint = "if the CA was rotated from another machine, compare /etc/kubernetes/pki/ca.crt on all control planes, then move " +
				"$SLIPWAY_HOME/clusters/" + env.Cluster.Name + "/kubeconfig away. Otherwise find out who changed the file"
		}
		return nil, diag.List{d}
	}
	return MakeKubeconfigFor(env, admin, APIAddresses(env.Cluster)[0])
}

// MakeKubeconfigFor returns a kubeconfig that has an API address as its server. Nodes reach the
// API by a name that other machines may not resolve, so the address is used, and the
// certificate is verified for the name.
func MakeKubeconfigFor(env module.Env, admin kubeconfig.Admin, address string) ([]byte, error) {
	admin.Cluster, admin.Server, admin.TLSServerName = env.Cluster.Name, "https://"+address, env.Cluster.Spec.ControlPlaneEndpoint.Domain
	return admin.Bytes()
}
