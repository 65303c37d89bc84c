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
)

// Where hosts have what they need to serve and to ask etcd, whoever runs it;
// the names of certificates are kubeadm's.
const (
	Etcdctl        = "/usr/local/bin/etcdctl"
	Etcdutl        = "/usr/local/bin/etcdutl"
	EtcdPKI        = "/etc/kubernetes/pki/etcd"
	EtcdCA         = EtcdPKI + "/ca.crt"
	EtcdHealthCert = EtcdPKI + "/healthcheck-client.crt" // of hosts with a member
	EtcdHealthKey  = EtcdPKI + "/healthcheck-client.key"
	EtcdClientCert = "/etc/kubernetes/pki/apiserver-etcd-client.crt"
	EtcdClientKey  = "/etc/kubernetes/pki/apiserver-etcd-client.key"
)

// EtcdPrograms are those of etcd; control planes and members have them.
func EtcdPrograms() op.EtcdPrograms {
	return op.EtcdPrograms{Server: "/usr/local/bin/etcd", Program: Etcdctl, Utility: Etcdutl}
}

// What runs etcd as a service.
const (
	EtcdUnitName = facts.EtcdUnit
	EtcdUnitFile = "/etc/systemd/system/" + EtcdUnitName
)

// EtcdUnit is the service as it shall run. Certificates are read by etcd at each
// connection, the authority once.
func EtcdUnit() op.Unit {
	return op.Unit{
		Name: EtcdUnitName, Enabled: op.Bool(true), Running: op.Bool(true),
		RestartOn: []string{EtcdUnitFile, EtcdCA, EtcdPrograms().Server},
	}
}

// OwnEtcd is where a member of etcd that is a service listens on its host.
func OwnEtcd() string { return etcdURL(loopback4, facts.EtcdClientPort) }

const loopback4, loopback6 = "127.0.0.1", "::1"

// loopback is where hosts ask their own member of etcd: kubeadm has one in a pod listen
// at the address of the IP version that its host has in the cluster, and at no other.
func (e Env) loopback() string {
	if e.Stacked() && strings.Contains(InternalAddress(e.FirstControlPlane()), ":") {
		return loopback6
	}
	return loopback4
}

// OwnMember is where a host asks its own member of etcd.
func (e Env) OwnMember() string { return etcdURL(e.loopback(), facts.EtcdClientPort) }

// OwnMemberReady is where a host's own member says that it answers a linearizable
// read: that it has caught up.
func (e Env) OwnMemberReady() string { return e.ownMember("/readyz") }

// OwnMemberRuns is where a host's own member says that it answers a read of its own,
// whether there are others or not.
func (e Env) OwnMemberRuns() string { return e.ownMember("/livez") }

func (e Env) ownMember(path string) string {
	return "http://" + net.JoinHostPort(e.loopback(), strconv.Itoa(facts.EtcdMetricsPort)) + path
}

// EtcdURL is where a host's member of etcd is reached.
func EtcdURL(h v1alpha1.Host, port int) string { return etcdURL(InternalAddress(h), port) }

func etcdURL(address string, port int) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(port))
}

// Stacked says that control planes have members of etcd in pods.
func (e Env) Stacked() bool { return len(e.EtcdEndpoints()) == 0 }

// RunsEtcd selects hosts that run etcd as a service, those that leave too.
func (e Env) RunsEtcd(h *engine.Host) bool {
	return e.Cluster.Spec.Etcd.Type == spec.EtcdManaged && h.HasRole(v1alpha1.RoleEtcd)
}

// Members are the hosts of a description that have a member of etcd: in a pod
// of a control plane, or as a service. Those of an etcd of others are none.
func (e Env) Members(c *v1alpha1.Cluster) []v1alpha1.Host {
	if e.Stacked() {
		return spec.HostsWithRole(c, v1alpha1.RoleControlPlane)
	}
	return spec.EtcdHosts(c)
}

// EtcdClient is how a host with a member asks the others.
func EtcdClient() op.EtcdClient {
	return op.EtcdClient{Program: Etcdctl, CA: EtcdCA, Cert: EtcdHealthCert, Key: EtcdHealthKey}
}

// AskMember asks a host's own member of etcd something about endpoints.
func (e Env) AskMember(what ...string) *op.Wait {
	return &op.Wait{Name: "etcd", TimeoutSeconds: 180, Program: append([]string{
		Etcdctl, "--endpoints=" + e.OwnMember(), "--cacert=" + EtcdCA, "--cert=" + EtcdHealthCert, "--key=" + EtcdHealthKey,
		"--dial-timeout=3s", "--command-timeout=8s", "endpoint",
	}, what...)}
}

// OwnMemberServes asks a host's own member of etcd whether it does.
func (e Env) OwnMemberServes() *op.Wait {
	w := e.AskMember("health")
	w.Name = "its member of etcd"
	return w
}

