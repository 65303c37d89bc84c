package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
)

func TestApply_SecondPlanIsEmpty(t *testing.T) {
	w := newWorld("a", "b")
	p := pipelineOf(Task{ID: "t.one", Title: "one", Ops: fileOps("/one", "1")},
		Task{ID: "t.two", Title: "two", On: onlyHost("b"), Ops: fileOps("/two", "2")})
	var got []string
	for _, s := range w.planSteps(t, p) {
		got = append(got, s.Task+"@"+s.Host+" "+string(s.State))
	}
	if d := cmp.Diff([]string{"t.one@a change", "t.one@b change", "t.two@b change"}, got); d != "" {
		t.Errorf("the plan is in the pipeline's order: -want +got\n%s", d)
	}
	if n := len(w.fakes["a"].files); n != 0 {
		t.Errorf("planning wrote %d files", n)
	}
	if res := w.planAndApply(t, p); res.Changed != 3 || len(res.Failures) > 0 {
		t.Errorf("apply: %+v", res)
	}
	if steps := w.planSteps(t, p); len(steps) != 0 {
		t.Errorf("after applying there is still something to do: %+v", steps)
	}
}

func TestTaskOptions_AreHonoured(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		reason string
		hosts  []string
		tasks  []Task
		exec   func(calls int, host, name string) error
		tune   func(*Run)
		want   map[string]event.Outcome
		// hosts on which something was not tried
		skipped []string
	}{
		"when": {
			reason: "a host that does not want a task is skipped, and goes on",
			hosts:  []string{"a", "b"},
			tasks: []Task{
				{ID: "t.x", When: func(s *Scope) bool { return s.Host().Name == "a" }, Ops: fileOps("/x", "")},
				{ID: "t.y", Ops: fileOps("/y", "")},
			},
			want: map[string]event.Outcome{"t.x@a": "changed", "t.x@b": "skipped", "t.y@a": "changed", "t.y@b": "changed"},
		},
		"failure stops its lane alone": {
			reason:  "another host's work that does not need the failed one is kept",
			hosts:   []string{"a", "b"},
			tasks:   []Task{{ID: "t.x", Ops: execOps("x")}, {ID: "t.y", Ops: fileOps("/y", "")}},
			exec:    func(_ int, host, _ string) error { return map[string]error{"a": boom}[host] },
			want:    map[string]event.Outcome{"t.x@a": "failed", "t.x@b": "changed", "t.y@a": "skipped", "t.y@b": "changed"},
			skipped: []string{"a"},
		},
		"needs": {
			reason:  "a task that needs one on all hosts does not run when it failed on one",
			hosts:   []string{"a", "b"},
			tasks:   []Task{{ID: "t.x", Ops: execOps("x")}, {ID: "t.y", Needs: []string{"t.x"}, Ops: fileOps("/y", "")}},
			exec:    func(_ int, host, _ string) error { return map[string]error{"a": boom}[host] },
			want:    map[string]event.Outcome{"t.x@a": "failed", "t.x@b": "changed", "t.y@a": "skipped", "t.y@b": "skipped"},
			skipped: []string{"a", "b"},
		},
		"ignore errors": {
			reason:  "with --ignore-errors the others finish",
			hosts:   []string{"a", "b"},
			tasks:   []Task{{ID: "t.x", Ops: execOps("x")}, {ID: "t.y", Needs: []string{"t.x"}, Ops: fileOps("/y", "")}},
			exec:    func(_ int, host, _ string) error { return map[string]error{"a": boom}[host] },
			tune:    func(r *Run) { r.IgnoreErrors = true },
			want:    map[string]event.Outcome{"t.x@a": "failed", "t.x@b": "changed", "t.y@a": "skipped", "t.y@b": "changed"},
			skipped: []string{"a"},
		},
		"needs all": {
			reason: "a task that takes something away waits for those that failed, whatever is ignored",
			hosts:  []string{"a", "b"},
			tasks: []Task{
				{ID: "t.x", Ops: execOps("x")},
				{ID: "t.y", Needs: []string{"t.x"}, Ops: fileOps("/y", "")},
				{ID: "t.z", Needs: []string{"t.y"}, NeedsAll: true, Ops: fileOps("/z", "")},
			},
			exec: func(_ int, host, _ string) error { return map[string]error{"a": boom}[host] },
			tune: func(r *Run) { r.IgnoreErrors = true },
			want: map[string]event.Outcome{
				"t.x@a": "failed", "t.x@b": "changed", "t.y@a": "skipped", "t.y@b": "changed", "t.z@a": "skipped", "t.z@b": "skipped",
			},
			skipped: []string{"a", "b"},
		},
		"needs all, and has nothing to do": {
			reason: "what is not there need not be kept for anybody",
			hosts:  []string{"a", "b"},
			tasks: []Task{
				{ID: "t.x", Ops: execOps("x")},
				{ID: "t.y", Needs: []string{"t.x"}, NeedsAll: true, Ops: func(*Scope) (op.List, error) { return nil, nil }},
				{ID: "t.z", Ops: fileOps("/z", "")},
			},
			exec: func(_ int, host, _ string) error { return map[string]error{"a": boom}[host] },
			tune: func(r *Run) { r.IgnoreErrors = true },
			want: map[string]event.Outcome{
				"t.x@a": "failed", "t.x@b": "changed", "t.y@a": "skipped",
				"t.y@b": "skipped", "t.z@a": "skipped", "t.z@b": "changed",
			},
			skipped: []string{"a"},
		},
		"needs all, and has it": {
			reason: "an error that a task may have is none",
			hosts:  []string{"a", "b"},
			tasks: []Task{
				{ID: "t.x", IgnoreError: true, Ops: execOps("x")},
				{ID: "t.y", Needs: []string{"t.x"}, NeedsAll: true, Ops: fileOps("/y", "")},
				{ID: "t.z", Needs: []string{"t.x"}, NeedsAll: true, Ops: fileOps("/z", "")},
			},
			exec: func(_ int, host, _ string) error { return map[string]error{"a": boom}[host] },
			want: map[string]event.Outcome{
				"t.x@a": "ignored", "t.x@b": "changed", "t.y@a": "changed", "t.y@b": "changed", "t.z@a": "changed", "t.z@b": "changed",
			},
		},
		"ignore error of a task": {
			reason: "a task may say that its failure does not matter",
			hosts:  []string{"a"},
			tasks:  []Task{{ID: "t.x", IgnoreError: true, Ops: execOps("x")}, {ID: "t.y", Ops: fileOps("/y", "")}},
			exec:   func(int, string, string) error { return boom },
			want:   map[string]event.Outcome{"t.x@a": "ignored", "t.y@a": "changed"},
		},
		"retry": {
			reason: "a task that fails twice succeeds at the third attempt",
			hosts:  []string{"a"},
			tasks:  []Task{{ID: "t.x", Retry: Retry{Attempts: 3, Delay: time.Hour}, Ops: execOps("x")}},
			exec: func(calls int, _, _ string) error {
				if calls < 3 {
					return boom
				}
				return nil
			},
			want: map[string]event.Outcome{"t.x@a": "changed"},
		},
		"no retry by default": {
			reason: "the zero value is one attempt",
			hosts:  []string{"a"},
			tasks:  []Task{{ID: "t.x", Ops: execOps("x")}},
			exec: func(calls int, _, _ string) error {
				if calls < 2 {
					return boom
				}
				return nil
			},
			want: map[string]event.Outcome{"t.x@a": "failed"},
		},
		"max unavailable": {
			reason: "after one failure no further host is begun",
			hosts:  []string{"a", "b", "c"},
			tasks:  []Task{{ID: "t.x", Rollout: Rollout{MaxParallel: "1", MaxUnavailable: "1"}, Ops: execOps("x")}},
			exec:   func(int, string, string) error { return boom },
			want:   nil, // the first host is not defined; see below
		},
		"once": {
			reason: "a script that succeeded before is not repeated",
			hosts:  []string{"a", "b"},
			tasks:  []Task{{ID: "t.x", Once: true, Ops: execOps("x")}},
			tune:   func(r *Run) { r.Done = map[string]bool{"t.x@a": true} },
			want:   map[string]event.Outcome{"t.x@a": "skipped", "t.x@b": "changed"},
		},
		"once, on a host that was installed anew": {
			reason: "what the script did there is gone",
			hosts:  []string{"a", "b"},
			tasks:  []Task{{ID: "t.x", Once: true, Ops: execOps("x")}},
			tune: func(r *Run) {
				r.Done = map[string]bool{"t.x@a": true, "t.x@b": true}
				for _, h := range r.Hosts {
					h.Facts = &op.HostFacts{Ledger: h.Name == "a"}
				}
			},
			want: map[string]event.Outcome{"t.x@a": "skipped", "t.x@b": "changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(tc.hosts...)
				var mu sync.Mutex
				calls := map[string]int{}
				for host, f := range w.fakes {
					f.exec = func(_ context.Context, name string) error {
						mu.Lock()
						defer mu.Unlock()
						calls[host]++
						if tc.exec == nil {
							return nil
						}
						return tc.exec(calls[host], host, name)
					}
				}
				tune := tc.tune
				if tune == nil {
					tune = func(*Run) {}
				}
				res := w.planAndApply(t, pipelineOf(tc.tasks...), tune)
				if d := cmp.Diff(tc.skipped, res.Skipped); d != "" && name != "max unavailable" {
					t.Errorf("%s: hosts with steps not tried: -want +got\n%s", tc.reason, d)
				}
				got := w.outcomesByStep()
				if name == "max unavailable" {
					count := map[event.Outcome]int{}
					for _, o := range got {
						count[o]++
					}
					if d := cmp.Diff(map[event.Outcome]int{"failed": 1, "skipped": 2}, count); d != "" {
						t.Errorf("%s: -want +got\n%s", tc.reason, d)
					}
					return
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Errorf("%s: -want +got\n%s", tc.reason, d)
				}
			})
		})
	}
}

