// Package module is what the modules below it share: what they are made for,
// and the keys of the values they hand to each other. Modules never import
// one another.
package module

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// An Env is what a pipeline is made for. The cluster is complete: defaults
// are filled in and paths are absolute.
type Env struct {
	Cluster *v1alpha1.Cluster
	Release release.Release
	// Leaving are hosts that the cluster has and its description has not any
	// more: they are taken off it.
	Leaving []Leaving
	// Removal says how.
	Removal Removal
	// Upgrade says how nodes are taken to another version.
	Upgrade Upgrade
	// Absent are hosts of the description that take no part: they are not
	// concerned, or cannot be reached and it goes on without them.
	Absent []v1alpha1.Host
	// Leader is the control plane that speaks for a cluster that exists: one
	// that is alive and has it. "" is the first, on which it is to begin.
	Leader string
	// Passwords are those of registries, by name.
	Passwords map[string]secret.String
	// CopySecrets are what hosts log in with where copies of backups are kept, by the
	// target's name.
	CopySecrets map[string]secret.String
	// BackupKey signs the backup sets of hosts that copy their snapshots, in PEM form, and
	// BackupSigner is its public half; "" where no host makes sets.
	BackupKey    secret.String
	BackupSigner string
	// Registry is what is secret, or made by chance, of the registry that one of
	// the hosts is; nil if none is.
	Registry *Registry
	// Gated says that the cluster runs: what served before must serve after each
	// restart of something on its nodes.
	Gated bool
	// Coming are the names of hosts that the cluster did not have before.
	Coming []string
	// SignsApart says that the cluster's authority is being exchanged, and that the
	// control plane that speaks for the cluster signs with what is in SigningCert,
	// and not with what all trust: so do those that join.
	SignsApart bool
	// Reconfigures says that it gets other settings, which may be none to start
	// with, OtherEtcd that its members of etcd do, and OtherProxy that kube-proxy does.
	Reconfigures, OtherEtcd, OtherProxy bool
	// KubeletStates are the state files of kubelets with which a kubelet does not start
	// under its new settings. They are removed when it is restarted, on a drained node.
	KubeletStates []string
	// Migrates says that its containers come to be run by another runtime, and
	// Between names the nodes that are in the midst of it: what the one before ran
	// may have ended, and nothing serves there yet.
	Migrates bool
	Between  []string
}

// A Leaving is a host that is taken off a cluster.
type Leaving struct {
	v1alpha1.Host
	// Gone says that the host is given up: it does not answer, and what is on
	// it stays there. Why is what it was found to be.
	Gone bool
	Why  string
	// MachineID is that of its node when it was last seen, if it was.
	MachineID string
	// Off says that it is off the records: a node of its name need not be it.
	Off bool
}

// A Removal says how nodes are taken off.
type Removal struct {
	// Force lets pods be deleted that have no controller, or a disruption
	// budget that never lets them go, and hosts be given up that run.
	Force bool
	// DrainTimeout bounds how long pods of a node are waited for; 0 is
	// DefaultDrainTimeout.
	DrainTimeout time.Duration
}

// An Upgrade says how nodes are taken to another version of Kubernetes.
type Upgrade struct {
	// MaxUnavailable is how many workers are out of service at once, a number or
	// a share of them; "" is one.
	MaxUnavailable string
	// PauseAfter is behind which waves of nodes it stops.
	PauseAfter Pause
	// Resumed says that it goes on: a node may be unready by what was begun.
	Resumed bool
	// Backup says that data and keys are kept before anything is changed.
	Backup bool
	// Back says that it goes back to the version before: in the order turned.
	// Begun are the steps that the way there has begun, as "task@host".
	Back  bool
	Begun map[string]bool
}

// Takes says that a step is to be taken on a host: on the way back those alone
// that were on the way there.
func (u Upgrade) Takes(task string, h *engine.Host) bool {
	return !u.Back || u.Begun[task+"@"+h.Name]
}

// A Pause is where an upgrade stops, to be looked at and gone on with.
type Pause string

// The places: behind the first control plane, behind all of them, behind each
// wave of nodes.
const (
	PauseCanary       Pause = "canary"
	PauseControlPlane Pause = "control-plane"
	PauseWave         Pause = "wave"
)

