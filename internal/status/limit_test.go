package status

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// completeStatus adds the largest values of the fields that do not come from events.
func completeStatus(s v1alpha1.OperationStatus) v1alpha1.OperationStatus {
	now := metav1.NewTime(timeAt(0))
	s.ObservedGeneration, s.Attempt = math.MaxInt64, math.MaxInt32
	s.Plan = &v1alpha1.PlanStatus{Digest: "sha256:" + strings.Repeat("f", 64), Summary: strings.Repeat("<", 1024)}
	s.Executor = &v1alpha1.ExecutorStatus{
		ID: strings.Repeat("e", 253), Lease: strings.Repeat("l", 253), FencingNumber: math.MaxInt64, Heartbeat: &now,
	}
	s.AutomaticRetry = &v1alpha1.AutomaticRetryStatus{Attempts: 10, NextTime: &now}
	s.Journal = &v1alpha1.JournalStatus{Segments: math.MaxInt32, Events: math.MaxInt64, Bytes: math.MaxInt64, Truncated: true}
	return s
}

// sizeOfStatus returns the size of a complete status as JSON.
func sizeOfStatus(t *testing.T, s v1alpha1.OperationStatus) int {
	t.Helper()
	text, err := json.Marshal(completeStatus(s))
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// A size is the extent of an operation.
type size struct {
	hosts, tasks, failures       int
	module, task, title, message string // a repeated text fills names and messages
}

// events returns a run of all tasks on all hosts. The failures are distributed evenly.
func (s size) events() iter.Seq[event.Event] {
	fill := func(name, with string, limit int) string {
		return (name + strings.Repeat(with, limit))[:max(len(name), min(limit, len(name)+len(with)*limit))]
	}
	hosts := make([]string, s.hosts)
	for i := range hosts {
		hosts[i] = fill(fmt.Sprintf("worker-%d", i), s.task, maxHost)
	}
	cause := &event.Failure{Reason: fill("Reason", s.task, maxReason), Message: fill("cause: ", s.message, 1000)}
	every := max(1, s.hosts*s.tasks/max(1, s.failures))
	return func(yield func(event.Event) bool) {
		yield(startedEvent(0))
		n, failed := 0, 0
		for task := range s.tasks {
			e := event.Event{
				Module: fill("module", s.module, maxModule), Task: fill(fmt.Sprintf("module.task-%d", task), s.task, maxTask),
				Title: fill("wait", s.title, maxTitle),
			}
			for _, e.Host = range hosts {
				e.Type, e.Time, e.Outcome, e.Failure = event.StepStarted, timeAt(n), "", nil
				yield(e)
				n++
				e.Type, e.Time, e.Outcome = event.StepFinished, timeAt(n), []event.Outcome{event.Changed, event.Unchanged, event.Skipped}[n%3]
				if n%every == 0 && failed < s.failures {
					failed++
					e.Outcome, e.Failure = event.Failed, cause
				}
				yield(e)
			}
		}
		yield(finishedEvent(n, event.Failed))
	}
}

func TestReduceEvents_StaysBelowLimit(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		size         size
		steps        int // listed at least
	}{
		{
			"large cluster", "all steps of a usual pipeline are listed",
			size{hosts: 1000, tasks: 120, failures: 1000, task: "-x", title: " it", message: "no space left on device "},
			120,
		},
		{
			"worst case", "names and messages have their maximal lengths",
			size{hosts: 1000, tasks: 512, failures: 10000, module: "m", task: "n", title: "t", message: "ü"},
			64,
		},
		{
			"worst case with short names", "most counts of steps are kept",
			size{hosts: 200, tasks: 512, failures: 10000, message: "m"},
			256,
		},
		{
			"escaped names", "JSON needs six bytes for each character",
			size{hosts: 200, tasks: 512, failures: 10000, module: "<", task: "<", title: "<", message: "<"},
			1,
		},
		{
			"too many steps", "the definition of the resource allows 512",
			size{hosts: 2, tasks: 700, failures: 3},
			128,
		},
		{
			"too many steps with maximal names", "the steps at the end count too",
			size{hosts: 20, tasks: 700, failures: 10, module: "m", task: "n", title: "t", message: "m"},
			64,
		},
		{"failures of one step", "each host has one", size{hosts: 10000, tasks: 1, failures: 10000, message: "m"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ReduceEvents(tc.size.events())
			bytes := sizeOfStatus(t, got)
			t.Logf("%d bytes with %d of %d steps, %d of %d failures, %d of %d hosts", bytes,
				len(got.Steps), tc.size.tasks, len(got.Failures), got.FailureCount, len(got.Hosts), got.HostCounts.Total)
			if bytes > v1alpha1.MaxStatusSize || len(got.Steps) < tc.steps || len(got.Steps) > v1alpha1.MaxSteps {
				t.Errorf("%d bytes and %d steps, want at most %d and at least %d: %s",
					bytes, len(got.Steps), v1alpha1.MaxStatusSize, tc.steps, tc.reason)
			}
			total := sumSteps(got)
			want := v1alpha1.OtherSteps{Count: tc.size.tasks, Hosts: total.Hosts}
			want.Hosts.Failed, want.Hosts.Total = tc.size.failures, tc.size.tasks*tc.size.hosts
			if d := cmp.Diff(want, total); d != "" || got.FailureCount != tc.size.failures || got.HostCounts.Total != tc.size.hosts {
				t.Errorf("%d failures of %d hosts, and steps (-want +got):\n%s", got.FailureCount, got.HostCounts.Total, d)
			}
		})
	}
}