func TestRetry_WaitsWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("a")
		w.fakes["a"].exec = func(context.Context, string) error { return errors.New("no") }
		p := pipelineOf(Task{ID: "t.x", Retry: Retry{Attempts: 4, Delay: time.Minute, Backoff: 2}, Ops: execOps("x")})
		start := time.Now()
		w.planAndApply(t, p)
		if got := time.Since(start); got != 7*time.Minute {
			t.Errorf("four attempts, one, two and four minutes apart, took %s", got)
		}
	})
}

func TestTimeout_EndsTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("a")
		ended := false
		w.fakes["a"].exec = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}
		res := w.planAndApply(t, pipelineOf(Task{ID: "t.x", Timeout: time.Minute, Ops: execOps("x")}))
		if len(res.Failures) != 1 || res.Failures[0].Reason != "Timeout" || !ended {
			t.Errorf("failures %+v, command ended: %t", res.Failures, ended)
		}
	})
}

func TestUntil_RepeatsUntilTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("a")
		looks := 0
		p := pipelineOf(Task{
			ID: "t.x", Ops: fileOps("/x", ""), Retry: Retry{Delay: time.Minute},
			Until: func(context.Context, *Scope) (bool, error) { looks++; return looks == 3, nil },
		})
		res := w.planAndApply(t, p)
		if looks != 3 || res.Changed != 1 {
			t.Errorf("looked %d times, %+v", looks, res)
		}
		never := pipelineOf(Task{
			ID: "t.y", Ops: fileOps("/y", ""), Timeout: time.Hour, Retry: Retry{Delay: time.Minute},
			Until: func(context.Context, *Scope) (bool, error) { return false, nil },
		})
		if res := w.planAndApply(t, never); len(res.Failures) != 1 || res.Failures[0].Reason != "Timeout" {
			t.Errorf("an until that never holds is bounded: %+v", res)
		}
	})
}

