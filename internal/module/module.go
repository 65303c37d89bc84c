// Package module holds what all modules share: the environment of a pipeline, and the keys
// of values that modules pass to each other. Modules never import one another.
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

// An Env is the environment of a pipeline. The cluster is complete: defaults are set and
// paths are absolute.
type Env struct {
	Cluster *v1alpha1.Cluster
	Release release.Release
	// Leaving lists hosts that are removed from the cluster: the cluster has them, but its
	// description does not.
	Leaving []LeavingHost
	// Removal configures how they are removed.
	Removal Removal
	// Upgrade configures how nodes change their version.
	Upgrade Upgrade
	// Absent lists hosts of the description that do not take part: they are not selected,
	// or unreachable and ignored.
	Absent []v1alpha1.Host
	// FilesDir is the directory of the files of a Cluster object, which exists only for one operation; "" for a
	// cluster file.
	FilesDir string
	// Leader is the control plane that speaks for an existing cluster: it is reachable and
	// holds the cluster. "" means the first control plane, on which the cluster is
	// created.
	Leader string
	// Passwords holds the passwords of registries, by name.
	Passwords map[string]secret.String
	// CopySecrets holds the credentials for the storage of backup copies, by the name of
	// the target.
	CopySecrets map[string]secret.String
	// BackupKey signs the backup sets of hosts that copy their snapshots, in PEM form.
	// BackupSigner is its public half. Both are "" if no host creates sets.
	BackupKey    secret.String
	BackupSigner string
	// Registry holds the secret and generated values of the private registry; nil if there
	// is none.
	Registry *Registry
	// IsRunning reports whether the cluster is running: after each restart on a node,
	// everything that served before must serve again.
	IsRunning bool
	// Coming lists the names of hosts that are new in the cluster.
	Coming []string
	// SignsApart reports whether the cluster CA is being rotated and the leader signs with
	// SigningCert instead of the trusted CA. New control planes then do the same.
	SignsApart bool
	// NewControlPlaneSettings reports whether the control plane receives other settings, with which
	// it may not start.
	NewControlPlaneSettings bool
	// NewEtcdSettings reports whether etcd members receive such settings.
	NewEtcdSettings bool
	// NewProxySettings reports whether kube-proxy receives other settings.
	NewProxySettings bool
	// KubeletStates lists the state files with which a kubelet does not start under its
	// new settings. They are removed when the kubelet is restarted, on a drained node.
	KubeletStates []string
	// NewRuntime reports whether the cluster changes to another container runtime.
	// MidRuntimeChange lists the nodes that are in the middle of the change: their old containers may have
	// stopped, and nothing serves there yet.
	NewRuntime       bool
	MidRuntimeChange []string
	// Reboots maps the hosts that are rebooted to the ID of the boot that must end; nil if
	// no host is.
	Reboots map[string]string
}

// A LeavingHost is a host that is being removed from a cluster.
type LeavingHost struct {
	v1alpha1.Host
	// IsLost reports whether the host is force-removed: it does not answer, and its files
	// remain. Why is the reason.
	IsLost bool
	Why    string
	// MachineID is the machine id that its node last reported; "" if unknown.
	MachineID string
	// IsRemovedFromState reports whether the host is no longer in the state: a node with its name may be
	// another machine.
	IsRemovedFromState bool
}

// A Removal configures how nodes are removed.
type Removal struct {
	// Force allows the deletion of pods that have no controller or whose
	// PodDisruptionBudget never allows an eviction, and the force-removal of running
	// hosts.
	Force bool
	// DrainTimeout is how long to wait for the pods of a node; 0 means
	// DefaultDrainTimeout.
	DrainTimeout time.Duration
}

// An Upgrade configures how nodes change to another version of Kubernetes.
type Upgrade struct {
	// MaxUnavailable is how many workers are out of service at once, a number or a
	// percentage; "" means one.
	MaxUnavailable string
	// PauseAfter selects the waves of nodes after which the upgrade stops.
	PauseAfter Pause
	// Resumed reports whether the upgrade is a resume: a node may be not ready because of
	// the interrupted run.
	Resumed bool
	// Backup reports whether data and keys are backed up before any change.
	Backup bool
	// IsRollback reports whether this is a rollback to the previous version, in reverse order.
	// BegunSteps lists the steps that the upgrade had begun, as "task@host".
	IsRollback bool
	BegunSteps map[string]bool
}

// RunsStep reports whether a step runs on a host: a rollback runs only steps that the
// upgrade had begun.
func (u Upgrade) RunsStep(task string, h *engine.Host) bool {
	return !u.IsRollback || u.BegunSteps[task+"@"+h.Name]
}

