package lifecycle

import (
	"context"
	"io"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec/live"
)

// Service manages the lifecycle of clusters. A front end that needs a part of it declares
// that part.
type Service interface {
	Planner
	Records
	Inspector
	Backups
	Hosts
	Access
}

// Planner plans and runs operations.
type Planner interface {
	// Prepare observes, checks and plans. The error is a diag.List for
	// refused input (nothing was touched), *LockedError, or another.
	// progress, which may be nil, receives events about connecting, checking and
	// building the bundle.
	Prepare(ctx context.Context, r Request, progress event.Sink) (Prepared, error)
	// PrepareSaved does the same for a saved plan. It returns a *StaleError with the
	// difference if the plan would have another effect now. From r it uses only what
	// the user ignores or overrides, not the subject.
	PrepareSaved(ctx context.Context, p *plan.Plan, r Request, progress event.Sink) (Prepared, error)
	// PrepareResume continues the latest unfinished operation of a cluster.
	PrepareResume(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error)
	// PrepareRollback rolls back the latest unfinished or failed operation.
	PrepareRollback(ctx context.Context, name string, r Request, progress event.Sink) (Prepared, error)
	// Precheck observes the hosts and reports all findings of all hosts.
	Precheck(ctx context.Context, r Request, progress event.Sink) (diag.List, error)
	// Cancel asks the process that runs the cluster's operation to stop
	// cleanly, and returns when it has ended or ctx is done. progress, which may be
	// nil, receives an event when the process has been asked.
	Cancel(ctx context.Context, name string, progress event.Sink) error
}

// Records are the saved clusters and operations.
type Records interface {
	// Clusters returns the saved clusters by name, including clusters whose saved
	// state is damaged.
	Clusters(ctx context.Context) ([]ClusterSummary, error)
	// Cluster returns the saved spec with the latest status.
	Cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error)
	// Operations returns the operations of a cluster, or of all clusters if it is "",
	// newest first.
	Operations(ctx context.Context, cluster string) ([]v1alpha1.Operation, error)
	// Operation finds an operation by its id or a unique prefix of it.
	Operation(ctx context.Context, id string) (*v1alpha1.Operation, error)
	// Events calls fn for each event of an operation. With follow, it continues until
	// the operation has ended.
	Events(ctx context.Context, id string, follow bool, fn func(event.Event) error) error
}

// Inspector reports the state of clusters.
type Inspector interface {
	// Info returns the state of a cluster within a bounded time, even if hosts are down.
	Info(ctx context.Context, name string, progress event.Sink) (*inspect.Info, error)
	// Certificates returns the certificates on every host of the request's cluster, or
	// of the saved cluster of its name. It warns about certificates that expire within
	// a time; 0 selects the default.
	Certificates(ctx context.Context, r Request, within time.Duration, progress event.Sink) (*inspect.Certificates, error)
	// Etcd returns the state of a cluster's etcd within a bounded time, even if hosts
	// are down. It does not need the API.
	Etcd(ctx context.Context, name string, progress event.Sink) (*inspect.EtcdReport, error)
	// Dump writes a support bundle (tar, zstd) of a cluster, without secrets.
	Dump(ctx context.Context, name string, w io.Writer, progress event.Sink) error
}

// Backups makes, lists and tests backup sets.
type Backups interface {
	// Snapshot takes a snapshot of a cluster's etcd, verifies it and writes it into a
	// backup set. Snapshots returns the backup sets on this machine, newest first; ""
	// selects all clusters.
	Snapshot(ctx context.Context, name string, o SnapshotOptions, progress event.Sink) (*SnapshotInfo, error)
	Snapshots(ctx context.Context, name string) ([]SnapshotInfo, error)
	// Scheduled returns the automatic snapshots of the reachable hosts.
	Scheduled(ctx context.Context, name string, progress event.Sink) (*inspect.Scheduled, error)
	// Copies returns the copies of backup sets at the copy targets.
	Copies(ctx context.Context, name string, progress event.Sink) (*CopyReport, error)
	// Drill tests a backup set: it restores the set into a separate etcd on a host and
	// compares the result with the set's description.
	Drill(ctx context.Context, name string, o DrillOptions, progress event.Sink) (*DrillReport, error)
}

// Hosts works on the hosts of clusters.
type Hosts interface {
	// Targets returns the hosts that a selector names. Terms without CLUSTER@ select
	// hosts of the given cluster. If a pattern matches several clusters, warnings name
	// the clusters without such a host.
	Targets(ctx context.Context, selector, cluster string) (targets []Target, warnings diag.List, err error)
	// Exec runs a program on hosts. Copy copies files to or from hosts. The results
	// have the order of the targets.
	Exec(ctx context.Context, w Work, p Program) ([]HostResult, error)
	Copy(ctx context.Context, w Work, c Copy) ([]HostResult, error)
	// Login runs a login shell on a host and returns its exit code.
	Login(ctx context.Context, t Target, sh remote.Shell) (int, error)
}

// Access gives access to clusters from this machine.
type Access interface {
	// Kubeconfig returns the admin kubeconfig, with the first address at which
	// the API is ready. Live asks control planes instead of the store; warnings
	// name the control planes whose kubeconfig was refused.
	Kubeconfig(ctx context.Context, name string, live bool) (conf []byte, warnings diag.List, err error)
	// AddMerged saves that a cluster's kubeconfig was merged into a file, given by its
	// absolute path. Merged returns these files.
	AddMerged(name, path string) error
	Merged(name string) ([]string, error)
	// Describe describes a running kubeadm cluster as a cluster file. It queries only
	// the API of the kubeconfig.
	Describe(ctx context.Context, kubeconfig []byte, o live.Options) (*live.Description, error)
	// Manifest returns a bundle manifest for a version or for a running cluster.
	Manifest(ctx context.Context, r ManifestRequest) (text []byte, warnings diag.List, err error)
	// Kubectl runs the bundle's kubectl against the cluster and returns its exit code.
	Kubectl(ctx context.Context, name string, args []string, in io.Reader, out, errw io.Writer) (int, error)
}