func TestMaxParallel_LimitsHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		bound string
		want  int32
	}{
		"number":   {"2", 2},
		"share":    {"50%", 3},
		"at least": {"1%", 1},
		"none":     {"", 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld("a", "b", "c", "d", "e", "f")
				var now, most atomic.Int32
				for _, f := range w.fakes {
					f.exec = func(context.Context, string) error {
						most.Store(max(most.Load(), now.Add(1)))
						time.Sleep(time.Second)
						now.Add(-1)
						return nil
					}
				}
				w.planAndApply(t, pipelineOf(Task{ID: "t.x", Rollout: Rollout{MaxParallel: tc.bound}, Ops: execOps("x")}))
				if most.Load() != tc.want {
					t.Errorf("%d hosts at once, want %d", most.Load(), tc.want)
				}
			})
		})
	}
}

// A host that waits for its next attempt releases its slot to hosts that have not run yet:
// it may depend on one of them.
func TestRetry_ReleasesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("a", "b")
		var mu sync.Mutex
		tried := map[string]bool{}
		for name, f := range w.fakes {
			f.exec = func(context.Context, string) error {
				mu.Lock()
				defer mu.Unlock()
				if tried[name] = true; len(tried) < 2 {
					return errors.New("the other one goes first")
				}
				return nil
			}
		}
		res := w.planAndApply(t,
			pipelineOf(Task{ID: "t.x", Rollout: Rollout{MaxParallel: "1"}, Retry: Retry{Attempts: 2, Delay: time.Second}, Ops: execOps("x")}))
		if len(res.Failures) > 0 {
			t.Errorf("%+v", res.Failures)
		}
	})
}

