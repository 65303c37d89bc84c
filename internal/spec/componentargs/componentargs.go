// Package componentargs knows the arguments of components that a cluster file must not change.
package componentargs

import (
	"cmp"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/release/settings"
)

// Hints that name the field to write instead.
const (
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
	hint string   // "" if there is no field to write instead
	also []string // values that are accepted, because they change nothing
}

// table has the managed arguments of each component. Another value contradicts a field of the cluster file, or
// names another file than operations read and replace. A name that ends with '-' stands for all names that begin
// with it.
var table = map[string]map[string]managed{
	settings.APIServer: {
		"advertise-address": {hint: useAddress}, "secure-port": {},
		"bind-address": {also: []string{"0.0.0.0", "::"}},
		"etcd-servers": {hint: useEtcd}, "etcd-cafile": {hint: useEtcd}, "etcd-certfile": {hint: useEtcd}, "etcd-keyfile": {hint: useEtcd},
		"service-cluster-ip-range":    {hint: useServices},
		"enable-bootstrap-token-auth": {also: []string{"true"}},
		"client-ca-file":              {}, "requestheader-client-ca-file": {},
		"tls-cert-file": {hint: useNames}, "tls-private-key-file": {hint: useNames},
		"kubelet-client-certificate": {}, "kubelet-client-key": {},
		"proxy-client-cert-file": {}, "proxy-client-key-file": {},
		"service-account-key-file": {}, "service-account-signing-key-file": {},
	},
	settings.ControllerManager: {
		"kubeconfig": {}, "authentication-kubeconfig": {}, "authorization-kubeconfig": {},
		"client-ca-file": {}, "requestheader-client-ca-file": {}, "root-ca-file": {},
		"cluster-signing-cert-file": {}, "cluster-signing-key-file": {},
		"service-account-private-key-file": {}, "secure-port": {},
		"cluster-cidr": {hint: usePods}, "service-cluster-ip-range": {hint: useServices},
		"leader-elect": {also: []string{"true"}},
	},
	settings.Scheduler: {
		"kubeconfig": {}, "authentication-kubeconfig": {}, "authorization-kubeconfig": {},
		"client-ca-file": {}, "secure-port": {},
		"leader-elect": {also: []string{"true"}},
	},
	settings.Kubelet: {
		"kubeconfig": {}, "bootstrap-kubeconfig": {}, "client-ca-file": {},
		"config": {hint: useConfig}, "config-dir": {hint: useConfig}, "container-runtime-endpoint": {hint: useRuntime},
		"node-ip": {hint: useAddress}, "hostname-override": {hint: useHostName},
	},
	// Join, restore and rescue depend on these values. With another one, a member is recreated, or separated from
	// the others.
	settings.Etcd: {
		"name": {}, "data-dir": {}, "wal-dir": {}, "config-file": {},
		"initial-cluster": {}, "initial-cluster-": {}, "initial-advertise-": {},
		"listen-peer-": {}, "listen-client-": {}, "advertise-": {},
		"discovery": {}, "discovery-": {},
		"force-new-cluster": {}, "strict-reconfig-check": {},
		"cert-file": {}, "key-file": {}, "trusted-ca-file": {},
		"client-cert-auth": {}, "auto-tls": {},
		"peer-cert-file": {}, "peer-key-file": {}, "peer-trusted-ca-file": {},
		"peer-client-cert-auth": {}, "peer-auto-tls": {},
	},
}

// IsManaged reports whether Slipway sets an argument of a component, so that a cluster file must not give it this
// value. It also returns what to write instead.
func IsManaged(component, name, value string) (hint string, is bool) {
	for known, m := range table[component] {
		if known == name || strings.HasSuffix(known, "-") && strings.HasPrefix(name, known) {
			return cmp.Or(m.hint, "leave it out"), !slices.Contains(m.also, value)
		}
	}
	return "", false
}

// NodePorts is the argument of the API server for the ports of Services.
const NodePorts = "service-node-port-range"