// sumSteps returns the number of steps and the sums of their counts.
func sumSteps(s v1alpha1.OperationStatus) v1alpha1.OtherSteps {
	var out v1alpha1.OtherSteps
	if s.OtherSteps != nil {
		out = *s.OtherSteps
	}
	for _, step := range s.Steps {
		out.Count++
		add(&out.Hosts, step.Hosts)
	}
	return out
}

// A model counts outcomes in a simple way.
type model struct {
	outcomes map[string]map[string]event.Event // by task and host: the latest end, or a start
	busy     map[string]time.Duration
	started  map[[2]string]time.Time
	hosts    map[string]bool // that had a step
}

func newModel(events []event.Event) model {
	m := model{outcomes: map[string]map[string]event.Event{}, busy: map[string]time.Duration{}, hosts: map[string]bool{}}
	for _, e := range events {
		k := [2]string{e.Task, e.Host}
		switch e.Type {
		case event.OperationStarted:
			m.started = map[[2]string]time.Time{}
			m.forgetFailures()
			continue
		case event.StepStarted, event.StepFinished:
		default:
			continue
		}
		m.hosts[e.Host] = true
		if m.outcomes[e.Task] == nil {
			m.outcomes[e.Task] = map[string]event.Event{}
		}
		switch _, known := m.outcomes[e.Task][e.Host]; {
		case e.Type == event.StepStarted:
			m.started[k] = e.Time
			if !known {
				m.outcomes[e.Task][e.Host] = e
			}
			continue
		case !m.started[k].IsZero():
			m.busy[e.Host] += max(0, e.Time.Sub(m.started[k]))
			delete(m.started, k)
		}
		m.outcomes[e.Task][e.Host] = e
	}
	return m
}

// forgetFailures removes the failures of the attempts so far.
func (m model) forgetFailures() {
	for task, hosts := range m.outcomes {
		maps.DeleteFunc(hosts, func(_ string, e event.Event) bool { return e.Outcome == event.Failed || e.Outcome == event.Ignored })
		if len(hosts) == 0 {
			delete(m.outcomes, task)
		}
	}
}

// countsOf returns the counts of a task.
func (m model) countsOf(task string) (c v1alpha1.HostCounts) {
	for _, e := range m.outcomes[task] {
		c.Total++
		count(&c, e.Outcome, 1)
	}
	return c
}