func TestLanes_AdvanceIndependently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("slow", "fast")
		var fastDone, slowDone time.Time
		w.fakes["slow"].exec = func(context.Context, string) error { time.Sleep(time.Hour); slowDone = time.Now(); return nil }
		w.fakes["fast"].exec = func(_ context.Context, name string) error {
			if name == "y" {
				fastDone = time.Now()
			}
			return nil
		}
		w.planAndApply(t, pipelineOf(Task{ID: "t.x", Ops: execOps("x")}, Task{ID: "t.y", Ops: execOps("y")}))
		if !fastDone.Before(slowDone) {
			t.Error("the fast host waited for the slow one")
		}
		w = newWorld("slow", "fast")
		w.fakes["slow"].exec = func(context.Context, string) error { time.Sleep(time.Hour); slowDone = time.Now(); return nil }
		w.fakes["fast"].exec = func(context.Context, string) error { fastDone = time.Now(); return nil }
		w.planAndApply(t,
			pipelineOf(Task{ID: "t.x", On: onlyHost("slow"), Ops: execOps("x")},
				Task{ID: "t.y", On: onlyHost("fast"), Barrier: true, Ops: execOps("y")}))
		if fastDone.Before(slowDone) {
			t.Error("a barrier did not hold the fast host")
		}
	})
}