// A Pause is a point at which an upgrade stops for inspection until it is resumed.
type Pause string

// The points: after the first control plane, after all control planes, after each wave of
// nodes.
const (
	PauseCanary       Pause = "canary"
	PauseControlPlane Pause = "control-plane"
	PauseWave         Pause = "wave"
)

// DefaultDrainTimeout is how long to wait for the pods of a node.
const DefaultDrainTimeout = 10 * time.Minute

// Content is the view that modules have of a bundle.
type Content interface {
	Component(name, arch string) (bundle.Component, error)
	Image(name, arch string) (op.Image, error)
	// Components and Images return everything in the bundle, for all architectures.
	Components() []bundle.Component
	Images() []bundle.Image
}

// Keys of values that modules pass to each other.
var (
	// KeyContent is the opened bundle.
	KeyContent = engine.NewKey[Content]("bundle", unknownContent{})
	// KeyKube is a client with administrator rights.
	KeyKube = engine.NewKey[*kube.Client]("kube", nil)
	// KeyKubeBefore is such a client from before nodes receive other settings.
	KeyKubeBefore = engine.NewKey[*kube.Client]("kube-before", nil)
	// KeyKubeletStarted is when the kubelet of the host was started, by the clock of the
	// host.
	KeyKubeletStarted = engine.NewHostKey[*time.Time]("kubelet-started", nil)
)

// FirstControlPlane returns the leader of an existing cluster, or else the control plane
// on which the cluster is created.
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

// IsLeaving selects hosts that are being removed from the cluster.
func (e Env) IsLeaving(h *engine.Host) bool {
	return slices.ContainsFunc(e.Leaving, func(l LeavingHost) bool { return l.Name == h.Name })
}

// IsStaying selects hosts that are in the description of the cluster.
func (e Env) IsStaying(h *engine.Host) bool { return !e.IsLeaving(h) }

// IsReset selects hosts that are being removed and reset.
func (e Env) IsReset(h *engine.Host) bool {
	return slices.ContainsFunc(e.Leaving, func(l LeavingHost) bool { return l.Name == h.Name && !l.IsLost })
}

// IsNew selects hosts that are new in the cluster.
func (e Env) IsNew(h *engine.Host) bool { return slices.Contains(e.Coming, h.Name) }

// WithLeaving returns the description of the cluster with the hosts that are leaving. The
// state has them until they have left.
func (e Env) WithLeaving() *v1alpha1.Cluster {
	c := *e.Cluster
	c.Spec.Hosts = slices.Clone(c.Spec.Hosts)
	for _, l := range e.Leaving {
		c.Spec.Hosts = append(c.Spec.Hosts, l.Host)
	}
	return &c
}

// PublicDescription returns a description without inline secrets and status, and with file names that do not
// depend on the operation: what the cluster and its backup sets contain.
func (e Env) PublicDescription(c *v1alpha1.Cluster) *v1alpha1.Cluster {
	out := spec.RedactCluster(c)
	out.Status = v1alpha1.ClusterStatus{} // it changes with every operation, and does not belong to the description
	spec.MakePathsRelative(out, e.FilesDir)
	return out
}

// UsesDocker reports whether Docker runs the containers.
func (e Env) UsesDocker() bool { return spec.UsesDocker(e.Cluster) }

// RuntimeSocket returns the CRI socket of the container runtime.
func (e Env) RuntimeSocket() string {
	if e.UsesDocker() {
		return "unix:///run/cri-dockerd.sock"
	}
	return "unix:///run/containerd/containerd.sock"
}

// DockerUnit is the unit through which a kubelet uses Docker. Other nodes do not have it.
const DockerUnit = facts.DockerUnit

// HasDocker reports whether Docker runs the containers of a host, or is about to. During a
// change of the runtime this can differ from the description.
func HasDocker(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, DockerUnit)
}

// ChangesRuntime selects nodes whose containers still use the previous runtime.
func (e Env) ChangesRuntime(h *engine.Host) bool {
	return e.NewRuntime && IsJoined(h) && HasDocker(h) != e.UsesDocker()
}

// IsRebooted selects hosts that the operation reboots, or has rebooted already.
func (e Env) IsRebooted(h *engine.Host) bool { return e.Reboots[h.Name] != "" }

// NeedsReboot selects hosts that were not rebooted when the operation or its resume began.
func (e Env) NeedsReboot(h *engine.Host) bool {
	return e.IsRebooted(h) && h.Facts != nil && h.Facts.BootID == e.Reboots[h.Name]
}

// IsNode selects hosts that run a kubelet.
func IsNode(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleControlPlane) || h.HasRole(v1alpha1.RoleWorker)
}

