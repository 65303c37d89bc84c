// Package lifecycle is the only door to a cluster's life: observe, plan,
// apply, resume. The command line, the server and the operator ask it and
// differ in nothing but how they ask and how they show.
package lifecycle

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/live"
)

// Kind is a lifecycle operation; it never changes.
type Kind string

// The operations.
const (
	Create Kind = "create"
	Apply  Kind = "apply"
	Delete Kind = "delete"
	InitOS Kind = "init-os"
	// InitRegistry has the host with that role be a registry, with the images of the
	// bundle in it, and does nothing to others.
	InitRegistry Kind = "init-registry"
	// Defrag gives back what etcd's databases have not in use, RestoreEtcd gives
	// them the data of a backup set, and RescueEtcd makes an etcd of one member of
	// one that has lost too many.
	Defrag      Kind = "etcd-defrag"
	RestoreEtcd Kind = "etcd-restore"
	RescueEtcd  Kind = "etcd-rescue"
	// Add and Remove change a recorded cluster's hosts, and nothing else.
	Add    Kind = "add-nodes"
	Remove Kind = "delete-nodes"
	// Lose is a Remove of hosts that are gone for good, in the midst of an upgrade,
	// which goes on from there: nothing else of the cluster is changed.
	Lose Kind = "forget-nodes"
	// Upgrade takes a recorded cluster to another version of Kubernetes, one
	// minor at a time: each is an operation of its own.
	Upgrade Kind = "upgrade"
	// Revert takes an upgrade back that has not come to its end.
	Revert Kind = "rollback-upgrade"
	// Renew renews certificates of a recorded cluster, and nothing else.
	Renew Kind = "renew-certs"
	// RotateCA exchanges what everything in a recorded cluster trusts.
	RotateCA Kind = "rotate-ca"
)

// Removal says how hosts leave a cluster that goes on.
type Removal = module.Removal

// Rollout says how nodes are upgraded.
type Rollout = module.Upgrade

// A Pause is where an upgrade can stop.
type Pause = module.Pause

// The places.
const (
	PauseCanary       = module.PauseCanary
	PauseControlPlane = module.PauseControlPlane
	PauseWave         = module.PauseWave
)

// DefaultDrainTimeout bounds how long pods of a node are waited for.
const DefaultDrainTimeout = module.DefaultDrainTimeout

// A Request asks for an operation on a cluster.
type Request struct {
	Kind Kind
	// Cluster is the wanted state, loaded and validated by package spec.
	// Delete and a resume take the recorded one when it is nil and Name is
	// set.
	Cluster *v1alpha1.Cluster
	Name    string
	// Source is the file's text as the user wrote it, kept beside the
	// record; File is its path, absolute, or "" if it was no file; Dir is
	// the directory its relative paths are in.
	Source []byte
	File   string
	Dir    string
	// Hosts are those to Add, unless Cluster has them: then its hosts that are
	// not on record are. To Remove, they are hosts off the record that hold
	// what they had as nodes.
	Hosts []spec.HostFlag
	// Nodes select the hosts to Remove. To RescueEtcd, they are the hosts that are
	// declared lost; From is the one whose data etcd is to go on with, "" for the one
	// whose go the furthest.
	Nodes []string
	From  string
	// Removal says how hosts leave a cluster that goes on, and how nodes are
	// drained that are upgraded.
	Removal Removal
	// Version is what to Upgrade to; "" is that of Cluster. Bundle is what the
	// next version on the way comes from; "" finds or builds it.
	Version, Bundle string
	// Follows says that the minor before has just come to its end: pods that it has
	// moved are waited for, where a disruption budget lets none go without them.
	Follows bool
	// Rollout says how nodes are taken there; of an Apply, how many workers at once
	// get settings for which something on them is restarted.
	Rollout Rollout
	// Renew says which certificates to Renew.
	Renew Renewal
	// Rotate is what RotateCA exchanges, by name.
	Rotate []string
	// Backup is the file of the set to restore, Identity that of the key which
	// opens it, "" if it is not encrypted.
	Backup   string
	Identity string
	// SetTrust says which sets may be restored.
	SetTrust
	// IgnoreChecks are precheck ids to pass over; they are recorded.
	IgnoreChecks []string
	// IgnoreErrors lets other hosts finish when one fails.
	IgnoreErrors bool
	// Forget has a delete take the cluster off the records though some hosts
	// are not put back: those that do not answer, that belong to another
	// cluster by now, or that fail. It includes IgnoreErrors. Hosts that leave
	// a cluster which goes on are given up if they do not answer, or belong to
	// another.
	Forget bool
	// KeepFailed leaves settings with which a node does not serve where they are;
	// else a cluster that runs goes back to those before by itself.
	KeepFailed bool
	// BreakLock takes a lock over whose holder cannot be asked.
	BreakLock bool

	// restores is what of a backup an operation that was cut off has begun with, and
	// restoresVerified is that a trusted key had signed it.
	restores         string
	restoresVerified bool
	// rotates is what is exchanged, with what goes of it.
	rotates map[string]string
	// midst is what an operation that gives hosts up leaves unfinished, by the id
	// with which others are refused.
	midst string
	// goesOn is what an operation that was cut off is to lead to.
	goesOn *v1alpha1.Cluster
	// back says that settings go back to those before: the nodes that got them last
	// go first; and under the locks of what they have failed in.
	back  bool
	under *locks
	// way are the versions that an upgrade leads over, with the add-ons behind each.
	way []hop
	// returned are hosts off the record that are put back.
	returned []module.Leaving
}

