package module

import (
	"net"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/spec"
)

// Where hosts have what they need to serve and to ask etcd, whoever runs it;
// the names of certificates are kubeadm's.
const (
	Etcdctl        = "/usr/local/bin/etcdctl"
	EtcdPKI        = "/etc/kubernetes/pki/etcd"
	EtcdCA         = EtcdPKI + "/ca.crt"
	EtcdHealthCert = EtcdPKI + "/healthcheck-client.crt" // of hosts with a member
	EtcdHealthKey  = EtcdPKI + "/healthcheck-client.key"
	EtcdClientCert = "/etc/kubernetes/pki/apiserver-etcd-client.crt"
	EtcdClientKey  = "/etc/kubernetes/pki/apiserver-etcd-client.key"
)

// OwnEtcd is where a host asks its own member of etcd.
func OwnEtcd() string { return etcdURL("127.0.0.1", facts.EtcdClientPort) }

// EtcdURL is where a host's member of etcd is reached.
func EtcdURL(h v1alpha1.Host, port int) string { return etcdURL(InternalAddress(h), port) }

func etcdURL(address string, port int) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(port))
}

// Stacked says that control planes have members of etcd in pods.
func (e Env) Stacked() bool { return len(e.EtcdEndpoints()) == 0 }

// RunsEtcd selects hosts that run etcd as a service.
func (e Env) RunsEtcd(h *engine.Host) bool {
	for _, m := range spec.EtcdHosts(e.Cluster) {
		if m.Name == h.Name {
			return true
		}
	}
	return false
}

// EtcdEndpoints are the client URLs of an etcd outside of control planes'
// pods; none if it is stacked.
func (e Env) EtcdEndpoints() []string {
	if x := e.Cluster.Spec.Etcd.External; x != nil {
		return x.Endpoints
	}
	var out []string
	for _, h := range spec.EtcdHosts(e.Cluster) {
		out = append(out, EtcdURL(h, facts.EtcdClientPort))
	}
	return out
}
