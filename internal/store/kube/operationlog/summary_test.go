package operationlog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/status"
)

// summarize returns the summary of a journal, and requires that another process makes the same one.
func summarize(t testing.TB, parts []v1alpha1.OperationLog) v1alpha1.OperationLog {
	t.Helper()
	got, err := Summarize(operation, parts)
	if err != nil {
		t.Fatal(err)
	}
	reversed := slices.Clone(parts)
	slices.Reverse(reversed)
	again, err := Summarize(operation, reversed)
	if d := cmp.Diff(got, again); d != "" || err != nil {
		t.Fatalf("a second summary is another object: %v\n%s", err, d)
	}
	if len(got.Spec.Data) > maxSummary {
		t.Errorf("the summary has %d bytes", len(got.Spec.Data))
	}
	return got
}

// marks returns the notes about omitted events, and the other events.
func marks(events []event.Event) (notes []string, others []event.Event) {
	for _, e := range events {
		if strings.HasPrefix(e.Message, omissionMark) {
			notes = append(notes, strings.TrimPrefix(e.Message, omissionMark))
		} else {
			others = append(others, e)
		}
	}
	return notes, others
}

// A script makes events of steps, one second apart.
type script []event.Event

func (s *script) add(typ event.Type, task, host string, change func(*event.Event)) {
	e := event.Event{
		Seq: int64(len(*s) + 1), Time: began.Add(time.Duration(len(*s)) * time.Second),
		Type: typ, Operation: operation.Name, Task: task, Host: host,
	}
	if change != nil {
		change(&e)
	}
	*s = append(*s, e)
}

func (s *script) finish(task, host string, outcome event.Outcome, after string) {
	s.add(event.StepFinished, task, host, func(e *event.Event) {
		e.Outcome, e.After = outcome, after
		if outcome == event.Failed {
			e.Failure = &event.Failure{Reason: "ExitCode", Message: "exit status 1 on " + host}
		}
	})
}

// output returns a change that sets the output.
func output(text string) func(*event.Event) { return func(e *event.Event) { e.Message = text } }