// DefaultDrainTimeout bounds how long pods of a node are waited for.
const DefaultDrainTimeout = 10 * time.Minute

// Content is a bundle, as the modules see it.
type Content interface {
	Component(name, arch string) (bundle.Component, error)
	Image(name, arch string) (op.Image, error)
	// Components and Images are all that it has, for all architectures.
	Components() []bundle.Component
	Images() []bundle.Image
}

// Keys of values that go from one module to another.
var (
	// KeyContent is the opened bundle.
	KeyContent = engine.NewKey[Content]("bundle", unknownContent{})
	// KeyKube is a client with administrator's rights.
	KeyKube = engine.NewKey[*kube.Client]("kube", nil)
	// KeyKubeBefore is such a client from before nodes get other settings.
	KeyKubeBefore = engine.NewKey[*kube.Client]("kube-before", nil)
	// KeyKubeletStarted is when the host's kubelet was started, by its clock.
	KeyKubeletStarted = engine.NewHostKey[*time.Time]("kubelet-started", nil)
)

// FirstControlPlane is the host on which the cluster begins; of one that
// exists, that which speaks for it.
func (e Env) FirstControlPlane() v1alpha1.Host {
	for _, h := range e.Cluster.Spec.Hosts {
		if h.Name == e.Leader {
			return h
		}
	}
	for _, h := range e.Cluster.Spec.Hosts {
		if slices.Contains(h.Roles, v1alpha1.RoleControlPlane) {
			return h
		}
	}
	return v1alpha1.Host{}
}

// IsFirst selects that host.
func (e Env) IsFirst(h *engine.Host) bool { return h.Name == e.FirstControlPlane().Name }

// Leaves selects hosts that are taken off the cluster.
func (e Env) Leaves(h *engine.Host) bool {
	return slices.ContainsFunc(e.Leaving, func(l Leaving) bool { return l.Name == h.Name })
}

// Stays selects hosts that are in the cluster's description.
func (e Env) Stays(h *engine.Host) bool { return !e.Leaves(h) }

// Resets selects hosts that leave and are put back as they were.
func (e Env) Resets(h *engine.Host) bool {
	return slices.ContainsFunc(e.Leaving, func(l Leaving) bool { return l.Name == h.Name && !l.Gone })
}

// Comes selects hosts that the cluster did not have before.
func (e Env) Comes(h *engine.Host) bool { return slices.Contains(e.Coming, h.Name) }

// WithLeaving is the cluster's description with the hosts that leave: what is
// on record until they have left.
func (e Env) WithLeaving() *v1alpha1.Cluster {
	c := *e.Cluster
	c.Spec.Hosts = slices.Clone(c.Spec.Hosts)
	for _, l := range e.Leaving {
		c.Spec.Hosts = append(c.Spec.Hosts, l.Host)
	}
	return &c
}

// Docker says that containers are run by Docker.
func (e Env) Docker() bool { return spec.Docker(e.Cluster) }

// RuntimeSocket is where the kubelet, and all else that speaks its language,
// finds the runtime.
func (e Env) RuntimeSocket() string {
	if e.Docker() {
		return "unix:///run/cri-dockerd.sock"
	}
	return "unix:///run/containerd/containerd.sock"
}

// DockerUnit has the kubelet of a node use Docker: it is on no other node.
const DockerUnit = facts.DockerUnit

// HasDocker says that containers on a host are run by Docker, or about to be:
// while a cluster moves, that need not be what its description says.
func HasDocker(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, DockerUnit)
}

// Moves selects nodes whose containers are still run by the runtime before.
func (e Env) Moves(h *engine.Host) bool { return e.Migrates && Holds(h) && HasDocker(h) != e.Docker() }

// IsNode selects hosts that run a kubelet.
func IsNode(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleControlPlane) || h.HasRole(v1alpha1.RoleWorker)
}

// JoinsAsWorker selects hosts that join as plain workers.
func JoinsAsWorker(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleWorker) && !h.HasRole(v1alpha1.RoleControlPlane)
}

// InitMark is what kubeadm makes on the host on which a cluster begins, and on
// no other.
const InitMark = "/etc/kubernetes/super-admin.conf"

