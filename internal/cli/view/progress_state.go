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

type key struct{ task, host string }

// running is a running step.
type running struct {
	key
	module, title string
	start         time.Time
	attempt       int
	done, total   int64
	unit, what    string // the unit of done and total, "" for bytes, and the current item, "" for a blob
}

// track follows an operation: when it began, which steps are running, and which remain.
type track struct {
	cluster, kind string
	start         time.Time
	steps         map[key]*running
	left          map[string]map[string]bool // by task: planned hosts that have not finished
	size          map[string]int             // by task: planned hosts
	tally         map[string]*tally          // by task
	planned, over int
	failed        map[string]bool // hosts
	hosts         []string        // in the order in which they first appeared
	hostLeft      map[string]int  // by host: planned steps that have not finished
	// state holds the last note about each host before the operation began:
	// "connecting", "connected".
	state map[string]string
	begun bool
}

// tally counts the outcomes of a task on the hosts that have finished it.
type tally struct {
	module, title           string
	changed, failed, others int
	start                   time.Time
}

func newTrack(p *plan.Plan) *track {
	t := &track{
		steps: map[key]*running{}, left: map[string]map[string]bool{}, size: map[string]int{},
		tally: map[string]*tally{}, failed: map[string]bool{}, hostLeft: map[string]int{}, state: map[string]string{},
	}
	if p == nil {
		return t
	}
	t.cluster, t.kind = p.Cluster, p.Operation
	for _, s := range p.Steps {
		if t.left[s.Task] == nil {
			t.left[s.Task] = map[string]bool{}
		}
		if !t.left[s.Task][s.Host] {
			t.left[s.Task][s.Host] = true
			t.meet(s.Host)
			t.size[s.Task]++
			t.hostLeft[s.Host]++
			t.planned++
		}
	}
	return t
}

// see records an event. For a finished step it returns the step as it was
// running, with its start time.
func (t *track) see(e event.Event) (was running) {
	if t.start.IsZero() || e.Type == event.OperationStarted {
		t.start = e.Time
	}
	if e.Cluster != "" {
		t.cluster = e.Cluster
	}
	k := key{e.Task, e.Host}
	switch e.Type {
	case event.Note:
		if !t.begun && e.Host != "" {
			t.meet(e.Host)
			t.state[e.Host] = oneLine(e.Message)
		}
	case event.OperationStarted:
		t.begun = true
		clear(t.state)
		t.kind = cmp.Or(e.Kind, t.kind)
		clear(t.steps) // left over from a run that was killed
	case event.StepStarted:
		t.meet(e.Host)
		t.steps[k] = &running{key: k, module: e.Module, title: e.Title, start: e.Time}
	case event.StepRetry:
		if s := t.steps[k]; s != nil {
			s.attempt, s.done, s.total = e.Attempt, 0, 0
		}
	case event.StepProgress:
		if s := t.steps[k]; s != nil {
			s.done, s.total, s.unit, s.what = e.Done, e.Total, e.Unit, ""
			if e.Unit != "" || e.Done == 0 && e.Total == 0 {
				s.what = oneLine(e.Message)
			}
		}
	case event.StepFinished:
		return t.finish(k, e)
	}
	return running{}
}

// meet adds a host to the list if it is new.
func (t *track) meet(host string) {
	if _, ok := t.hostLeft[host]; !ok {
		t.hostLeft[host] = 0
		t.hosts = append(t.hosts, host)
	}
}

func (t *track) finish(k key, e event.Event) running {
	was := running{key: k, module: e.Module, title: e.Title, start: e.Time}
	if s := t.steps[k]; s != nil {
		was.start = s.start
		was.module, was.title = cmp.Or(was.module, s.module), cmp.Or(was.title, s.title)
		delete(t.steps, k)
	}
	if t.left[k.task][k.host] {
		delete(t.left[k.task], k.host)
		t.hostLeft[k.host]--
		t.over++
	}
	switch e.Outcome {
	case event.Failed:
		t.failed[k.host] = true
	case event.Changed, event.Unchanged:
		delete(t.failed, k.host) // a resume succeeded after an earlier failure
	}
	a := t.tally[k.task]
	if a == nil {
		a = &tally{module: was.module, title: was.title, start: was.start}
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

// through returns the number of hosts that a task was planned for, and reports
// whether the task has ended on all of them. It reports false for a task that is
// not in the plan.
func (t *track) through(task string) (hosts int, ok bool) {
	n := t.size[task]
	return n, n > 0 && len(t.left[task]) == 0
}

// underWay returns the running steps, the longest-running first.
func (t *track) underWay() []*running {
	return slices.SortedFunc(maps.Values(t.steps), func(a, b *running) int {
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.host, b.host), cmp.Compare(a.task, b.task))
	})
}

// domain returns the common end of all hosts' names, from the first dot of each.
// It does not help to distinguish hosts. It is "" if the ends differ.
func (t *track) domain() string {
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

// names returns the running steps for people: "join node on w1".
func (t *track) names() []string {
	var out []string
	for _, s := range t.underWay() {
		out = append(out, Where(s.title, s.host))
	}
	return out
}

func nameOf(host string) string { return cmp.Or(host, manager) }
