package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// pipelineInWaves is a module of two tasks with a wave for each first letter of host names.
func pipelineInWaves(pause func(int) bool) Pipeline {
	return Pipeline{Kind: "test", Modules: []Module{
		{
			Name: "waves", Pause: pause, Waves: func(h *Host) int { return int(h.Name[0]) },
			Tasks: []Task{{ID: "t.x", Ops: execOps("x")}, {ID: "t.y", Ops: execOps("y")}},
		},
		{Name: "after", Tasks: []Task{{ID: "t.z", Needs: []string{"t.y"}, NeedsAll: true, Ops: execOps("z")}}},
	}}
}

func TestWaves_RunInOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		fails  string // host, task
		pause  func(int) bool
		tune   []func(*Run)
		want   [][]string // steps that begin at the same time
		state  event.Outcome
	}{
		"in order": {
			reason: "hosts of a wave are side by side, and a wave waits for the one before it",
			want:   [][]string{{"a1 x"}, {"a1 y"}, {"b1 x", "b2 x"}, {"b1 y", "b2 y"}, {"c1 x"}, {"c1 y"}, {"a1 z", "b1 z", "b2 z", "c1 z"}},
			state:  event.Succeeded,
		},
		"a failure": {
			reason: "no further wave begins; the wave itself is gone on with",
			fails:  "b1 x",
			want:   [][]string{{"a1 x"}, {"a1 y"}, {"b1 x", "b2 x"}, {"b2 y"}},
			state:  event.Failed,
		},
		"a failure that is ignored": {
			reason: "a wave stops at a host that failed, whatever is ignored",
			fails:  "b1 x", tune: []func(*Run){func(r *Run) { r.IgnoreErrors = true }},
			want:  [][]string{{"a1 x"}, {"a1 y"}, {"b1 x", "b2 x"}, {"b2 y"}},
			state: event.Failed,
		},
		"a pause": {
			reason: "it stops behind the wave",
			pause:  func(wave int) bool { return wave == 'b' },
			want:   [][]string{{"a1 x"}, {"a1 y"}, {"b1 x", "b2 x"}, {"b1 y", "b2 y"}},
			state:  event.Paused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld("c1", "b2", "a1", "b1")
				begin := time.Now()
				var mu sync.Mutex
				got := map[time.Duration][]string{}
				for host, f := range w.fakes {
					f.exec = func(_ context.Context, task string) error {
						mu.Lock()
						at := time.Since(begin)
						got[at] = append(got[at], host+" "+task)
						mu.Unlock()
						time.Sleep(time.Second)
						if host+" "+task == tc.fails {
							return errors.New("it fails")
						}
						return nil
					}
				}
				res := w.planAndApply(t, pipelineInWaves(tc.pause), tc.tune...)
				var order [][]string
				for at := time.Duration(0); len(got[at]) > 0; at += time.Second {
					order = append(order, slices.Sorted(slices.Values(got[at])))
				}
				if d := cmp.Diff(tc.want, order); d != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, d)
				}
				state := event.Succeeded
				switch {
				case len(res.Failures) > 0:
					state = event.Failed
				case res.Cancelled:
					state = event.Cancelled
				case res.Paused:
					state = event.Paused
				}
				if state != tc.state {
					t.Errorf("it ended as %s, want %s", state, tc.state)
				}
			})
		})
	}
}

// A resumed run does not stop again after waves that were completed earlier.
func TestWaves_SkipPauseWithoutChanges(t *testing.T) {
	w := newWorld("a1", "b1")
	p := pipelineInWaves(func(wave int) bool { return wave == 'a' })
	p.Modules[0].Tasks = []Task{{ID: "t.x", Ops: fileOps("/x", "")}}
	p.Modules = p.Modules[:1]
	if res := w.planAndApply(t, p); !res.Paused {
		t.Fatalf("%+v: want it to stop behind the first wave", res)
	}
	if _, ok := w.fakes["b1"].files["/x"]; ok {
		t.Fatal("the second wave has begun")
	}
	if res := w.planAndApply(t, p); res.Paused || len(res.Failures) > 0 {
		t.Fatalf("%+v: want it to go on to the end", res)
	}
	if _, ok := w.fakes["b1"].files["/x"]; !ok {
		t.Error("the second wave has not been")
	}
}

func TestWaves_RejectManagerTasks(t *testing.T) {
	p := pipelineInWaves(nil)
	p.Modules[0].Tasks = append(p.Modules[0].Tasks, Task{ID: "t.m", Manager: true, Run: &Action{}})
	if _, err := compileProgram(p, nil, applying, nil); err == nil {
		t.Error("want an error")
	}
}

// Hosts outside of the waves, or without planned steps, do not block others and are not
// blocked.
func TestWaves_IgnoreOtherHosts(t *testing.T) {
	p := pipelineInWaves(nil)
	waves := p.Modules[0].Waves
	p.Modules[0].Waves = func(h *Host) int {
		if h.Name == "n1" {
			return -1
		}
		return waves(h)
	}
	p.Modules[0].Changing = true
	var hosts []*Host
	for _, name := range []string{"a1", "b1", "c1", "n1"} {
		hosts = append(hosts, &Host{Host: v1alpha1.Host{Name: name}})
	}
	prog, err := compileProgram(p, hosts, applying,
		map[string]*declaration{"t.x@a1": {}, "t.y@c1": {}, "t.x@n1": {}})
	if err != nil {
		t.Fatal(err)
	}
	waits := map[string][]string{}
	for _, n := range prog.order {
		s := prog.steps[n]
		for _, before := range prog.Predecessors(n) {
			if s.task.ID == "t.x" && prog.steps[before] == nil {
				waits[s.hostName()] = append(waits[s.hostName()], "a wave")
			}
		}
	}
	if d := cmp.Diff(map[string][]string{"c1": {"a wave"}}, waits); d != "" {
		t.Errorf("who waits for another to begin (-want +got):\n%s", d)
	}
}