func TestNote_ReachesTheEvents(t *testing.T) {
	w := newWorld("a")
	p := pipelineOf(Task{ID: "t.x", Ops: fileOps("/x", ""), After: func(_ context.Context, s *Scope, _ []op.Result) error {
		s.ShowNote("%s stays", "/y")
		return nil
	}})
	w.planSteps(t, p)
	if len(w.events) != 0 {
		t.Errorf("a plan tells nothing: %+v", w.events)
	}
	w.planAndApply(t, p)
	var got []event.Event
	for _, e := range w.events {
		if e.Type == event.Note {
			e.Time = time.Time{}
			got = append(got, e)
		}
	}
	want := []event.Event{{Type: event.Note, Operation: "op-1", Cluster: "test", Module: "m", Task: "t.x", Host: "a", Message: "/y stays"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestValues_PassBetweenTasks(t *testing.T) {
	token := NewKey("token", "(token)")
	provider := Task{
		ID: "t.make", On: onlyHost("a"), Provides: []KeyRef{token.Ref()}, Ops: execOps("make"),
		After: func(_ context.Context, s *Scope, _ []op.Result) error { ProvideValue(s, token, "secret"); return nil },
	}
	consumer := Task{ID: "t.use", On: onlyHost("b"), Consumes: []KeyRef{token.Ref()}, Ops: func(s *Scope) (op.List, error) {
		return op.List{op.File{Path: "/token", Content: []byte(GetValue(s, token))}}, nil
	}}
	w := newWorld("a", "b")
	steps := w.planSteps(t, pipelineOf(provider, consumer))
	if len(steps) != 2 || steps[1].State != plan.Pending || steps[1].After != "t.make" {
		t.Fatalf("a step whose value is not there yet is pending after its provider: %+v", steps)
	}
	w.planAndApply(t, pipelineOf(provider, consumer))
	if got := w.fakes["b"].files["/token"]; got != "secret" {
		t.Errorf("the consumer wrote %q", got)
	}
	if steps := w.planSteps(t, pipelineOf(provider, consumer)); len(steps) != 0 {
		t.Errorf("an unchanged provider provides its value: %+v", steps)
	}
	for name, p := range map[string]Pipeline{
		"consumes":     pipelineOf(consumer),
		"needs":        pipelineOf(Task{ID: "t.x", Needs: []string{"t.gone"}, Ops: fileOps("/x", "")}),
		"has no Needs": pipelineOf(Task{ID: "t.x", NeedsAll: true, Ops: fileOps("/x", "")}),
		"duplicate":    pipelineOf(Task{ID: "t.x", Ops: fileOps("/x", "")}, Task{ID: "t.x", Ops: fileOps("/x", "")}),
		"cycle": pipelineOf(Task{ID: "t.x", On: onlyHost("a"), Needs: []string{"t.y"}, Ops: fileOps("/x", "")},
			Task{ID: "t.y", On: onlyHost("a"), Ops: fileOps("/x", "")}),
	} {
		if _, err := w.newRun().Apply(t.Context(), p, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: a pipeline that makes no sense must be refused before anything runs, got %v", name, err)
		}
	}
}

func TestApply_RefusesUnplannedChanges(t *testing.T) {
	w := newWorld("a")
	p := pipelineOf(Task{ID: "t.x", Ops: fileOps("/x", "1")})
	w.fakes["a"].setFile("/x", "1")
	steps := w.planSteps(t, p)
	w.fakes["a"].setFile("/x", "drift")
	res, err := w.newRun().Apply(t.Context(), p, steps)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Failures) != 1 || res.Failures[0].Reason != "PlanStale" || w.fakes["a"].files["/x"] != "drift" {
		t.Errorf("a change the plan does not name was made: %+v %v", res, w.fakes["a"].files)
	}
}

// An object that a reset removes is created again by a later step, although it was as
// wanted.
func TestPlan_RecreatesRemovedObjects(t *testing.T) {
	w := newWorld("a")
	yes := true
	p := pipelineOf(
		Task{ID: "t.reset", Ops: func(*Scope) (op.List, error) {
			return op.List{op.Reset{Units: []string{"x.service", "y.service"}, Paths: []string{"/var/lib/x"}}}, nil
		}},
		Task{ID: "t.again", Ops: func(*Scope) (op.List, error) {
			return op.List{
				op.Dir{Path: "/var/lib/x"},
				op.Dir{Path: "/var/lib/z"},
				op.Unit{Name: "x.service", Running: &yes},
				op.Unit{Name: "y.service"},
			}, nil
		}})
	steps := w.planSteps(t, p)
	var said []string
	for _, c := range steps[len(steps)-1].Changes {
		said = append(said, c.Target+": "+c.Summary)
	}
	if d := cmp.Diff([]string{"/var/lib/x: create again", "x.service: start again"}, said); d != "" {
		t.Errorf("the plan (-want +got):\n%s", d)
	}
}

// A component that an earlier step restarts may be down for a while, although it answered
// when the plan was made.
func TestApply_AllowsUnplannedWaits(t *testing.T) {
	w := newWorld("a")
	p := pipelineOf(
		Task{ID: "t.restart", Ops: func(*Scope) (op.List, error) { return op.List{op.Absent{Path: "/ready"}}, nil }},
		Task{ID: "t.wait", Ops: func(*Scope) (op.List, error) { return op.List{op.Wait{Path: "/ready"}}, nil }})
	w.fakes["a"].setFile("/ready", "")
	steps := w.planSteps(t, p)
	if len(steps) != 1 {
		t.Fatalf("planned %+v, want the restart alone", steps)
	}
	res, err := w.newRun().Apply(t.Context(), p, steps)
	if err != nil || len(res.Failures) != 0 || len(w.fakes["a"].log) != 2 {
		t.Errorf("a wait was refused: %v %+v %v", err, res, w.fakes["a"].log)
	}
}

func TestPlan_RestartsDependentsOfAFile(t *testing.T) {
	w := newWorld("a")
	p := pipelineOf(
		Task{ID: "t.conf", Ops: fileOps("/conf", "2")},
		Task{ID: "t.unit", Ops: func(*Scope) (op.List, error) {
			return op.List{op.Unit{Name: "x.service", RestartOn: []string{"/conf"}}}, nil
		}})
	steps := w.planSteps(t, p)
	if len(steps) != 2 || steps[1].Changes[0].Summary != "restart: /conf changes" {
		t.Errorf("the restart that a change brings about is in the plan: %+v", steps)
	}
}

func TestUndo_RevertsChangedSteps(t *testing.T) {
	w := newWorld("a", "b")
	away := func(path string) func(*Scope) (op.List, error) {
		return func(*Scope) (op.List, error) { return op.List{op.Absent{Path: path}}, nil }
	}
	p := pipelineOf(
		Task{ID: "t.x", Title: "x", Ops: fileOps("/x", "1"), Undo: away("/x")},
		Task{ID: "t.stays", Title: "what needs no undoing", Ops: fileOps("/stays", "1")},
		Task{ID: "t.y", Title: "y", Ops: fileOps("/y", "1"), Undo: away("/y")},
	)
	w.planAndApply(t, p)
	undo := UndoPipeline(p, map[string]bool{"t.x@a": true})
	if got := undo.Modules[0].Tasks; len(got) != 2 || got[0].ID != "undo.t.y" || got[1].ID != "undo.t.x" {
		t.Errorf("taken back are %+v, want y and then x: the newest first", got)
	}
	w.planAndApply(t, undo)
	_, a := w.fakes["a"].files["/x"]
	_, b := w.fakes["b"].files["/x"]
	if a || !b {
		t.Errorf("undone on a: %t, kept on b: %t", !a, b)
	}
}

func TestCancel_StopsCleanly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("a")
		ctx, cancel := context.WithCancel(t.Context())
		whole := Task{ID: "t.whole", Ops: func(*Scope) (op.List, error) {
			return op.List{op.Exec{Name: "x", Argv: []string{"x"}, Creates: []string{"/done/x"}, Whole: true}}, nil
		}}
		w.fakes["a"].exec = func(ctx context.Context, _ string) error {
			cancel()
			time.Sleep(time.Minute)
			return ctx.Err()
		}
		p := pipelineOf(whole, Task{ID: "t.next", Ops: fileOps("/next", "")})
		steps := w.planSteps(t, p)
		res, err := w.newRun().Apply(ctx, p, steps)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]event.Outcome{"t.whole@a": "changed", "t.next@a": "cancelled"}
		if d := cmp.Diff(want, w.outcomesByStep()); d != "" || !res.Cancelled {
			t.Errorf("what must not be cut is waited for, the rest is not begun: %+v\n%s", res, d)
		}
	})
}

