// Package engine runs pipelines: lists of modules, each a list of tasks, each
// a check/apply pair on a set of hosts. Planning, applying, resuming and
// finding drift are the same walk over the same tasks.
package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
)

// A Pipeline is a lifecycle operation.
type Pipeline struct {
	Kind    string // create, apply, delete…
	Modules []Module
}

// A Module is one concern: its tasks in order.
type Module struct {
	Name  string
	Tasks []Task
	// Waves, if not nil, sends hosts through the module in waves, by number:
	// none begins before all hosts of the waves before it are through all tasks
	// of the module. A host that has failed keeps further waves from beginning,
	// whatever is ignored. One with a number below 0 is in no wave: it goes when
	// it can.
	Waves func(*Host) int
	// Changing leaves hosts out of the waves for which nothing of the module is
	// planned: who has nothing to do in it waits for nobody there.
	Changing bool
	// Pause, if not nil, says behind which waves the run stops, if it has changed something in them.
	Pause func(wave int) bool
}

// A Task is one step on a set of hosts. Its id is a constant that never
// changes. A task has either Ops or Run.
type Task struct {
	ID    string // "runtime.containerd"
	Title string // for people: "install containerd"

	// Manager runs the task once, on the manager, instead of on hosts. It
	// waits for what it needs and consumes, and for nothing else.
	Manager bool
	// On selects hosts; nil is every host.
	On func(*Host) bool
	// When decides per host whether the task is wanted; nil is always.
	When func(*Scope) bool
	// Needs are ids of tasks that must have ended on all their hosts.
	Needs []string
	// NeedsAll has the hosts that failed in what the task needs count even
	// where errors are ignored: it takes away what they may still go by. Where
	// nothing is planned for it, it is left out then, and holds nobody up.
	NeedsAll bool
	// Barrier waits for every host to be through all tasks before this one.
	Barrier bool
	// Rollout bounds how many hosts do this at once.
	Rollout Rollout
	// Timeout bounds one attempt on one host; 0 is DefaultTimeout.
	Timeout time.Duration
	Retry   Retry
	// Until has the task applied again, Retry.Delay apart, until it answers
	// true or Timeout has passed.
	Until func(context.Context, *Scope) (bool, error)
	// IgnoreError lets the host go on when this task fails on it.
	IgnoreError bool
	// Once keeps a task that succeeded from running again on resume: a
	// user's script.
	Once bool

	// Provides and Consumes are keys of values, by KeyOf.
	Provides, Consumes []KeyRef

	// Ops is the wanted state: a pure function of spec, facts and values.
	Ops func(*Scope) (op.List, error)
	// Run is work of the manager's own, such as on the Kubernetes API.
	Run *Action
	// After reads the results and provides values. It is called when the
	// check finds nothing to do, and after applying.
	After func(context.Context, *Scope, []op.Result) error
	// Undo is what takes this task back, in terms of wanted state.
	Undo func(*Scope) (op.List, error)
}

// DefaultTimeout bounds an attempt of a task that sets none.
const DefaultTimeout = 10 * time.Minute

// An Action is a check/apply pair that runs on the manager.
type Action struct {
	// Check answers what Apply would change; nothing is unchanged.
	Check func(context.Context, *Scope) ([]plan.OpChange, error)
	Apply func(context.Context, *Scope) error
}

// A Rollout bounds how many hosts are in a task at once. Each bound is a
// number ("3") or a share of the task's hosts ("20%", at least one); "" is no
// bound.
type Rollout struct {
	MaxParallel string
	// MaxUnavailable is how many hosts may fail before no further one is
	// begun.
	MaxUnavailable string
}

// Retry says how often to try. The zero value is one attempt.
type Retry struct {
	Attempts int
	Delay    time.Duration
	Backoff  float64 // factor on Delay after each attempt; 0 is 1
}

// A Host is a machine that tasks run on.
type Host struct {
	v1alpha1.Host
	Facts *op.HostFacts
	Conn  remote.Host
}

// HasRole says whether the host has a role.
func (h *Host) HasRole(r v1alpha1.Role) bool {
	for _, have := range h.Roles {
		if have == r {
			return true
		}
	}
	return false
}

// Role selects hosts by role.
func Role(r v1alpha1.Role) func(*Host) bool {
	return func(h *Host) bool { return h.HasRole(r) }
}

// Bound reads a number ("3") or a share of n ("20%", at least one); "" is 0, no
// bound.
func Bound(s string, n int) (int, error) {
	if s == "" {
		return 0, nil
	}
	if share, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.Atoi(share)
		if err != nil || p < 1 || p > 100 {
			return 0, fmt.Errorf("%q is not a share from 1%% to 100%%", s)
		}
		return max(1, n*p/100), nil
	}
	v, err := strconv.Atoi(s)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("%q is neither a number above 0 nor a share", s)
	}
	return v, nil
}