// A Prepared is a plan with the connections it was made over, ready to be
// applied. It must be closed.
type Prepared interface {
	Plan() *plan.Plan
	// Leaving are the hosts that a cluster loses which goes on without them.
	Leaving() []string
	// Findings are the precheck's, warnings included.
	Findings() diag.List
	// Failures are what the plan had to do without, with IgnoreErrors: hosts
	// that do not answer, steps that could not be checked.
	Failures() []HostFailure
	// Savable refuses a plan that could not be carried out from its file
	// alone.
	Savable() error
	// Apply carries the plan out. Events go to the journal and then to
	// sinks. Cancelling ctx stops it cleanly: uninterruptible steps are
	// waited for.
	Apply(ctx context.Context, sinks ...event.Sink) (*Result, error)
	Close() error
}

// A Result is how an operation ended. A failed operation is a Result, not an
// error; an error is an operation that never began.
type Result struct {
	Operation string // its id
	Cluster   string
	Outcome   event.Outcome // succeeded, partial, failed, cancelled, paused
	Failures  []HostFailure // root causes, in order
	Duration  time.Duration
	Changed   int // steps that changed something
	// Nodes are the hosts that were added or removed, if that was asked for.
	Nodes []string
	// Forgotten says that the cluster is off the records, and that hosts in
	// Failures still hold what it put there.
	Forgotten bool
	// Reverted says that the cluster has the settings again that it had before.
	Reverted bool
	// Onward is the version that the cluster is still to be upgraded to, "" if it
	// has come there; OnwardFile is the cluster file that it goes there by, as
	// OnwardCommand has it, and Reached the version that it runs with meanwhile.
	Onward, OnwardFile, Reached string
	// Ready is what works now, one line each, for the summary.
	Ready []string
	// Kubeconfig is the path of the admin kubeconfig kept in the store.
	Kubeconfig string

	undone []string // hosts on which something failed, or was not tried
}

// isUndone says that not all that was planned for a host came about.
func (r *Result) isUndone(host string) bool { return slices.Contains(r.undone, host) }

// A HostFailure is a root failure.
type HostFailure struct {
	Host  string // "" is the manager
	Task  string
	Title string
	event.Failure
}

// A ClusterSummary is a line of `get clusters`.
type ClusterSummary struct {
	Name       string         `json:"name"`
	Phase      v1alpha1.Phase `json:"phase"`
	Kubernetes string         `json:"kubernetes"`
	Hosts      int            `json:"hosts"`
	// Ready is how many were ready nodes after the latest operation.
	Ready int `json:"ready"`
	// Endpoint is where the API is reached from outside: address and port.
	Endpoint  string              `json:"endpoint"`
	Operation *v1alpha1.Operation `json:"operation,omitempty"` // the latest
	Created   time.Time           `json:"created"`
	// Problem is why no more than the name is known; nil for none.
	Problem *diag.Diagnostic `json:"problem,omitempty"`
}

