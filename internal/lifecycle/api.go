// Package lifecycle observes, plans, applies, resumes and rolls back operations on
// clusters. It is the only entry point for this: the command line and other front ends
// call it and differ only in their input and output.
package lifecycle

import (
	"context"
	"slices"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// Removal configures how hosts leave a cluster that continues to exist.
type Removal = module.Removal

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
	// Cancelled is the reason why the operation was asked to stop, nil if it was not. An
	// operation that is asked in its last step succeeds.
	Cancelled error
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

// A LockedError is returned if another operation is running on the cluster.
type LockedError = clusterlock.LockedError

// A StaleError is returned if a plan no longer matches what it would do now.
type StaleError struct {
	Difference string // unified, of the plans' text
}

func (e *StaleError) Error() string {
	return "the hosts, the cluster file or the bundle have changed since this plan was made; plan again"
}