func TestApply_StopsWhenTheJournalFails(t *testing.T) {
	w := newWorld("a")
	p := pipelineOf(Task{ID: "t.x", Ops: fileOps("/x", "")}, Task{ID: "t.y", Ops: fileOps("/y", "")})
	steps := w.planSteps(t, p)
	r := w.newRun()
	r.Emit = func(event.Event) error { return errors.New("disk full") }
	if _, err := r.Apply(t.Context(), p, steps); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
	if _, ok := w.fakes["a"].files["/y"]; ok {
		t.Error("work went on although nothing could be recorded")
	}
}

func TestApply_ChangesNothingBeforeItsStartIsDurable(t *testing.T) {
	p := pipelineOf(Task{ID: "t.x", Ops: fileOps("/x", "")}, Task{ID: "t.known", Ops: fileOps("/known", "")})
	for _, tc := range []struct {
		name, reason string
		err          error
		changed      bool
	}{
		{"durable", "the journal has the start of the step", nil, true},
		{"not durable", "a resume would not know that the step began", errors.New("disk full"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld("a")
			w.fakes["a"].setFile("/known", "")
			syncs := 0
			steps := w.planSteps(t, p)
			r := w.newRun()
			r.Sync = func() error {
				syncs++
				if _, changed := w.fakes["a"].files["/x"]; changed {
					t.Error("the host was changed before")
				}
				return tc.err
			}
			if _, err := r.Apply(t.Context(), p, steps); !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if _, changed := w.fakes["a"].files["/x"]; changed != tc.changed {
				t.Errorf("changed: %v: %s", changed, tc.reason)
			}
			if syncs != 1 {
				t.Errorf("%d syncs: only steps that change something need one", syncs)
			}
		})
	}
}