// JoinsAsWorker selects hosts that join as plain workers.
func JoinsAsWorker(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleWorker) && !h.HasRole(v1alpha1.RoleControlPlane)
}

// InitMark is a file that kubeadm creates only on the host on which a cluster is created.
const InitMark = "/etc/kubernetes/super-admin.conf"

// LeadMark is a file on a leader of a cluster that was created on another control plane.
const LeadMark = "/etc/kubernetes/slipway/leads"

// LeavesMark is a file on a control plane or etcd member that has begun to leave: etcd
// continues without it, and does not accept it again with its data.
const LeavesMark = "/etc/kubernetes/slipway/leaves"

// IsInitNode selects the control plane on which the cluster is or was created. After
// that host has left there is none.
func (e Env) IsInitNode(h *engine.Host) bool {
	return e.IsFirst(h) && (e.Leader == "" || h.Facts != nil && slices.Contains(h.Facts.Present, InitMark))
}

// JoinsAsControlPlane selects all control planes except the one on which the cluster is
// created.
func (e Env) JoinsAsControlPlane(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleControlPlane) && !e.IsInitNode(h)
}

// APIServerManifest is the static pod of the API server of a control plane.
const APIServerManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// ClientCert is the certificate that a kubelet receives when it joins a cluster. Its
// kubeconfig, which refers to the certificate, may exist earlier.
const ClientCert = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// IsJoined reports whether a host has the credentials of a kubelet: it is a node, or was one.
func IsJoined(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, ClientCert)
}

// IsJoinNode selects all nodes except the one on which the cluster is created.
func (e Env) IsJoinNode(h *engine.Host) bool { return IsNode(h) && !e.IsInitNode(h) }

// InternalAddress returns the address at which other nodes reach a host.
func InternalAddress(h v1alpha1.Host) string { return spec.InternalAddress(h) }

// APIEndpoint returns the name and port of the API as nodes use them.
func (e Env) APIEndpoint() string {
	ep := e.Cluster.Spec.ControlPlaneEndpoint
	return net.JoinHostPort(ep.Domain, strconv.Itoa(ep.Port))
}

// CertValidity returns how long certificates created for the cluster are valid.
func (e Env) CertValidity() time.Duration {
	if v := e.Cluster.Spec.Kubernetes.Certificates.Validity; v != nil {
		return v.Duration
	}
	return spec.DefaultValidity
}

// HostArch returns the architecture of a host.
func HostArch(h *engine.Host) string {
	if h.Arch != "" {
		return h.Arch
	}
	if h.Facts != nil {
		return h.Facts.Arch
	}
	return ""
}

// FetchAndUnpack fetches a component of the bundle and unpacks the files below strip
// into dir.
func FetchAndUnpack(s *engine.Scope, name, strip, dir string, members ...string) (op.List, error) {
	u, err := UnpackComponent(s, name, strip, dir, members...)
	if err != nil {
		return nil, err
	}
	return op.List{FetchContent(u), u}, nil
}

// UnpackComponent unpacks a component of the bundle.
func UnpackComponent(s *engine.Scope, name, strip, dir string, members ...string) (op.Unpack, error) {
	c, err := engine.GetValue(s, KeyContent).Component(name, HostArch(s.Host()))
	if err != nil {
		return op.Unpack{}, fmt.Errorf("reading %s from the bundle: %w", name, err)
	}
	return op.Unpack{Blob: c.Blob, Name: name, Dir: dir, Strip: strip, Members: members}, nil
}

// FetchContent returns the operation that transfers the content of u to a host.
func FetchContent(u op.Unpack) op.FetchBlob { return op.FetchBlob{Blob: u.Blob, Name: u.Name} }

// FindImage returns an image of the bundle for a host.
func FindImage(s *engine.Scope, name string) (op.Image, error) {
	img, err := engine.GetValue(s, KeyContent).Image(name, HostArch(s.Host()))
	if err != nil {
		return op.Image{}, fmt.Errorf("reading image %s from the bundle: %w", name, err)
	}
	return img, nil
}

// unknownContent is the placeholder for a bundle that is not built yet.
type unknownContent struct{}

// unknownDigest is a well-formed digest without a blob: hosts check operations before the
// bundle is known.
const unknownDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func (unknownContent) Component(name, arch string) (bundle.Component, error) {
	return bundle.Component{Name: name, Arch: arch, Blob: op.Blob{Digest: unknownDigest}}, nil
}

func (unknownContent) Components() []bundle.Component { return nil }

func (unknownContent) Images() []bundle.Image { return nil }

func (unknownContent) Image(name, _ string) (op.Image, error) {
	return op.Image{Ref: name, Manifest: op.Blob{Digest: unknownDigest}}, nil
}