// Service is the lifecycle of clusters.
type Service interface {
	// Prepare observes, checks and plans. The error is a diag.List for
	// refused input (nothing was touched), *LockedError, or another.
	// progress, which may be nil, hears of connecting, checking, building
	// the bundle.
	Prepare(ctx context.Context, r Request, progress event.Sink) (Prepared, error)
	// PrepareSaved does the same for a saved plan and refuses it, with the
	// difference, if what it would do now is not the same (*StaleError).
	// Of r it takes what the user passes over or breaks, not the subject.
	PrepareSaved(ctx context.Context, p *plan.Plan, r Request, progress event.Sink) (Prepared, error)
	// PrepareResume continues the latest unfinished operation of a cluster.
	PrepareResume(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error)
	// PrepareRollback undoes the latest unfinished or failed operation.
	PrepareRollback(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error)
	// Precheck observes the hosts and reports all findings of all hosts.
	Precheck(ctx context.Context, r Request, progress event.Sink) (diag.List, error)
	// Cancel asks the process that runs the cluster's operation to stop
	// cleanly, and returns when it has ended or ctx is done. progress, which
	// may be nil, hears when it has been asked.
	Cancel(ctx context.Context, name string, progress event.Sink) error

	// Clusters are the recorded ones, by name; those whose records are damaged
	// are among them.
	Clusters(ctx context.Context) ([]ClusterSummary, error)
	// Cluster answers the recorded spec with the latest status.
	Cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error)
	// Operations are a cluster's, newest first; "" is of all clusters.
	Operations(ctx context.Context, cluster string) ([]v1alpha1.Operation, error)
	// Operation finds one by id, or by a unique prefix of it.
	Operation(ctx context.Context, id string) (*v1alpha1.Operation, error)
	// Events calls fn for each event of an operation; with follow it goes
	// on until the operation has ended.
	Events(ctx context.Context, id string, follow bool, fn func(event.Event) error) error
	// Kubeconfig returns the admin kubeconfig, with the first address at which
	// the API is ready. Live asks control planes instead of the store; warnings
	// name those whose kubeconfig was refused.
	Kubeconfig(ctx context.Context, name string, live bool) (conf []byte, warnings diag.List, err error)
	// AddMerged records that a file, by its absolute path, has a cluster's kubeconfig
	// merged into it. Merged returns these files.
	AddMerged(name, path string) error
	Merged(name string) ([]string, error)
	// Info looks at a cluster, and answers within a bounded time whoever is
	// down.
	Info(ctx context.Context, name string, progress event.Sink) (*Info, error)
	// Certificates looks at the certificates on every host of a cluster: of the
	// request's, or the recorded one of its name. Those are told of that end
	// within a time; 0 is the usual one.
	Certificates(ctx context.Context, r Request, within time.Duration, progress event.Sink) (*Certificates, error)
	// Etcd looks at a cluster's etcd, and answers within a bounded time whoever
	// is down; it needs no API.
	Etcd(ctx context.Context, name string, progress event.Sink) (*EtcdReport, error)
	// Snapshot takes a snapshot of a cluster's etcd and puts it into a backup set,
	// verified. Snapshots are the sets that are kept, newest first; "" is of all
	// clusters.
	Snapshot(ctx context.Context, name string, o SnapshotOptions, progress event.Sink) (*SnapshotInfo, error)
	Snapshots(ctx context.Context, name string) ([]SnapshotInfo, error)
	// Scheduled are the snapshots that hosts take by themselves, as far as they
	// answer.
	Scheduled(ctx context.Context, name string, progress event.Sink) (*Scheduled, error)
	// Copies are what lies where copies of backup sets are kept.
	Copies(ctx context.Context, name string, progress event.Sink) (*CopyReport, error)
	// Drill restores a backup set into an etcd of its own on a host, and looks
	// whether it is what the set says.
	Drill(ctx context.Context, name string, o DrillOptions, progress event.Sink) (*DrillReport, error)
	// Dump writes a support bundle (tar, zstd) of a cluster, without secrets.
	Dump(ctx context.Context, name string, w io.Writer, progress event.Sink) error
	// Targets are the hosts that a selector names. Terms without CLUSTER@
	// are about the given cluster. Warnings say which of several clusters that
	// a pattern means have no such host.
	Targets(ctx context.Context, selector, cluster string) (targets []Target, warnings diag.List, err error)
	// Exec runs a program on hosts; Copy copies files to or from them. The
	// results are in the order of the targets.
	Exec(ctx context.Context, w Work, p Program) ([]HostResult, error)
	Copy(ctx context.Context, w Work, c Copy) ([]HostResult, error)
	// Login talks to a login shell on a host, and answers its exit code.
	Login(ctx context.Context, t Target, sh remote.Shell) (int, error)
	// Describe describes a cluster that runs, and that kubeadm made, as a
	// cluster file. It asks the API that the kubeconfig leads to, alone.
	Describe(ctx context.Context, kubeconfig []byte, o live.Options) (*live.Description, error)
	// Manifest writes the manifest of a bundle: of a version, or of a cluster that
	// runs.
	Manifest(ctx context.Context, r ManifestRequest) (text []byte, warnings diag.List, err error)
	// Kubectl runs the bundle's kubectl against the cluster and answers its
	// exit code.
	Kubectl(ctx context.Context, name string, args []string, in io.Reader, out, errw io.Writer) (int, error)
}

// ErrNotFound is a cluster or operation that is not recorded.
var ErrNotFound = errors.New("not found")

// A LockedError is a cluster on which another operation runs.
type LockedError struct {
	Cluster   string
	Operation string
	Holder    string // process or manager, for people
	// Elsewhere says that another manager runs it, which has the records.
	Elsewhere bool
}

func (e *LockedError) Error() string {
	return "cluster " + e.Cluster + " is locked by operation " + e.Operation + " (" + e.Holder + ")"
}

// A StaleError is a saved plan that no longer says what would happen.
type StaleError struct {
	Difference string // unified, of the plans' text
}

func (e *StaleError) Error() string {
	return "the hosts, the spec or the bundle have changed since this plan was made; plan again"
}
