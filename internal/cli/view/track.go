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

// manager is what the host without a name is called.
const manager = "manager"

type key struct{ task, host string }

// running is a step that is under way.
type running struct {
	key
	module, title string
	start         time.Time
	attempt       int
	done, total   int64
	unit, what    string // of done and total; "" is bytes of a blob, which is not named
}

// track follows an operation: when it began, what is under way, what is left.
type track struct {
	cluster, kind string
	start         time.Time
	steps         map[key]*running
	left          map[string]map[string]bool // by task: planned hosts still to come
	size          map[string]int             // by task: planned hosts
	tally         map[string]*tally          // by task
	planned, over int
	failed        map[string]bool // hosts
	hosts         []string        // in the order they were first heard of
	hostLeft      map[string]int  // by host: planned steps still to come
	// state is what was last noted of a host before the operation began:
	// "connecting", "connected".
	state map[string]string
	begun bool
}

// tally is how a task went on the hosts that are through with it.
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

// see takes an event and answers, for a finished step, what it was (with the
// time it began).
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

// meet puts a host on the list.
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
		delete(t.failed, k.host) // a resume, seen from its beginning
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

// through says that a task is over on all the hosts it was planned for, and
// on how many that was; a task without a plan never is.
func (t *track) through(task string) (hosts int, ok bool) {
	n := t.size[task]
	return n, n > 0 && len(t.left[task]) == 0
}

// underWay answers the running steps, the longest first.
func (t *track) underWay() []*running {
	return slices.SortedFunc(maps.Values(t.steps), func(a, b *running) int {
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.host, b.host), cmp.Compare(a.task, b.task))
	})
}

// domain is what the names of all hosts end in, from the first dot of each:
// it tells none from the others.
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

// names answers the running steps for people: "joining node w1".
func (t *track) names() []string {
	var out []string
	for _, s := range t.underWay() {
		out = append(out, Where(s.title, s.host))
	}
	return out
}

func nameOf(host string) string { return cmp.Or(host, manager) }