// EveryMember waits for all members of etcd to serve, as a host that has one asks
// them: what ends a member waits for it, so that no two are away at a time.
func (e Env) EveryMember() *op.Wait {
	w := e.AskMember("health", "--cluster")
	w.Name = "every member of etcd"
	return w
}

// Stored is what the keys begin with, in etcd, by which API servers keep all of a resource.
func (e Env) Stored(resource string) string {
	root := cmp.Or(e.Cluster.Spec.Kubernetes.APIServer.ExtraArgs["etcd-prefix"], "/registry")
	return "/" + strings.Trim(root, "/") + "/" + resource + "/"
}

// EtcdClientValidity is how long what a control plane asks a managed etcd with is valid.
// Where there is no member, and so no key of the authority, nobody renews it by itself: it
// is to last as long as the authority, for API servers without it are without etcd.
func (e Env) EtcdClientValidity(h *engine.Host) time.Duration {
	if e.RunsEtcd(h) {
		return e.Validity()
	}
	return e.Cluster.Spec.Kubernetes.Certificates.CAValidity.Duration
}

// EtcdClientPair returns what a control plane authenticates to a managed etcd with. Who
// signs it is left open.
func (e Env) EtcdClientPair(h *engine.Host, ca []byte) op.Certificate {
	return op.Certificate{
		Cert: EtcdClientCert, Key: EtcdClientKey, CA: ca, CommonName: "kube-apiserver-etcd-client", Client: true,
		ValiditySeconds: int64(e.EtcdClientValidity(h) / time.Second),
	}
}

// EtcdMark is on hosts whose member of etcd was seen in its cluster: from then on
// it does not start without its data.
func EtcdMark() op.File {
	return op.File{Path: facts.EtcdJoined, Mode: 0o600, Content: []byte("The member of etcd on this host is one of its cluster: it does not start without its data.\n")}
}

// EtcdPeer is the member of a host.
func EtcdPeer(h v1alpha1.Host, dead bool) op.EtcdPeer {
	return op.EtcdPeer{Name: h.Name, PeerURL: EtcdURL(h, facts.EtcdPeerPort), Dead: dead}
}

// WithoutMembers completes a removal with whom the first control plane asks.
func (e Env) WithoutMembers(o op.EtcdRemove) op.List {
	if len(o.Peers)+len(o.Known) == 0 {
		return nil
	}
	o.EtcdClient = EtcdClient()
	if !e.Stacked() { // it may have no member itself
		o.Cert, o.Key = EtcdClientCert, EtcdClientKey
	} else {
		o.Endpoints = []string{EtcdURL(e.FirstControlPlane(), facts.EtcdClientPort)}
	}
	for _, h := range e.Members(e.Cluster) {
		if url := EtcdURL(h, facts.EtcdClientPort); !slices.Contains(o.Endpoints, url) {
			o.Endpoints = append(o.Endpoints, url)
		}
	}
	return op.List{o}
}

// LostMembers is the removal of members that are lost, before others join: those
// of hosts that are given up, those in whose place there is another machine, and
// learners of machines that nobody knows any more. Each of them counts for the
// majority that must be up, or keeps etcd from taking another learner. joins
// says which hosts are to become members.
func (e Env) LostMembers(hosts []*engine.Host, joins func(*engine.Host) bool) op.List {
	var o op.EtcdRemove
	has := e.Members(e.WithLeaving())
	is := func(name string) bool {
		return slices.ContainsFunc(has, func(h v1alpha1.Host) bool { return h.Name == name })
	}
	for _, l := range e.Leaving {
		if l.Gone && is(l.Name) {
			o.Peers = append(o.Peers, EtcdPeer(l.Host, true))
		}
	}
	known := false
	for _, h := range hosts {
		if !e.Stays(h) || !is(h.Name) || !joins(h) {
			continue
		}
		if known = true; Blank(h) {
			o.Peers = append(o.Peers, EtcdPeer(h.Host, true))
		}
	}
	if known {
		for _, h := range has {
			o.Known = append(o.Known, EtcdPeer(h, false))
		}
	}
	return e.WithoutMembers(o)
}

// Blank says that there is nothing of a cluster on a host.
func Blank(h *engine.Host) bool {
	return h.Facts != nil && !slices.ContainsFunc([]string{facts.EtcdData, facts.EtcdJoined, "/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf", ClientCert}, func(p string) bool {
		return slices.Contains(h.Facts.Present, p)
	})
}

// EtcdEndpoints are the client URLs of an etcd outside of control planes'
// pods; none if it is stacked. The order of hosts is no difference.
func (e Env) EtcdEndpoints() []string {
	if x := e.Cluster.Spec.Etcd.External; x != nil {
		return x.Endpoints
	}
	var out []string
	for _, h := range spec.EtcdHosts(e.Cluster) {
		out = append(out, EtcdURL(h, facts.EtcdClientPort))
	}
	slices.Sort(out)
	return out
}
