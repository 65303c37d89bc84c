package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func startedEvent(task, host string) happening {
	return happening{Type: "step.started", Task: task, Host: host}
}

func endedEvent(task, host string) happening {
	return happening{Type: "step.finished", Task: task, Host: host, Outcome: "changed"}
}

func sentEvent(task, host string, done, total int64) happening {
	return happening{Type: "step.progress", Task: task, Host: host, Done: done, Total: total}
}

// aRun is a small create, an event each second.
func aRun() []happening {
	run := []happening{
		{Type: "note"},
		startedEvent("os.kernel", "a"), endedEvent("os.kernel", "a"),
		startedEvent("runtime.images", "a"), sentEvent("runtime.images", "a", 4, 9),
		sentEvent("runtime.images", "a", 9, 9), endedEvent("runtime.images", "a"),
		startedEvent("kubeadm.init.certs", "a"), endedEvent("kubeadm.init.certs", "a"),
		startedEvent("kubeadm.init.wait", "a"), endedEvent("kubeadm.init.wait", "a"),
		startedEvent("join.kubelet-start", "b"), endedEvent("join.kubelet-start", "b"),
		{Type: "step.finished", Task: "hooks", Host: "b", Outcome: "skipped"},
		startedEvent("nodes.dns", ""), endedEvent("nodes.dns", ""),
		{Type: "operation.finished"},
	}
	for i := range run {
		run[i].Time = noon.Add(time.Duration(i) * time.Second)
	}
	return append(run, happening{Type: "result"})
}

// playRun plays a run until one of the moments takes effect, and returns the moment and
// the number of the event.
func playRun(ms *moments, run []happening, runs func(string, []string) bool) (string, int) {
	for i, h := range run {
		ms.noteEvent(h, h.Time)
		if m := ms.takeDue(h.Time, runs); m != nil {
			ms.endRun(nil)
			return m.name, i
		}
	}
	ms.endRun(nil)
	return "", len(run)
}

func nothingRuns(string, []string) bool { return false }

// TestMoments_OccurAtExpectedEvents checks with a recorded run at which event each kind
// of moment is due.
func TestMoments_OccurAtExpectedEvents(t *testing.T) {
	kubeadmRuns := func(host string, program []string) bool {
		return host == "a" && slices.Equal(program, []string{"kubeadm", "init", "phase", "certs"})
	}
	tests := []struct {
		name, reason string
		m            *moment
		runs         func(string, []string) bool
		at           int // the event at which it comes; 18 is never
	}{
		{"boundary", "at once", momentAfter("os.kernel@a"), nothingRuns, 2},
		{"skipped", "what was skipped is no boundary", momentAfter("hooks@b"), nothingRuns, 18},
		{"unknown", "there is no such step", momentAfter("os.kernel@c"), nothingRuns, 18},
		{"transfer", "not its beginning and not its end", inTransfer(), nothingRuns, 4},
		{"phase", "seen at work", inPhase("kubeadm.init.certs", ""), kubeadmRuns, 7},
		{"phase over", "it ended before it was seen", inPhase("kubeadm.init.certs", ""), nothingRuns, 18},
		{"phase elsewhere", "it runs on another host", inPhase("join.kubelet-start", "b"), kubeadmRuns, 18},
		{
			"wait", "a time after an event",
			&moment{at: func(h happening) bool { return h.beginsTask("os.kernel") }, wait: 3 * time.Second}, nothingRuns, 4,
		},
		{"latest", "no longer than there is something to wait for", &moment{
			at: func(h happening) bool { return h.beginsTask("os.kernel") }, wait: time.Hour,
			latest: func(h happening) bool { return h.beginsTask("nodes.dns") },
		}, nothingRuns, 14},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, at := playRun(newMoments(tt.m), aRun(), tt.runs); at != tt.at {
				t.Errorf("%s: it comes at event %d, want %d", tt.reason, at, tt.at)
			}
		})
	}
}

// TestMoments_AreNotMissingIfPassedAtRunEnd checks that an event that occurs while the
// run ends counts as reached, but not the program of a step that only began.
func TestMoments_AreNotMissingIfPassedAtRunEnd(t *testing.T) {
	ms := newMoments(momentAfter("os.kernel@a"), momentAfter("runtime.images@a"), inPhase("kubeadm.init.certs", ""))
	now := noon
	ms.noteEvent(endedEvent("os.kernel", "a"), now)
	if m := ms.takeDue(now, nothingRuns); m == nil || m.name != "after os.kernel@a" {
		t.Fatalf("took %v", m)
	}
	ms.endRun([]happening{endedEvent("runtime.images", "a"), startedEvent("kubeadm.init.certs", "a")})
	if diff := cmp.Diff([]string{"inside kubeadm.init.certs"}, ms.listMissing()); diff != "" {
		t.Errorf("an event that came while the run ended was there, what it began was not (-want +got):\n%s", diff)
	}
	ms.noteEvent(endedEvent("runtime.images", "a"), now)
	if m := ms.takeDue(now, nothingRuns); m == nil || m.name != "after runtime.images@a" {
		t.Errorf("what has passed may come again: took %v", m)
	}
}

// TestRandomInstants_AreSpreadOverRun checks that each instant is reached, that they are
// in different steps, and that a seed always gives the same instants.
func TestRandomInstants_AreSpreadOverRun(t *testing.T) {
	const n = 25
	run := aRun()
	ms := newMoments(randomInstants(run, rand.New(rand.NewPCG(1, 1)), n)...)
	same := newMoments(randomInstants(run, rand.New(rand.NewPCG(1, 1)), n)...)
	reached := map[string]int{}
	for i, m := range ms.left {
		if m.name != same.left[i].name {
			t.Errorf("the same seed gives %q and %q", m.name, same.left[i].name)
		}
	}
	for i := range n {
		name, _ := playRun(ms, run, nothingRuns)
		if name == "" {
			t.Fatalf("kill %d never came; left: %v", i+1, ms.listMissing())
		}
		_, step, _ := strings.Cut(name, " after ")
		reached[step]++
	}
	// Each of the run's five steps that take time, and its beginning.
	if len(reached) < 5 {
		t.Errorf("kills are not spread over the run: %v", reached)
	}
}

func TestMomentsWithin_CoverPhasesAndTransfers(t *testing.T) {
	got := momentsWithin(aRun(), rand.New(rand.NewPCG(1, 1)), 9, 4)
	var names []string
	for _, m := range got {
		if _, step, ok := strings.Cut(m.name, " through a blob of "); ok {
			names = append(names, "blob of "+step)
			continue
		}
		names = append(names, m.name)
	}
	slices.Sort(names)
	want := []string{
		"blob of runtime.images@a", "blob of runtime.images@a", "blob of runtime.images@a", "blob of runtime.images@a",
		"inside join.kubelet-start@b", "inside kubeadm.init.certs@a",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFaultPoints_NameExistingTasks compares the task names of fault points with the
// existing tasks.
func TestFaultPoints_NameExistingTasks(t *testing.T) {
	data, err := os.ReadFile("../../internal/pipeline/testdata/task-ids.txt")
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Fields(string(data))
	named := []string{}
	for _, b := range fixedBoundaries {
		task, _, _ := strings.Cut(b.boundary, "@")
		named = append(named, task)
	}
	for _, p := range troublePoints {
		named = append(named, p.task)
	}
	for _, id := range named {
		if !slices.Contains(ids, id) {
			t.Errorf("there is no task %q", id)
		}
	}
}
