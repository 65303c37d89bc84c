package record

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

// Doors are where the API may be reached from outside of the cluster, as host
// and port: at its endpoint, if that is there for others than the nodes, and at
// each control plane, in the order of the file, whoever speaks for the cluster
// just now. There are none before the description is complete.
func Doors(c *v1alpha1.Cluster) (doors []string) {
	ep := c.Spec.ControlPlaneEndpoint
	if ep.Port == 0 {
		return nil
	}
	add := func(address string) {
		door := net.JoinHostPort(address, strconv.Itoa(ep.Port))
		if address != "" && !slices.Contains(doors, door) {
			doors = append(doors, door)
		}
	}
	switch {
	case ep.Mode == v1alpha1.EndpointUpdater: // the Service's address is the nodes' alone
	case ep.Address == "" && ep.Mode == v1alpha1.EndpointExternal:
		add(ep.Domain)
	default:
		add(ep.Address)
	}
	for _, h := range spec.HostsWithRole(c, v1alpha1.RoleControlPlane) {
		if h.Address == "localhost" { // another host elsewhere
			h.Address = module.InternalAddress(h)
		}
		add(h.Address)
	}
	return doors
}

// IDUntrusted identifies the refusal of a kubeconfig from a host; see
// docs/guide/errors.md.
const IDUntrusted = "kubeconfig-untrusted"

// Outside returns a kubeconfig for use away from the nodes, made from that of a
// control plane, with the first of the doors as its server. recorded is the
// kubeconfig on record; nil if there is none. A diag.List says why the control
// plane's is refused.
func Outside(env module.Env, from kubeconfig.Untrusted, recorded []byte) ([]byte, error) {
	admin, err := from.Verify(kubeconfig.RecordedCA(recorded))
	if err != nil {
		d := diag.Diagnostic{
			ID: IDUntrusted, Severity: diag.Error, Message: "the control plane's /etc/kubernetes/admin.conf is refused: " + err.Error(),
			Hint: "find out who changed the file; then move it away on the host and run 'slipway apply " + env.Cluster.Name + "', which creates it again",
		}
		if errors.Is(err, kubeconfig.ErrOtherCA) {
			d.Hint = "if the CA was rotated from another machine, compare /etc/kubernetes/pki/ca.crt on all control planes, then move " +
				"$SLIPWAY_HOME/clusters/" + env.Cluster.Name + "/kubeconfig away; if not, find out who changed the file"
		}
		return nil, diag.List{d}
	}
	return Through(env, admin, Doors(env.Cluster)[0])
}

// Through returns a kubeconfig that has one of the doors as its server. Nodes
// know the API by a name that other machines may not resolve, so the address is
// used, and the certificate is verified for the name.
func Through(env module.Env, admin kubeconfig.Admin, door string) ([]byte, error) {
	admin.Cluster, admin.Server, admin.TLSServerName = env.Cluster.Name, "https://"+door, env.Cluster.Spec.ControlPlaneEndpoint.Domain
	return admin.Bytes()
}
