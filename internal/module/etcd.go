package module

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// Paths of the programs and certificates for serving and reaching etcd. The certificates
// have the names that kubeadm uses.
const (
	Etcdctl        = "/usr/local/bin/etcdctl"
	Etcdutl        = "/usr/local/bin/etcdutl"
	EtcdPKI        = "/etc/kubernetes/pki/etcd"
	EtcdCA         = EtcdPKI + "/ca.crt"
	EtcdHealthCert = EtcdPKI + "/healthcheck-client.crt" // on hosts with a member
	EtcdHealthKey  = EtcdPKI + "/healthcheck-client.key"
	EtcdClientCert = "/etc/kubernetes/pki/apiserver-etcd-client.crt"
	EtcdClientKey  = "/etc/kubernetes/pki/apiserver-etcd-client.key"
)

// EtcdPrograms returns the programs of etcd. Control planes and etcd members have them.
func EtcdPrograms() op.EtcdPrograms {
	return op.EtcdPrograms{Server: "/usr/local/bin/etcd", Program: Etcdctl, Utility: Etcdutl}
}

// The systemd unit of etcd.
const (
	EtcdUnitName = facts.EtcdUnit
	EtcdUnitFile = "/etc/systemd/system/" + EtcdUnitName
)

// EtcdUnit returns the wanted state of the service. etcd reads its certificates at each
// connection, but the CA only at its start.
func EtcdUnit() op.Unit {
	return op.Unit{
		Name: EtcdUnitName, Enabled: op.Bool(true), Running: op.Bool(true),
		RestartOn: []string{EtcdUnitFile, EtcdCA, EtcdPrograms().Server},
	}
}

// LocalEtcdURL returns the URL at which an etcd member that runs as a service listens
// on its host.
func LocalEtcdURL() string { return etcdURL(loopback4, hostroles.EtcdClientPort) }

const loopback4, loopback6 = "127.0.0.1", "::1"

// etcdLoopback returns the loopback address of the etcd member of a host. kubeadm makes a
// member in a pod listen only on the IP version of the host in the cluster.
func (e Env) etcdLoopback() string {
	if e.HasStackedEtcd() && strings.Contains(InternalAddress(e.FirstControlPlane()), ":") {
		return loopback6
	}
	return loopback4
}

// LocalMemberURL returns the URL of the etcd member of the host itself.
func (e Env) LocalMemberURL() string { return etcdURL(e.etcdLoopback(), hostroles.EtcdClientPort) }

// LocalMemberReadyURL returns the URL at which the etcd member of the host reports
// whether it can serve a linearizable read, so that it has caught up.
func (e Env) LocalMemberReadyURL() string { return e.localMetricsURL("/readyz") }

// LocalMemberAliveURL returns the URL at which the etcd member of the host reports
// whether it can serve a local read, with or without other members.
func (e Env) LocalMemberAliveURL() string { return e.localMetricsURL("/livez") }

func (e Env) localMetricsURL(path string) string {
	return "http://" + net.JoinHostPort(e.etcdLoopback(), strconv.Itoa(hostroles.EtcdMetricsPort)) + path
}

// EtcdURL returns the URL of the etcd member of a host.
func EtcdURL(h v1alpha1.Host, port int) string { return etcdURL(InternalAddress(h), port) }

func etcdURL(address string, port int) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(port))
}

// HasStackedEtcd reports whether control planes have etcd members in pods.
func (e Env) HasStackedEtcd() bool { return len(e.EtcdEndpoints()) == 0 }

// RunsEtcd selects hosts that run etcd as a service, including hosts that are leaving.
func (e Env) RunsEtcd(h *engine.Host) bool {
	return e.Cluster.Spec.Etcd.Type == spec.EtcdManaged && h.HasRole(v1alpha1.RoleEtcd)
}

// HasEtcdMember selects hosts that have an etcd member, in a pod or as a service.
func (e Env) HasEtcdMember(h *engine.Host) bool { return hostroles.RunsEtcd(e.Cluster, h.Roles) }

// EtcdMembers returns the hosts of a cluster that have an etcd member, in a pod of a control
// plane or as a service. For an external etcd there are none.
func (e Env) EtcdMembers(c *v1alpha1.Cluster) []v1alpha1.Host {
	if e.HasStackedEtcd() {
		return spec.HostsWithRole(c, v1alpha1.RoleControlPlane)
	}
	return spec.EtcdHosts(c)
}

// EtcdClient returns the credentials with which a host with an etcd member reaches the
// others.
func EtcdClient() op.EtcdClient {
	return op.EtcdClient{Program: Etcdctl, CA: EtcdCA, Cert: EtcdHealthCert, Key: EtcdHealthKey}
}

// WaitLocalMember returns a wait that runs a subcommand of `etcdctl endpoint` against
// the etcd member of the host.
func (e Env) WaitLocalMember(what ...string) *op.Wait {
	return &op.Wait{Name: "etcd", TimeoutSeconds: 180, Program: append([]string{
		Etcdctl, "--endpoints=" + e.LocalMemberURL(), "--cacert=" + EtcdCA, "--cert=" + EtcdHealthCert, "--key=" + EtcdHealthKey,
		"--dial-timeout=3s", "--command-timeout=8s", "endpoint",
	}, what...)}
}

// WaitLocalMemberHealthy returns a wait until the etcd member of the host is healthy.
func (e Env) WaitLocalMemberHealthy() *op.Wait {
	w := e.WaitLocalMember("health")
	w.Name = "etcd member of this host"
	return w
}