// LeadMark is on a control plane that speaks for a cluster which began on
// another one.
const LeadMark = "/etc/kubernetes/slipway/leads"

// LeavesMark is on a control plane or a member of etcd that has begun to leave:
// etcd goes on without it, and does not take it back with the data that it has.
const LeavesMark = "/etc/kubernetes/slipway/leaves"

// Begins selects the control plane on which the cluster begins, or began. When
// that one has left there is none any more.
func (e Env) Begins(h *engine.Host) bool {
	return e.IsFirst(h) && (e.Leader == "" || h.Facts != nil && slices.Contains(h.Facts.Present, InitMark))
}

// JoinsAsControlPlane selects control planes but the one on which the cluster
// begins.
func (e Env) JoinsAsControlPlane(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleControlPlane) && !e.Begins(h)
}

// APIServerManifest is the static pod of a control plane's API server.
const APIServerManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// ClientCert is what a kubelet gets when a cluster lets it in. Its kubeconfig,
// which names it, may be there before.
const ClientCert = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// Holds says that a host holds a kubelet's credentials: it is a node, or has
// been one.
func Holds(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, ClientCert)
}

// Joins selects nodes but the one on which the cluster begins.
func (e Env) Joins(h *engine.Host) bool { return IsNode(h) && !e.Begins(h) }

// InternalAddress is where other nodes reach a host.
func InternalAddress(h v1alpha1.Host) string { return spec.InternalAddress(h) }

// Endpoint is the API's name and port as nodes use it.
func (e Env) Endpoint() string {
	ep := e.Cluster.Spec.ControlPlaneEndpoint
	return net.JoinHostPort(ep.Domain, strconv.Itoa(ep.Port))
}

// Validity is how long certificates are valid that are made for the cluster.
func (e Env) Validity() time.Duration {
	if v := e.Cluster.Spec.Kubernetes.Certificates.Validity; v != nil {
		return v.Duration
	}
	return spec.DefaultValidity
}

// Arch is a host's architecture.
func Arch(h *engine.Host) string {
	if h.Arch != "" {
		return h.Arch
	}
	if h.Facts != nil {
		return h.Facts.Arch
	}
	return ""
}

// Programs fetches a component of the bundle and unpacks what is below strip
// into dir.
func Programs(s *engine.Scope, name, strip, dir string, members ...string) (op.List, error) {
	u, err := Program(s, name, strip, dir, members...)
	if err != nil {
		return nil, err
	}
	return op.List{Fetch(u), u}, nil
}

// Program unpacks a component of the bundle.
func Program(s *engine.Scope, name, strip, dir string, members ...string) (op.Unpack, error) {
	c, err := engine.Get(s, KeyContent).Component(name, Arch(s.Host()))
	if err != nil {
		return op.Unpack{}, fmt.Errorf("taking %s from the bundle: %w", name, err)
	}
	return op.Unpack{Blob: c.Blob, Name: name, Dir: dir, Strip: strip, Members: members}, nil
}

// Fetch has on a host what is unpacked there.
func Fetch(u op.Unpack) op.FetchBlob { return op.FetchBlob{Blob: u.Blob, Name: u.Name} }

// Image is one of the bundle's, for a host.
func Image(s *engine.Scope, name string) (op.Image, error) {
	img, err := engine.Get(s, KeyContent).Image(name, Arch(s.Host()))
	if err != nil {
		return op.Image{}, fmt.Errorf("taking image %s from the bundle: %w", name, err)
	}
	return img, nil
}

// unknownContent stands in for a bundle that is yet to be made.
type unknownContent struct{}

// unknownDigest is that of no blob, and well-formed: hosts check what they are
// asked before the bundle is known.
const unknownDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func (unknownContent) Component(name, arch string) (bundle.Component, error) {
	return bundle.Component{Name: name, Arch: arch, Blob: op.Blob{Digest: unknownDigest}}, nil
}

func (unknownContent) Components() []bundle.Component { return nil }

func (unknownContent) Images() []bundle.Image { return nil }

func (unknownContent) Image(name, _ string) (op.Image, error) {
	return op.Image{Ref: name, Manifest: op.Blob{Digest: unknownDigest}}, nil
}
