// Package engine runs pipelines: lists of modules, each a list of tasks, each a
// check/apply pair on a set of hosts. Planning, applying, resuming and drift detection all
// walk the same tasks.
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

// A Module is one concern, with its tasks in order.
type Module struct {
	Name  string
	Tasks []Task
	// Waves, if not nil, returns the wave of a host. No host begins before all hosts of
	// earlier waves have completed all tasks of the module. A failed host stops later
	// waves, even if errors are ignored. A host with a negative number is in no wave and
	// does not wait.
	Waves func(*Host) int
	// Changing leaves out of the waves the hosts for which the module has no planned
	// steps. Such a host waits for no other.
	Changing bool
	// Pause, if not nil, reports whether the run stops after a wave, provided that
	// something changed in it.
	Pause func(wave int) bool
}

// A Task is one step on a set of hosts. Its id is a constant that never changes. A task
// has either Ops or Run.
type Task struct {
	ID    string // "runtime.containerd"
	Title string // for people: "install containerd"

	// Manager runs the task once, on the manager, instead of on hosts. The task waits only
	// for its Needs and Consumes.
	Manager bool
	// On selects hosts; nil selects every host.
	On func(*Host) bool
	// When reports per host whether the task is wanted; nil means always.
	When func(*Scope) bool
	// Needs lists ids of tasks that must have ended on all their hosts.
	Needs []string
	// NeedsAll makes a failed host in a needed task block this task even if errors are
	// ignored, for a task that removes something which the failed host may still use. If
	// nothing is planned for the task, it is then skipped and blocks nothing.
	NeedsAll bool
	// Barrier waits until every host has completed all earlier tasks.
	Barrier bool
	// Rollout bounds how many hosts run the task at once.
	Rollout Rollout
	// Timeout bounds one attempt on one host; 0 means DefaultTimeout.
	Timeout time.Duration
	Retry   Retry
	// Until, if not nil, repeats the task after Retry.Delay until it returns true or
	// Timeout has passed.
	Until func(context.Context, *Scope) (bool, error)
	// IgnoreError lets a host continue when this task fails on it.
	IgnoreError bool
	// Once prevents a task that succeeded from running again on resume, such as a script
	// of the user.
	Once bool

	// Provides and Consumes list the keys of values.
	Provides, Consumes []KeyRef

	// Ops returns the wanted state: a pure function of spec, facts and values.
	Ops func(*Scope) (op.List, error)
	// Run is an action on the manager, such as a request to the Kubernetes API.
	Run *Action
	// After reads the results and provides values. It is called when the check finds
	// nothing to do, and after an apply.
	After func(context.Context, *Scope, []op.Result) error
	// Undo returns the wanted state that reverts this task.
	Undo func(*Scope) (op.List, error)
}

// DefaultTimeout bounds an attempt of a task that sets none.
const DefaultTimeout = 10 * time.Minute

// An Action is a check/apply pair that runs on the manager.
type Action struct {
	// Check returns what Apply would change; an empty list means unchanged.
	Check func(context.Context, *Scope) ([]plan.OpChange, error)
	Apply func(context.Context, *Scope) error
}

// A Rollout bounds how many hosts run a task at once. Each bound is a number ("3") or a
// percentage of the hosts of the task ("20%", at least one); "" means no bound.
type Rollout struct {
	MaxParallel string
	// MaxUnavailable is how many hosts may fail before no other host begins.
	MaxUnavailable string
}

// Retry configures how often a task is tried. The zero value is one attempt.
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

// HasRole reports whether the host has a role.
func (h *Host) HasRole(r v1alpha1.Role) bool {
	for _, have := range h.Roles {
		if have == r {
			return true
		}
	}
	return false
}

// HasRole returns a function that selects hosts by role.
func HasRole(r v1alpha1.Role) func(*Host) bool {
	return func(h *Host) bool { return h.HasRole(r) }
}

// ParseBound parses a number ("3") or a percentage of n ("20%", at least one); "" is 0, no
// bound.
func ParseBound(s string, n int) (int, error) {
	if s == "" {
		return 0, nil
	}
	if share, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.Atoi(share)
		if err != nil || p < 1 || p > 100 {
			return 0, fmt.Errorf("%q is not a percentage from 1%% to 100%%", s)
		}
		return max(1, n*p/100), nil
	}
	v, err := strconv.Atoi(s)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("%q must be a number above 0 or a percentage", s)
	}
	return v, nil
}