func TestFailures_HaveRemedies(t *testing.T) {
	for reason, want := range map[string]bool{
		"DiskFull": true, "BlobCorrupt": true, op.IDLedgerLost: true,
		op.ReasonEtcdDataLost: true, op.ReasonEtcdBusy: true, op.ReasonNotServing: true, op.IDEtcdNameTaken: true, "CommandFailed": false,
	} {
		f := ExplainFailure(fmt.Errorf("applying x: %w", &op.Error{Reason: reason, Message: "m"}))
		if f.Reason != reason || f.Message != "m" || (f.Remedy != "") != want {
			t.Errorf("%s: %+v", reason, f)
		}
	}
}

func TestExplainFailure_ReturnsErrorCode(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		err          error
		want         v1alpha1.ErrorCode
	}{
		{"host", "its disk is full", &op.Error{Reason: "DiskFull", Message: "m"}, v1alpha1.ErrorCapacity},
		{"connection", "the login was refused", &remote.Error{Reason: remote.AuthFailed, Cause: "m"}, v1alpha1.ErrorCredentials},
		{"time limit", "a program on the host was slow", &timeoutError{time.Minute}, v1alpha1.ErrorInternal},
		{"old plan", "another change came first", &staleError{}, v1alpha1.ErrorConflict},
		{"diagnosis", "its id has a code", diag.Refuse("drain-blocked", "m", "h"), v1alpha1.ErrorConflict},
		{"network", "no program listens", fmt.Errorf("asking: %w", syscall.ECONNREFUSED), v1alpha1.ErrorUnreachable},
		{"other", "nothing is known", errors.New("m"), v1alpha1.ErrorInternal},
	} {
		if f := ExplainFailure(fmt.Errorf("applying x: %w", tc.err)); f.Code != tc.want {
			t.Errorf("%s: %+v, want code %s: %s", tc.name, f, tc.want, tc.reason)
		}
	}
}

// TestAfter_NamesThePredecessor: each step names the step whose end let it begin, also across a barrier and a
// step that had nothing to do.
func TestAfter_NamesThePredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("slow", "fast")
		w.fakes["slow"].exec = func(context.Context, string) error { time.Sleep(time.Hour); return nil }
		w.fakes["slow"].setFile("/idle", "x")
		w.fakes["fast"].setFile("/idle", "x")
		w.planAndApply(t, pipelineOf(
			Task{ID: "t.x", Ops: execOps("x")},
			Task{ID: "t.idle", Ops: fileOps("/idle", "x")},
			Task{ID: "t.y", Barrier: true, On: onlyHost("fast"), Ops: execOps("y")},
		))
		got := map[string]string{}
		for _, e := range w.events {
			if e.Type == event.StepFinished {
				got[e.Task+"@"+e.Host] = e.After
			}
		}
		want := map[string]string{
			"t.x@slow": "", "t.x@fast": "", "t.idle@slow": "t.x@slow", "t.idle@fast": "t.x@fast", "t.y@fast": "t.idle@slow",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}
