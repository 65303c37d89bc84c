// Package lifecycle observes, plans, applies, resumes and rolls back operations on
// clusters. It is the only entry point for this: the command line and other front ends
// call it and differ only in their input and output.
package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

// Removal configures how hosts leave a cluster that continues to exist.
type Removal = module.Removal

// Rollout configures how nodes are upgraded.
type Rollout = module.Upgrade

// A Pause is a point at which an upgrade can stop.
type Pause = module.Pause

// The points.
const (
	PauseCanary       = module.PauseCanary
	PauseControlPlane = module.PauseControlPlane
	PauseWave         = module.PauseWave
)

// DefaultDrainTimeout limits the time to drain a node.
const DefaultDrainTimeout = module.DefaultDrainTimeout

// A Request describes an operation on a cluster.
type Request struct {
	Kind operation.Kind
	// Cluster is the wanted state, loaded and validated by package spec. If it is
	// nil and Name is set, delete and resume use the saved cluster.
	Cluster *v1alpha1.Cluster
	Name    string
	// Source is the text of the cluster file, which is saved with the cluster. File is
	// its absolute path, "" if it was not a file. Dir is the directory for its
	// relative paths.
	Source []byte
	File   string
	Dir    string
	// Hosts are the hosts to add, unless Cluster is set: then its new hosts are added. To
	// remove nodes, Hosts are hosts that are no longer in the saved cluster but still have
	// its files.
	Hosts []spec.HostFlag
	// Nodes select the hosts to remove. For a rescue of etcd, Nodes are the hosts that are
	// declared lost.
	Nodes []string
	// Removal configures how hosts leave the cluster, and how nodes are drained for an
	// upgrade.
	Removal Removal
	// Rollout configures how nodes are upgraded. For an apply, it limits how many workers
	// at once get settings that need a restart of a component.
	Rollout Rollout
	// Upgrade, Restore, Rescue, Renew and Rotate are for operations of one kind. Rotate
	// names the CAs and keys to rotate.
	Upgrade UpgradeRequest
	Restore RestoreRequest
	Rescue  RescueRequest
	Renew   Renewal
	Rotate  []string
	// IgnoreChecks are precheck ids to ignore; they are saved with the operation.
	IgnoreChecks []string
	// IgnoreErrors lets other hosts finish when one fails.
	IgnoreErrors bool
	// Forget makes a delete remove the cluster from the saved state even if some hosts
	// cannot be reset: hosts that are unreachable, belong to another cluster now, or
	// fail. It includes IgnoreErrors. If the cluster continues to exist, leaving hosts
	// are force-removed if they are unreachable or belong to another cluster.
	Forget bool
	// KeepFailed keeps settings with which a node does not work. Otherwise a running
	// cluster is rolled back automatically to its previous settings.
	KeepFailed bool
	// BreakLock takes over a lock whose holder cannot be asked.
	BreakLock bool
}

// An UpgradeRequest has what only an upgrade needs.
type UpgradeRequest struct {
	// Version is the target version; "" is the version of Cluster. Bundle is the bundle of
	// the next version on the upgrade path; "" finds or builds one.
	Version, Bundle string
	// Follows reports whether the upgrade to the previous minor has just finished. Then
	// pods that it moved are waited for if a disruption budget needs them.
	Follows bool
}

// A RestoreRequest has what only a restore of etcd needs.
type RestoreRequest struct {
	// Backup is the file of the set to restore. Identity is the file of the key that
	// decrypts it, "" if it is not encrypted.
	Backup   string
	Identity string
	// SetTrust selects the sets that may be restored.
	SetTrust
}

// A RescueRequest has what only a rescue of etcd needs.
type RescueRequest struct {
	// From is the host whose etcd data to use; "" uses the most recent data.
	From string
}

// A Prepared is a plan that is ready to be applied, with its open connections. It must
// be closed.
type Prepared interface {
	Plan() *plan.Plan
	// Leaving returns the hosts that leave a cluster that continues to exist.
	Leaving() []string
	// Findings returns the findings of the precheck, including warnings.
	Findings() diag.List
	// Failures returns, with IgnoreErrors, what the plan leaves out: unreachable hosts
	// and steps that could not be checked.
	Failures() []HostFailure
	// Savable returns an error if the plan could not be applied from its file alone.
	Savable() error
	// Apply applies the plan. Events go to the journal and then to sinks. If ctx is
	// cancelled, Apply stops cleanly: it waits for uninterruptible steps.
	Apply(ctx context.Context, sinks ...event.Sink) (*Result, error)
	Close() error
}

// A Result describes the end of an operation. A failed operation returns a Result; an
// error means that the operation never began.
type Result struct {
	Operation string // its id
	Cluster   string
	Outcome   event.Outcome // succeeded, partial, failed, cancelled, paused
	Failures  []HostFailure // root causes, in order
	Duration  time.Duration
	Changed   int // steps that changed something
	// Nodes are the hosts that were added or removed on request.
	Nodes []string
	// Forgotten reports whether the cluster was removed from the saved state while the
	// hosts in Failures still have its files.
	Forgotten bool
	// Reverted reports whether the cluster was rolled back to its previous settings.
	Reverted bool
	// Onward is the target version of an upgrade that has more minors to go, "" if the
	// cluster has reached it. OnwardFile is the cluster file of the upgrade in the form
	// of operation.UpgradeCommand. Reached is the current version.
	Onward, OnwardFile, Reached string
	// Ready has the lines of the summary about what works now.
	Ready []string
	// Kubeconfig is the path of the saved admin kubeconfig.
	Kubeconfig string

	undone []string // hosts on which something failed, or was not tried
}

// isUndone reports whether a part of the plan for a host failed or was skipped.
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
	// Ready is the number of ready nodes after the latest operation.
	Ready int `json:"ready"`
	// Endpoint is the address and port of the API from outside.
	Endpoint  string              `json:"endpoint"`
	Operation *v1alpha1.Operation `json:"operation,omitempty"` // the latest
	Created   time.Time           `json:"created"`
	// Problem is the reason why only the name is known, nil if there is none.
	Problem *diag.Diagnostic `json:"problem,omitempty"`
}

// ErrNotFound is returned for a cluster or operation that is not in the saved state.
var ErrNotFound = errors.New("not found")

// A LockedError is returned if another operation is running on the cluster.
type LockedError = clusterlock.LockedError

// A StaleError is returned if a plan no longer matches what it would do now.
type StaleError struct {
	Difference string // unified, of the plans' text
}

func (e *StaleError) Error() string {
	return "the hosts, the cluster file or the bundle have changed since this plan was made; plan again"
}