// WaitAllMembersHealthy returns a wait until all etcd members are healthy, for a host
// that has one. Every step that stops a member waits for it, so that two are never down
// at the same time.
func (e Env) WaitAllMembersHealthy() *op.Wait {
	w := e.WaitLocalMember("health", "--cluster")
	w.Name = "etcd cluster"
	return w
}

// StoragePrefix returns the prefix of the keys in etcd under which API servers store a resource.
func (e Env) StoragePrefix(resource string) string {
	root := cmp.Or(e.Cluster.Spec.Kubernetes.APIServer.ExtraArgs["etcd-prefix"], "/registry")
	return "/" + strings.Trim(root, "/") + "/" + resource + "/"
}

// EtcdClientValidity returns the validity of the certificate with which a control plane
// reaches a managed etcd. A host without a member has no key of the etcd CA and cannot
// renew the certificate automatically. It is then valid as long as the CA, because an API
// server without it has no etcd.
func (e Env) EtcdClientValidity(h *engine.Host) time.Duration {
	if e.RunsEtcd(h) {
		return e.CertValidity()
	}
	return e.Cluster.Spec.Kubernetes.Certificates.CAValidity.Duration
}

// EtcdClientPair returns the certificate with which a control plane authenticates to a
// managed etcd. The caller chooses the signer.
func (e Env) EtcdClientPair(h *engine.Host, ca []byte) op.Certificate {
	return op.Certificate{
		Cert: EtcdClientCert, Key: EtcdClientKey, CA: ca, CommonName: "kube-apiserver-etcd-client", Client: true,
		ValiditySeconds: int64(e.EtcdClientValidity(h) / time.Second),
	}
}

// MarkEtcdJoined returns a file for hosts whose etcd member has joined its cluster.
// With this file, the member does not start without its data.
func MarkEtcdJoined() op.File {
	return op.File{
		Path: facts.EtcdJoined, Mode: 0o600,
		Content: []byte("The etcd member on this host has joined its cluster: it does not start without its data.\n"),
	}
}

// EtcdPeer returns the etcd member of a host.
func EtcdPeer(h v1alpha1.Host, dead bool) op.EtcdPeer {
	return op.EtcdPeer{Name: h.Name, PeerURL: EtcdURL(h, hostroles.EtcdPeerPort), Dead: dead}
}

// CompleteMemberRemoval completes a removal with the endpoints and credentials that the
// leader control plane uses.
func (e Env) CompleteMemberRemoval(o op.EtcdRemove) op.List {
	if len(o.Peers)+len(o.Known) == 0 {
		return nil
	}
	o.EtcdClient = EtcdClient()
	if !e.HasStackedEtcd() { // it may have no member itself
		o.Cert, o.Key = EtcdClientCert, EtcdClientKey
	} else {
		o.Endpoints = []string{EtcdURL(e.FirstControlPlane(), hostroles.EtcdClientPort)}
	}
	for _, h := range e.EtcdMembers(e.Cluster) {
		if url := EtcdURL(h, hostroles.EtcdClientPort); !slices.Contains(o.Endpoints, url) {
			o.Endpoints = append(o.Endpoints, url)
		}
	}
	return op.List{o}
}

// RemoveLostMembers returns the removal of lost etcd members, before others join. Lost are
// members of force-removed hosts, members whose host was replaced with another machine,
// and learners of unknown machines. Each of them counts for the quorum, or prevents etcd
// from accepting another learner. joins reports whether a host is to become a member.
func (e Env) RemoveLostMembers(hosts []*engine.Host, joins func(*engine.Host) bool) op.List {
	var o op.EtcdRemove
	has := e.EtcdMembers(e.WithLeaving())
	is := func(name string) bool {
		return slices.ContainsFunc(has, func(h v1alpha1.Host) bool { return h.Name == name })
	}
	for _, l := range e.Leaving {
		if l.IsLost && is(l.Name) {
			o.Peers = append(o.Peers, EtcdPeer(l.Host, true))
		}
	}
	known := false
	for _, h := range hosts {
		if !e.IsStaying(h) || !is(h.Name) || !joins(h) {
			continue
		}
		if known = true; IsBlank(h) {
			o.Peers = append(o.Peers, EtcdPeer(h.Host, true))
		}
	}
	if known {
		for _, h := range has {
			o.Known = append(o.Known, EtcdPeer(h, false))
		}
	}
	return e.CompleteMemberRemoval(o)
}

// IsBlank reports whether a host has no part of a cluster.
func IsBlank(h *engine.Host) bool {
	return h.Facts != nil &&
		!slices.ContainsFunc([]string{
			facts.EtcdData, facts.EtcdJoined, "/etc/kubernetes/admin.conf",
			"/etc/kubernetes/kubelet.conf", ClientCert,
		}, func(p string) bool {
			return slices.Contains(h.Facts.Present, p)
		})
}

// EtcdEndpoints returns the client URLs of an etcd that does not run in pods of control
// planes; none if it is stacked. They are sorted, so the order of hosts makes no
// difference.
func (e Env) EtcdEndpoints() []string {
	if x := e.Cluster.Spec.Etcd.External; x != nil {
		return x.Endpoints
	}
	var out []string
	for _, h := range spec.EtcdHosts(e.Cluster) {
		out = append(out, EtcdURL(h, hostroles.EtcdClientPort))
	}
	slices.Sort(out)
	return out
}
