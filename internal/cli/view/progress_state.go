package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// manager is the name shown for the host "".
const manager = "manager"

type stepKey struct{ task, host string }

// runningStep is a running step.
type runningStep struct {
	stepKey
	module, title string
	start         time.Time
	attempt       int
	done, total   int64
	unit, item    string // the unit of done and total, "" for bytes, and the current item, "" for a blob
}

// progressState follows an operation: when it began, which steps are running, and which
// remain.
type progressState struct {
	cluster, kind     string
	start             time.Time
	steps             map[stepKey]*runningStep
	hostsLeft         map[string]map[string]bool // by task: planned hosts that have not finished
	plannedHosts      map[string]int             // by task: planned hosts
	tally             map[string]*taskTally      // by task
	planned, finished int
	failed            map[string]bool // hosts
	hosts             []string        // in the order in which they first appeared
	stepsLeft         map[string]int  // by host: planned steps that have not finished
	// hostState holds the last note about each host before the operation began:
	// "connecting", "connected".
	hostState map[string]string
	hasBegun  bool
}

// taskTally counts the outcomes of a task on the hosts that have finished it.
type taskTally struct {
	module, title           string
	changed, failed, others int
	start                   time.Time
}

func newProgressState(p *plan.Plan) *progressState {
	t := &progressState{
		steps: map[stepKey]*runningStep{}, hostsLeft: map[string]map[string]bool{}, plannedHosts: map[string]int{},
		tally: map[string]*taskTally{}, failed: map[string]bool{}, stepsLeft: map[string]int{}, hostState: map[string]string{},
	}
	if p == nil {
		return t
	}
	t.cluster, t.kind = p.Cluster, p.Operation
	for _, s := range p.Steps {
		if t.hostsLeft[s.Task] == nil {
			t.hostsLeft[s.Task] = map[string]bool{}
		}
		if !t.hostsLeft[s.Task][s.Host] {
			t.hostsLeft[s.Task][s.Host] = true
			t.addHost(s.Host)
			t.plannedHosts[s.Task]++
			t.stepsLeft[s.Host]++
			t.planned++
		}
	}
	return t
}

// recordEvent records an event. For a finished step it returns the step as it was
// running, with its start time.
func (t *progressState) recordEvent(e event.Event) (was runningStep) {
	if t.start.IsZero() || e.Type == event.OperationStarted {
		t.start = e.Time
	}
	if e.Cluster != "" {
		t.cluster = e.Cluster
	}
	k := stepKey{e.Task, e.Host}
	switch e.Type {
	case event.Note:
		if !t.hasBegun && e.Host != "" {
			t.addHost(e.Host)
			t.hostState[e.Host] = oneLine(e.Message)
		}
	case event.OperationStarted:
		t.hasBegun = true
		clear(t.hostState)
		t.kind = cmp.Or(e.Kind, t.kind)
		clear(t.steps) // left over from a run that was killed
	case event.StepStarted:
		t.addHost(e.Host)
		t.steps[k] = &runningStep{stepKey: k, module: e.Module, title: e.Title, start: e.Time}
	case event.StepRetry:
		if s := t.steps[k]; s != nil {
			s.attempt, s.done, s.total = e.Attempt, 0, 0
		}
	case event.StepProgress:
		if s := t.steps[k]; s != nil {
			s.done, s.total, s.unit, s.item = e.Done, e.Total, e.Unit, ""
			if e.Unit != "" || e.Done == 0 && e.Total == 0 {
				s.item = oneLine(e.Message)
			}
		}
	case event.StepFinished:
		return t.finishStep(k, e)
	}
	return runningStep{}
}

// addHost adds a host to the list if it is new.
func (t *progressState) addHost(host string) {
	if _, ok := t.stepsLeft[host]; !ok {
		t.stepsLeft[host] = 0
		t.hosts = append(t.hosts, host)
	}
}

func (t *progressState) finishStep(k stepKey, e event.Event) runningStep {
	was := runningStep{stepKey: k, module: e.Module, title: e.Title, start: e.Time}
	if s := t.steps[k]; s != nil {
		was.start = s.start
		was.module, was.title = cmp.Or(was.module, s.module), cmp.Or(was.title, s.title)
		delete(t.steps, k)
	}
	if t.hostsLeft[k.task][k.host] {
		delete(t.hostsLeft[k.task], k.host)
		t.stepsLeft[k.host]--
		t.finished++
	}
	switch e.Outcome {
	case event.Failed:
		t.failed[k.host] = true
	case event.Changed, event.Unchanged:
		delete(t.failed, k.host) // a resume succeeded after an earlier failure
	}
	a := t.tally[k.task]
	if a == nil {
		a = &taskTally{module: was.module, title: was.title, start: was.start}
		t.tally[k.task] = a
	}
	if was.start.Before(a.start) {
		a.start = was.start
	}
	switch e.Outcome {
	case event.Changed:
		a.changed++
	case event.Failed, event.Ignored:
		a.failed++
	default:
		a.others++
	}
	return was
}

// findEndedTask returns the number of hosts that a task was planned for, and reports
// whether the task has ended on all of them. It reports false for a task that is
// not in the plan.
func (t *progressState) findEndedTask(task string) (hosts int, ok bool) {
	n := t.plannedHosts[task]
	return n, n > 0 && len(t.hostsLeft[task]) == 0
}

// listRunningSteps returns the running steps, the longest-running first.
func (t *progressState) listRunningSteps() []*runningStep {
	return slices.SortedFunc(maps.Values(t.steps), func(a, b *runningStep) int {
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.host, b.host), cmp.Compare(a.task, b.task))
	})
}

// findCommonDomain returns the common end of all hosts' names, from the first dot of
// each. It does not help to distinguish hosts. It is "" if the ends differ.
func (t *progressState) findCommonDomain() string {
	domain, n := "", 0
	for _, h := range t.hosts {
		if h == "" {
			continue
		}
		_, of, _ := strings.Cut(h, ".")
		if n > 0 && of != domain || of == "" {
			return ""
		}
		domain, n = of, n+1
	}
	if n < 2 {
		return ""
	}
	return "." + domain
}

// describeRunningSteps returns the running steps for people: "join node on w1".
func (t *progressState) describeRunningSteps() []string {
	var out []string
	for _, s := range t.listRunningSteps() {
		out = append(out, Where(s.title, s.host))
	}
	return out
}

func hostLabel(host string) string { return cmp.Or(host, manager) }