// TestSummarize_KeepsAllButOutputOfSmallJournal summarizes a journal that fits: the status is the
// same.
func TestSummarize_KeepsAllButOutputOfSmallJournal(t *testing.T) {
	var s script
	s.add(event.OperationStarted, "", "", nil)
	s.add(event.StepStarted, "a", "w1", nil)
	s.add(event.StepOutput, "a", "w1", output("one\n"))
	s.add(event.StepOutput, "a", "w1", output("two\n"))
	s.add(event.StepProgress, "a", "w1", nil)
	s.add(event.StepRetry, "a", "w1", output("first try"))
	s.add(event.StepRetry, "a", "w1", output("second try"))
	s.add(event.StepStarted, "a", "w2", nil) // interrupted
	s.add(event.StepOutput, "a", "w2", output("three\n"))
	s.finish("a", "w1", event.Failed, "")
	s.add(event.OperationStarted, "", "", nil)
	s.add(event.StepStarted, "a", "w1", nil)
	s.finish("a", "w1", event.Changed, "")
	s.finish("a", "w2", event.Skipped, "")
	s.add(event.Note, "", "w1", output("rebooted"))
	s.add("host.seen", "", "w1", nil) // of a later version
	s.add(event.OperationFinished, "", "", func(e *event.Event) { e.Outcome = event.Succeeded })

	part := summarize(t, encode(t, 0, s...))
	got := mustRead(t, []v1alpha1.OperationLog{part})
	notes, others := marks(got)
	if d := cmp.Diff([]string{"3 of 17 events are omitted"}, notes); d != "" || part.Spec.OmittedEvents != 3 {
		t.Errorf("marks (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]int64{1, 2, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, numbers(others)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if others[2].Message != "one\ntwo\n" || others[3].Message != "second try" {
		t.Errorf("output %q, retry %q", others[2].Message, others[3].Message)
	}
	if d := cmp.Diff(status.ReduceEvents(slices.Values(s)), status.ReduceEvents(slices.Values(got))); d != "" {
		t.Errorf("status (-journal +summary):\n%s", d)
	}
}

func TestSummarize_HasNoMarkIfNothingIsOmitted(t *testing.T) {
	var s script
	s.add(event.OperationStarted, "", "", nil)
	s.add(event.StepStarted, "a", "w1", nil)
	s.finish("a", "w1", event.Changed, "")
	part := summarize(t, encode(t, 0, s...))
	if d := cmp.Diff([]event.Event(s), mustRead(t, []v1alpha1.OperationLog{part})); d != "" || part.Spec.OmittedEvents != 0 {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestSummarize_KeepsEndOfOutput(t *testing.T) {
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	for _, tc := range []struct{ name, text, begin, end string }{
		{"lines", lines.String(), "line 7", "line 999\n"},
		{"one line", strings.Repeat("ä", 5000) + "\n", "ää", "ää\n"},
		{"short", "a\nb\n", "a\n", "b\n"},
	} {
		var s script
		s.add(event.StepStarted, "a", "w1", nil)
		s.add(event.StepOutput, "a", "w1", output(tc.text[:len(tc.text)/2]))
		s.add(event.StepOutput, "a", "w1", output(tc.text[len(tc.text)/2:]))
		s.finish("a", "w1", event.Failed, "")
		_, got := marks(mustRead(t, []v1alpha1.OperationLog{summarize(t, encode(t, 0, s...))}))
		if len(got) != 3 {
			t.Fatalf("%s: %d events, want 3", tc.name, len(got))
		}
		text := got[1].Message
		if rest, omits := strings.CutPrefix(text, "[... "); omits {
			_, text, _ = strings.Cut(rest, " bytes of output omitted ...]\n")
		}
		if len(got[1].Message) > maxSummaryText || !strings.HasPrefix(text, tc.begin) || !strings.HasSuffix(text, tc.end) {
			t.Errorf("%s: the output is %q", tc.name, got[1].Message)
		}
	}
}

// TestSummarize_OmitsLeastImportantEvents summarizes the journals of many hosts. Failures are
// complete, then the critical path, then changes.
func TestSummarize_OmitsLeastImportantEvents(t *testing.T) {
	const hosts, tasks = 300, 100
	j := newJournalist(3)
	var s script
	s.add(event.OperationStarted, "", "", nil)
	after, failed := "", 0
	for task := range tasks {
		for host := range hosts {
			name, on := fmt.Sprintf("task-%d", task), fmt.Sprintf("worker-%d", host)
			s.add(event.StepStarted, name, on, nil)
			s.add(event.StepOutput, name, on, output(j.text(60)))
			outcome := event.Changed
			switch {
			case j.IntN(300) == 0:
				outcome = event.Failed
				failed++
			case j.IntN(2) == 0:
				outcome = event.Unchanged
			}
			s.finish(name, on, outcome, after)
		}
		after = fmt.Sprintf("task-%d@worker-7", task)
	}
	s.add(event.OperationFinished, "", "", func(e *event.Event) { e.Outcome = event.Partial })

	part := summarize(t, encode(t, 0, s...))
	got := mustRead(t, []v1alpha1.OperationLog{part})
	notes, others := marks(got)
	count := map[string]int{}
	for _, e := range others {
		count[string(e.Type)+" "+string(e.Outcome)]++
	}
	t.Logf("%d of %d events, %d bytes: %v", len(others), len(s), len(part.Spec.Data), count)
	if len(notes) != 1 || part.Spec.OmittedEvents != int64(len(s)-len(others)) || part.Spec.OmittedEvents == 0 {
		t.Errorf("notes %q, %d omitted events", notes, part.Spec.OmittedEvents)
	}
	if count["operation.started "] != 1 || count["operation.finished partial"] != 1 || count["step.finished failed"] != failed {
		t.Errorf("%v, want %d failures", count, failed)
	}
	for task := range tasks - 1 {
		if !slices.ContainsFunc(others, func(e event.Event) bool {
			return e.Type == event.StepFinished && e.Task == fmt.Sprintf("task-%d", task) && e.Host == "worker-7"
		}) {
			t.Errorf("the critical path has no end of task-%d", task)
		}
	}
	if len(part.Spec.Data) < maxSummary*9/10 || count["step.finished changed"] < 100 {
		t.Errorf("the summary has room for more: %d bytes", len(part.Spec.Data))
	}
}

// TestSummary_SortsPiecesByImportance lists the events of pieces in the order of their importance.
func TestSummary_SortsPiecesByImportance(t *testing.T) {
	var s script
	s.add(event.OperationStarted, "", "", nil)      // 1
	s.add(event.StepStarted, "a", "w1", nil)        // 2
	s.add(event.StepOutput, "a", "w1", output("a")) // 3
	s.finish("a", "w1", event.Failed, "")           // 4
	s.finish("a", "w2", event.Unchanged, "")        // 5
	s.add(event.StepStarted, "a", "w3", nil)        // 6, interrupted
	s.add(event.StepOutput, "a", "w3", output("b")) // 7
	s.add(event.OperationStarted, "", "", nil)      // 8
	s.finish("a", "w3", event.Unchanged, "")        // 9, on the critical path
	s.finish("a", "w2", event.Changed, "")          // 10
	s.add(event.StepStarted, "a", "w1", nil)        // 11
	s.add(event.StepOutput, "a", "w1", output("c")) // 12
	s.finish("a", "w1", event.Ignored, "a@w3")      // 13
	s.add(event.Note, "", "", nil)                  // 14
	s.finish("b", "w2", event.Skipped, "a@w1")      // 15, the last step
	s.add(event.StepStarted, "b", "w1", nil)        // 16, interrupted
	s.add(event.StepOutput, "b", "w4", output("d")) // 17, interrupted
	s.add(event.OperationFinished, "", "", nil)     // 18
	c := &summary{open: map[string]*run{}, ends: map[string]stepEnd{}}
	for _, e := range s {
		if err := c.add(e); err != nil {
			t.Fatal(err)
		}
	}
	c.endRuns()
	c.rankCriticalPath()
	c.sort()
	names := []string{"operation", "failure", "failure output", "critical path", "change", "note", "step", "output"}
	var got []string
	for _, p := range c.pieces {
		text := names[p.rank]
		for _, l := range p.lines {
			text += fmt.Sprintf(" %d", l.seq)
		}
		got = append(got, text)
	}
	want := []string{
		"operation 8", "operation 18", "operation 1", "failure 11 13", "failure 2 4",
		"failure output 12", "failure output 17", "failure output 3", "failure output 7",
		"critical path 9", "critical path 15", "change 10", "change 16", "change 6", "note 14", "step 5",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("pieces (-want +got):\n%s", d)
	}
}

// TestSummarize_AcceptsOddJournals summarizes journals that no engine writes.
func TestSummarize_AcceptsOddJournals(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		write        func(*script)
	}{
		{"cycle", "each step waited for the other one", func(s *script) {
			s.finish("a", "w1", event.Changed, "b@w1")
			s.finish("b", "w1", event.Changed, "a@w1")
		}},
		{"no end", "the process was killed", func(s *script) {
			s.add(event.StepStarted, "a", "w1", nil)
			s.add(event.StepOutput, "a", "w1", output("a"))
		}},
		{"only the end", "its beginning was lost", func(s *script) { s.add(event.OperationFinished, "", "", nil) }},
	} {
		var s script
		tc.write(&s)
		got := mustRead(t, []v1alpha1.OperationLog{summarize(t, encode(t, 0, s...))})
		if d := cmp.Diff([]event.Event(s), got); d != "" {
			t.Errorf("%s: %s (-want +got):\n%s", tc.name, tc.reason, d)
		}
	}
}

// TestSummarize_ContinuesSummary summarizes again after a resume.
func TestSummarize_ContinuesSummary(t *testing.T) {
	var s script
	s.add(event.OperationStarted, "", "", nil)
	s.add(event.StepProgress, "a", "w1", nil)
	s.finish("a", "w1", event.Failed, "")
	first := summarize(t, encode(t, 0, s...))
	s.add(event.OperationStarted, "", "", nil)
	s.add(event.StepProgress, "a", "w1", nil)
	s.finish("a", "w1", event.Changed, "")
	resumed := encode(t, 3, s[3:]...)

	whole, continued := summarize(t, encode(t, 0, s...)), summarize(t, append(resumed, first))
	if d := cmp.Diff(whole, continued); d != "" {
		t.Errorf("summary (-of journal +of summary and resume):\n%s", d)
	}
	notes, others := marks(mustRead(t, []v1alpha1.OperationLog{continued}))
	if d := cmp.Diff([]string{"2 of 6 events are omitted"}, notes); d != "" || len(others) != 4 {
		t.Errorf("%d events, marks (-want +got):\n%s", len(others), d)
	}
}

func TestSummarize_RefusesJournalThatCannotBeRead(t *testing.T) {
	if _, err := Summarize(operation, nil); err == nil {
		t.Error("without events: want an error")
	}
	parts := segments(t, 3)
	if _, err := Summarize(operation, []v1alpha1.OperationLog{parts[0], parts[2]}); idOf(err) != idIncomplete {
		t.Errorf("with a gap: %v", err)
	}
	parts[1].Spec.Data[7] ^= 1
	if _, err := Summarize(operation, parts); idOf(err) != idDamaged {
		t.Errorf("with damage: %v", err)
	}
}

// TestSummarize_LimitsMemoryOfHugeJournal summarizes more than it keeps in memory.
func TestSummarize_LimitsMemoryOfHugeJournal(t *testing.T) {
	s := &summary{open: map[string]*run{}, ends: map[string]stepEnd{}}
	for i := range int64(60_000) {
		e := event.Event{Seq: i + 1, Time: began, Type: event.Note, Host: fmt.Sprint(i), Message: strings.Repeat("x", 300)}
		if i == 10 {
			e = event.Event{Seq: i + 1, Type: event.StepFinished, Task: "a", Outcome: event.Failed}
		}
		if err := s.add(e); err != nil {
			t.Fatal(err)
		}
		if s.size > 2*maxLines+maxEvent {
			t.Fatalf("%d bytes after %d events", s.size, i)
		}
	}
	part, err := s.encode(operation, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	got := mustRead(t, []v1alpha1.OperationLog{part})
	if !slices.ContainsFunc(got, func(e event.Event) bool { return e.Seq == 11 && e.Outcome == event.Failed }) {
		t.Error("the failure was omitted")
	}
	if part.Spec.Events+part.Spec.OmittedEvents != 60_001 { // with the note
		t.Errorf("%d events, %d omitted", part.Spec.Events, part.Spec.OmittedEvents)
	}
}

// TestSummary_ReplacesPartsAtAnyTime deletes parts after the creation of a summary, while a resume
// continues the journal: a reader sees all events or the summary, and always the resume.
func TestSummary_ReplacesPartsAtAnyTime(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			j := newJournalist(seed)
			n := &namespace{t: t}
			first := j.attempt(5, 5)
			n.create(encode(t, 0, first...)...)
			if j.IntN(2) == 0 {
				n.create(merge(t, n.parts, true)...)
			}
			summary := summarize(t, n.parts)
			n.create(summary)
			short := mustRead(t, []v1alpha1.OperationLog{summary})
			end := first[len(first)-1].Seq
			second := j.attempt(2, 2)
			for _, e := range second {
				n.crash(j.Rand)
				n.create(encode(t, end, e)...)
				end = e.Seq
			}
			n.crash(j.Rand)
			got := numbers(mustRead(t, n.parts))
			if !slices.Equal(got, numbers(append(first, second...))) && !slices.Equal(got, numbers(append(short, second...))) {
				t.Errorf("events %v are neither the journal nor the summary", got)
			}
			left := deleteReplaced(t, n.parts)
			if got := numbers(mustRead(t, left)); !slices.Equal(got, numbers(append(short, second...))) {
				t.Errorf("without the parts: %v", got)
			}
		})
	}
}
