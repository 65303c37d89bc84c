// Package componentargs knows the arguments of components that a cluster file must not change.
package componentargs

import (
	"slices"
	"strings"

	"slipway.dev/slipway/internal/release/settings"
)

// Hints.
const (
	leaveOut    = "leave it out"
	useServices = "leave it out, and write spec.network.serviceCIDR"
	usePods     = "leave it out, and write spec.network.podCIDR"
	useAddress  = "leave it out, and write internalAddress of the host in spec.hosts"
	useHostName = "leave it out, and write the name of the host in spec.hosts"
	useEtcd     = "leave it out, and write spec.etcd"
	useRuntime  = "leave it out, and write spec.containerRuntime"
	useConfig   = "leave it out, and write the settings in spec.kubernetes.kubelet.config"
	useNames    = "leave it out, and write names of the certificate in spec.kubernetes.apiServer.certSANs"
)

// A managed argument has a value that Slipway or kubeadm sets.
type managed struct {
	hint string
	also []string // values that are accepted, because they change nothing
}

// table has the managed arguments of each component. Another value contradicts a field of the cluster file, or
// names another file than operations read and replace. A name that ends with '-' stands for all names that begin
// with it.
var table = map[string]map[string]managed{
	settings.APIServer: {
		"advertise-address": {hint: useAddress}, "secure-port": {hint: leaveOut},
		"bind-address": {hint: leaveOut, also: []string{"0.0.0.0", "::"}},
		"etcd-servers": {hint: useEtcd}, "etcd-cafile": {hint: useEtcd}, "etcd-certfile": {hint: useEtcd}, "etcd-keyfile": {hint: useEtcd},
		"service-cluster-ip-range":    {hint: useServices},
		"enable-bootstrap-token-auth": {hint: leaveOut, also: []string{"true"}},
		"client-ca-file":              {hint: leaveOut}, "requestheader-client-ca-file": {hint: leaveOut},
		"tls-cert-file": {hint: useNames}, "tls-private-key-file": {hint: useNames},
		"kubelet-client-certificate": {hint: leaveOut}, "kubelet-client-key": {hint: leaveOut},
		"proxy-client-cert-file": {hint: leaveOut}, "proxy-client-key-file": {hint: leaveOut},
		"service-account-key-file": {hint: leaveOut}, "service-account-signing-key-file": {hint: leaveOut},
	},
	settings.ControllerManager: {
		"kubeconfig": {hint: leaveOut}, "authentication-kubeconfig": {hint: leaveOut}, "authorization-kubeconfig": {hint: leaveOut},
		"client-ca-file": {hint: leaveOut}, "requestheader-client-ca-file": {hint: leaveOut}, "root-ca-file": {hint: leaveOut},
		"cluster-signing-cert-file": {hint: leaveOut}, "cluster-signing-key-file": {hint: leaveOut},
		"service-account-private-key-file": {hint: leaveOut}, "secure-port": {hint: leaveOut},
		"cluster-cidr": {hint: usePods}, "service-cluster-ip-range": {hint: useServices},
		"leader-elect": {hint: leaveOut, also: []string{"true"}},
	},
	settings.Scheduler: {
		"kubeconfig": {hint: leaveOut}, "authentication-kubeconfig": {hint: leaveOut}, "authorization-kubeconfig": {hint: leaveOut},
		"client-ca-file": {hint: leaveOut}, "secure-port": {hint: leaveOut},
		"leader-elect": {hint: leaveOut, also: []string{"true"}},
	},
	settings.Kubelet: {
		"kubeconfig": {hint: leaveOut}, "bootstrap-kubeconfig": {hint: leaveOut}, "client-ca-file": {hint: leaveOut},
		"config": {hint: useConfig}, "config-dir": {hint: useConfig}, "container-runtime-endpoint": {hint: useRuntime},
		"node-ip": {hint: useAddress}, "hostname-override": {hint: useHostName},
	},
	// Join, restore and rescue depend on these values. With another one, a member is recreated, or separated from
	// the others.
	settings.Etcd: {
		"name": {hint: leaveOut}, "data-dir": {hint: leaveOut}, "wal-dir": {hint: leaveOut},
		"initial-cluster": {hint: leaveOut}, "initial-cluster-": {hint: leaveOut}, "initial-advertise-": {hint: leaveOut},
		"listen-peer-": {hint: leaveOut}, "listen-client-": {hint: leaveOut}, "advertise-": {hint: leaveOut},
		"discovery": {hint: leaveOut}, "discovery-": {hint: leaveOut},
		"force-new-cluster": {hint: leaveOut}, "strict-reconfig-check": {hint: leaveOut},
		"cert-file": {hint: leaveOut}, "key-file": {hint: leaveOut}, "trusted-ca-file": {hint: leaveOut},
		"client-cert-auth": {hint: leaveOut}, "auto-tls": {hint: leaveOut},
		"peer-cert-file": {hint: leaveOut}, "peer-key-file": {hint: leaveOut}, "peer-trusted-ca-file": {hint: leaveOut},
		"peer-client-cert-auth": {hint: leaveOut}, "peer-auto-tls": {hint: leaveOut},
	},
}

// IsManaged reports whether Slipway sets an argument of a component, so that a cluster file must not give it this
// value. It also returns what to write instead.
func IsManaged(component, name, value string) (hint string, is bool) {
	for known, m := range table[component] {
		if known == name || strings.HasSuffix(known, "-") && strings.HasPrefix(name, known) {
			return m.hint, !slices.Contains(m.also, value)
		}
	}
	return "", false
}

// NodePorts is the argument of the API server for the ports of Services.
const NodePorts = "service-node-port-range"
