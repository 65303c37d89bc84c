package module

import (
	"fmt"
	"net"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

// ServingCert is the serving certificate that a kubelet gets from the cluster, with
// its key. The kubelet renews both.
const ServingCert = "/var/lib/kubelet/pki/kubelet-server-current.pem"

// KubeletIdentity returns the name and addresses that a kubelet may request a certificate
// for: the name of the node, and the addresses at which other nodes reach it. With dual
// stack the second address comes from the facts of the host, and is missing without them.
func (e Env) KubeletIdentity(h *engine.Host) op.KubeletIdentity {
	id := op.KubeletIdentity{Name: h.Name, Addresses: []string{InternalAddress(h.Host)}}
	if len(e.Cluster.Spec.Network.PodCIDR) > 1 && h.Facts != nil {
		if other := facts.OtherAddress(h.Facts, id.Addresses[0]); other != "" {
			id.Addresses = append(id.Addresses, other)
		}
	}
	return id
}

// KubeletAddress returns the address at which a kubelet serves.
func (e Env) KubeletAddress(h *engine.Host) string {
	port := "10250"
	if v, ok := e.Cluster.Spec.Kubernetes.Kubelet.Config["port"]; ok {
		port = fmt.Sprint(v)
	}
	return net.JoinHostPort(InternalAddress(h.Host), port)
}