// hostCounts returns the counts of all hosts by their worst outcomes.
func (m model) hostCounts() (c v1alpha1.HostCounts) {
	worst := map[string]int{}
	for host := range m.hosts {
		if host != "" {
			worst[host] = 0
		}
	}
	order := []event.Outcome{"", event.Skipped, event.Unchanged, event.Changed, event.Ignored, event.Failed}
	for _, hosts := range m.outcomes {
		for host, e := range hosts {
			if host != "" {
				worst[host] = max(worst[host], slices.Index(order, e.Outcome))
			}
		}
	}
	for _, at := range worst {
		c.Total++
		count(&c, order[at], 1)
	}
	return c
}

// randomEvents returns the events of a few attempts. odd selects texts that JSON escapes.
func randomEvents(r *rand.Rand, odd bool) []event.Event {
	alphabet := []string{"a", "b", "-", "7"}
	if odd {
		alphabet = append(alphabet, "ü", "\n", "<", "\x00", "\xff", "漢")
	}
	text := func(limit int) string {
		var b strings.Builder
		for n := r.IntN(limit); b.Len() < n; {
			b.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	var tasks, hosts []string
	long := []int{8, 40, maxTask - 8}[r.IntN(3)]
	for i := range 1 + r.IntN(150) {
		tasks = append(tasks, fmt.Sprintf("%03d.%s", i, text(long)))
	}
	for i := range 1 + r.IntN(80) {
		hosts = append(hosts, fmt.Sprintf("h%02d%s", i, text(min(long, 50))))
	}
	hosts = append(hosts, "") // the manager
	outcomes := []event.Outcome{event.Unchanged, event.Changed, event.Failed, event.Ignored, event.Skipped}
	var out []event.Event
	at := 0
	for range 1 + r.IntN(3) {
		out = append(out, startedEvent(at))
		for range r.IntN(1500) {
			at += r.IntN(5)
			e := event.Event{
				Type: event.StepStarted, Time: timeAt(at), Module: text(20),
				Task: tasks[r.IntN(len(tasks))], Host: hosts[r.IntN(len(hosts))], Title: text(120),
			}
			if r.IntN(3) > 0 {
				e.Type, e.Outcome = event.StepFinished, outcomes[r.IntN(len(outcomes))]
			}
			if e.Outcome == event.Failed || e.Outcome == event.Ignored {
				e.Failure = &event.Failure{Reason: text(60), Message: text(1500)}
				if r.IntN(4) == 0 {
					e.Failure.CausedBy = "another@step"
				}
			}
			out = append(out, e)
		}
		if r.IntN(4) > 0 {
			out = append(out, finishedEvent(at, event.Failed))
		}
	}
	return out
}

// TestReduceEvents_AgreesWithModelForRandomEvents compares many random operations with the
// simple model.
func TestReduceEvents_AgreesWithModelForRandomEvents(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		odd := seed%3 == 0
		events := randomEvents(r, odd)
		got := ReduceEvents(slices.Values(events))
		if bytes := sizeOfStatus(t, got); bytes > v1alpha1.MaxStatusSize {
			t.Errorf("seed %d: %d bytes, want at most %d", seed, bytes, v1alpha1.MaxStatusSize)
		}
		m := newModel(events)
		checkCounts(t, seed, m, got)
		checkFailures(t, seed, m, got, odd)
		checkHosts(t, seed, m, got)
		if d := cmp.Diff(got, reduceInChunks(r, events)); d != "" {
			t.Errorf("seed %d: the status depends on when it is asked for (-want +got):\n%s", seed, d)
		}
		if t.Failed() {
			return
		}
	}
}

// reduceInChunks asks for the status after random numbers of events.
func reduceInChunks(r *rand.Rand, events []event.Event) v1alpha1.OperationStatus {
	var reducer Reducer
	for chunk := range slices.Chunk(events, 1+r.IntN(1+len(events)/3)) {
		for _, e := range chunk {
			reducer.Emit(e)
		}
		reducer.Status()
	}
	return reducer.Status()
}

func checkCounts(t *testing.T, seed uint64, m model, got v1alpha1.OperationStatus) {
	t.Helper()
	all := v1alpha1.OtherSteps{Count: len(m.outcomes)}
	for task := range m.outcomes {
		add(&all.Hosts, m.countsOf(task))
	}
	if d := cmp.Diff(all, sumSteps(got)); d != "" {
		t.Errorf("seed %d: sums of steps (-want +got):\n%s", seed, d)
	}
	for _, s := range got.Steps {
		if m.outcomes[s.Task] == nil {
			continue // its name is cut
		}
		if d := cmp.Diff(m.countsOf(s.Task), s.Hosts); d != "" {
			t.Errorf("seed %d: step %q (-want +got):\n%s", seed, s.Task, d)
		}
	}
	if d := cmp.Diff(m.hostCounts(), got.HostCounts); d != "" {
		t.Errorf("seed %d: hosts (-want +got):\n%s", seed, d)
	}
	if want := all.Hosts.Failed + all.Hosts.Ignored; got.FailureCount != want {
		t.Errorf("seed %d: %d failures, want %d", seed, got.FailureCount, want)
	}
}

// checkFailures checks that real errors come before their consequences. A status lists fewer
// failures than it could only if JSON escapes their texts.
func checkFailures(t *testing.T, seed uint64, m model, got v1alpha1.OperationStatus, odd bool) {
	t.Helper()
	want := min(v1alpha1.MaxFailures, got.FailureCount)
	if n := len(got.Failures); n > want || n < want && !odd {
		t.Errorf("seed %d: %d failures are listed, want %d", seed, n, want)
	}
	last := rootCause
	for _, f := range got.Failures {
		e, known := m.outcomes[f.Task][f.Host]
		if !known {
			continue // a name is cut
		}
		is := newFailure(e, "").rank
		if is < last {
			t.Errorf("seed %d: a failure of rank %d comes after one of rank %d", seed, is, last)
		}
		last = is
		if whole := e.Failure.Message; f.Message != whole {
			begin, cut := strings.CutSuffix(f.Message, "…")
			if !cut || len(f.Message) > v1alpha1.MaxFailureMessage || !strings.HasPrefix(whole, begin) {
				t.Errorf("seed %d: %q is not the beginning of %q with a mark", seed, f.Message, whole)
			}
		}
	}
}

// checkHosts checks that failed hosts come first, then the slowest.
func checkHosts(t *testing.T, seed uint64, m model, got v1alpha1.OperationStatus) {
	t.Helper()
	slowest, others := time.Duration(math.MaxInt64), false
	for _, h := range got.Hosts {
		failures := 0
		for _, hosts := range m.outcomes {
			if o := hosts[h.Name].Outcome; o == event.Failed || o == event.Ignored {
				failures++
			}
		}
		busy := m.busy[h.Name]
		switch {
		case failures > 0 && others:
			t.Errorf("seed %d: host %s with failures comes after hosts without", seed, h.Name)
		case failures == 0 && busy > slowest:
			t.Errorf("seed %d: host %s took %s, and comes after a host with %s", seed, h.Name, busy, slowest)
		case failures == 0:
			slowest, others = busy, true
		}
		if h.Seconds != int64(busy/time.Second) {
			t.Errorf("seed %d: host %s took %d s, want %s", seed, h.Name, h.Seconds, busy)
		}
	}
}

func TestLimitMessage_CutsBetweenCharacters(t *testing.T) {
	for _, tc := range []struct{ name, message, want, reason string }{
		{"empty", "", "", "nothing is to be cut"},
		{"exact", "12345678", "12345678", "it has the limit"},
		{"long", "123456789", "12345…", "the mark counts"},
		{"two bytes", "1234üüü", "1234…", "a half character is not text"},
		{"not text", "\x80\x80\x80\x80\x80\x80\x80\x80\x80", "…", "no byte begins a character"},
	} {
		if got := LimitMessage(tc.message, 8); got != tc.want || utf8.ValidString(tc.message) != utf8.ValidString(got) && got != "…" {
			t.Errorf("%s: %q, want %q: %s", tc.name, got, tc.want, tc.reason)
		}
	}
}
