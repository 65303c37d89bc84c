//go:build linux

package executor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// shell returns an Exec of a script whose $0 is the root of the host.
func (h *testHost) shell(name, script string) op.Exec {
	return op.Exec{Name: name, Argv: []string{"sh", "-c", script, h.r.Root}}
}

func TestExec_RunsUnlessGuardsHold(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		before       func(h *testHost)
		exec         func(h *testHost) op.Exec
		want         string
	}{
		{"none", "it cannot be checked", nil, func(h *testHost) op.Exec { return h.shell("x", "true") }, "cannot be checked: always runs"},
		{"creates missing", "its work is not there", nil, func(h *testHost) op.Exec {
			o := h.shell("x", "true")
			o.Creates = []string{"/etc/hosts", "/etc/new/*"}
			return o
		}, "run: /etc/new/* is missing"},
		{"creates there", "its work is there", nil, func(h *testHost) op.Exec {
			o := h.shell("x", "true")
			o.Creates = []string{"/etc/host*"}
			return o
		}, ""},
		{"unless fails", "the program says so", nil, func(h *testHost) op.Exec {
			o := h.shell("x", "true")
			o.Creates, o.Unless = []string{"/etc/hosts"}, []string{"false"}
			return o
		}, "run: false requires it"},
		{"unless is not installed", "what cannot look cannot say that all is well", nil, func(h *testHost) op.Exec {
			o := h.shell("x", "true")
			o.Unless = []string{"no-such-program"}
			return o
		}, "run: no-such-program requires it"},
		{"last run failed", "what a failed run left is not its work", func(h *testHost) {
			h.r.Apply(context.Background(), h.batch(h.shell("x", "false")), nil)
		}, func(h *testHost) op.Exec {
			o := h.shell("x", "true")
			o.Creates = []string{"/etc/hosts"}
			return o
		}, "run: the last run failed"},
		{"input changed", "the guards do not hold then", func(h *testHost) {
			o := h.shell("x", "true")
			o.Inputs = []string{"/etc/hosts"}
			h.apply(o)
			h.write("etc/hosts", "changed\n")
		}, func(h *testHost) op.Exec {
			o := h.shell("x", "true")
			o.Creates, o.Inputs = []string{"/etc/hosts"}, []string{"/etc/hosts"}
			return o
		}, "run: /etc/hosts changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			if c.before != nil {
				c.before(h)
			}
			r := h.check(c.exec(h))[0]
			if r.Error != nil {
				t.Fatalf("check: %v", r.Error)
			}
			if diff := cmp.Diff(c.want, r.Summary); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
}

func TestExec_ReportsCauseOfFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		exec         op.Exec
		want         op.Error
	}{
		{
			"exit code", "evidence is attached",
			op.Exec{Argv: []string{"sh", "-c", "echo first >&2; echo last >&2; exit 3"}},
			op.Error{Reason: "CommandFailed", Message: "applying exec x: sh exited with 3: last", Detail: "first\nlast", ExitCode: 3},
		},
		{
			"secret", "what it said stays secret",
			op.Exec{Argv: []string{"sh", "-c", "echo canary >&2; exit 3"}, SecretOutput: true},
			op.Error{
				Reason:  "CommandFailed",
				Message: "applying exec x: x failed (3); its output is not shown, because it can contain secrets", ExitCode: 3,
			},
		},
		{
			"timeout", "the whole group is ended",
			op.Exec{Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000"}, TimeoutSeconds: 1},
			op.Error{Reason: "Timeout", Message: "applying exec x: sh did not finish in time"},
		},
		{
			"signal", "it was not us",
			op.Exec{Argv: []string{"sh", "-c", "kill -9 $$"}},
			op.Error{Reason: "CommandFailed", Message: "applying exec x: sh: signal: killed"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.exec.Name = "x"
			r := h.r.Apply(context.Background(), h.batch(c.exec, op.Dir{Path: "/never"}), nil)
			if len(r) != 1 || r[0].Error == nil {
				t.Fatalf("results: %+v, want one failure and no more", r)
			}
			if diff := cmp.Diff(c.want, *r[0].Error); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
}

func TestExec_ReportsOutputUnlessSecret(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.shell("x", "cat; echo err >&2; echo $VALUE")
	o.Stdin, o.Env, o.KeepOutput = []byte("in\n"), []string{"VALUE=out"}, true
	var told strings.Builder
	r := h.r.Apply(context.Background(), h.batch(o), func(i int, p host.Progress) { told.Write(p.Output) })
	if string(r[0].Output) != "in\nout\n" || !strings.Contains(told.String(), "err\n") {
		t.Errorf("output %q, reported %q", r[0].Output, told.String())
	}
	o.SecretOutput = true
	told.Reset()
	if r = h.r.Apply(context.Background(), h.batch(o), func(i int, p host.Progress) { told.Write(p.Output) }); told.Len() > 0 || !r[0].Secret {
		t.Errorf("secret output was reported: %q", told.String())
	}
}

func TestExec_StopsWhenCancelled(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ctx, cancel := context.WithCancel(context.Background())
	o := h.shell("x", "echo started; sleep 1000")
	r := h.r.Apply(ctx, h.batch(o), func(int, host.Progress) { cancel() })
	if r[0].Error == nil || r[0].Error.Reason != "Interrupted" {
		t.Errorf("result %+v, want Interrupted", r[0])
	}
}

// TestApply_RefusesBatchWithOlderFence checks that a manager cannot continue on a host
// after another manager has taken it over.
func TestApply_RefusesBatchWithOlderFence(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	b := h.batch(op.Dir{Path: "/etc/one"}, h.shell("raise", "echo 9 > $0/var/lib/slipway/fence"), op.Dir{Path: "/etc/two"})
	b.Fence = 5
	r := h.r.Apply(context.Background(), b, nil)
	if len(r) != 3 || r[2].Error == nil || r[2].Error.Reason != "Fenced" {
		t.Fatalf("results %+v, want the third to be fenced off: another manager came in between", r)
	}
	if r := h.r.Apply(context.Background(), b, nil); len(r) != 1 || r[0].Error.Reason != "Fenced" {
		t.Errorf("results %+v, want the batch refused", r)
	}
	b.Fence, b.Ops = 0, op.List{op.Dir{Path: "/etc/three"}}
	if r := h.r.Apply(context.Background(), b, nil); r[0].Error != nil {
		t.Errorf("a batch without a number is never fenced: %v", r[0].Error)
	}
	b.Ops = op.List{h.shell("spoil", "echo > $0/var/lib/slipway/fence"), op.Dir{Path: "/etc/four"}}
	if r := h.r.Apply(context.Background(), b, nil); r[0].Error != nil {
		t.Error(r[0].Error)
	}
	if r := h.r.Check(context.Background(), op.List{op.Dir{Path: "/etc/five"}}); r[0].Error != nil {
		t.Errorf("looking does not depend on the number: %v", r[0].Error)
	}
	b.Fence = 9
	if r := h.r.Apply(context.Background(), b, nil); r[0].Error == nil || r[0].Error.Reason != op.IDFenceUnreadable {
		t.Errorf("results %+v, want it said that the number cannot be read", r)
	}
}

// TestExec_LeavesNoUnitAndNoRunFiles uses a fake systemd-run that runs programs at once. It checks that the result
// is returned, and that no unit and no file of the run remains.
func TestExec_LeavesNoUnitAndNoRunFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.shell("step", "mkdir -p $0/etc/made; echo $(cat) >> $0/etc/made/log; echo out")
	o.Whole, o.Creates, o.KeepOutput, o.Stdin = true, []string{"/etc/made/log"}, true, []byte("run")
	r := h.apply(o)[0]
	if string(r.Output) != "out\n" || h.read("etc/made/log") != "run\n" {
		t.Errorf("output %q, log %q", r.Output, h.read("etc/made/log"))
	}
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("after: %s (%s)", r.Status, r.Summary)
	}
	if left, err := os.ReadDir(filepath.Join(h.r.State, "run")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if w := h.see(); len(w.Transient) > 0 {
		t.Errorf("units are left: %v", w.Transient)
	}
}

// TestExec_RemovesReplacedFilesBeforeRun checks a program that does not overwrite an existing file: the file is
// removed before the program runs.
func TestExec_RemovesReplacedFilesBeforeRun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.shell("serving", "test -e $0/etc/cert || cp $0/etc/names $0/etc/cert")
	o.Whole, o.Inputs, o.Replaces, o.Declares = true, []string{"/etc/names"}, []string{"/etc/cert"}, []string{"/etc/cert"}
	h.write("etc/cert", "another's")
	for _, names := range []string{"one", "two"} {
		h.write("etc/names", names)
		h.apply(o)
		if got := h.read("etc/cert"); got != names {
			t.Errorf("the file is %q, want %q", got, names)
		}
		if r := h.check(o)[0]; r.Status != op.Unchanged {
			t.Errorf("after: %s (%s)", r.Status, r.Summary)
		}
	}
	o.Whole = false
	if r := h.check(o)[0]; r.Error == nil || r.Error.Reason != "Invalid" {
		t.Errorf("without being whole: %+v", r)
	}
}

// TestExec_WaitsForProgramOfLostManager checks that a program continues when its manager is gone. The next
// program waits for it, and does not run if the first has done its work.
func TestExec_WaitsForProgramOfLostManager(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	first := h.shell("first", "echo out; echo first >> $0/etc/runs")
	second := h.shell("second", "echo second >> $0/etc/runs")
	third := h.shell("third", "echo third >> $0/etc/runs")
	first.Whole, second.Whole, third.Whole = true, true, true
	first.Creates, second.Creates = []string{"/etc/runs"}, []string{"/etc/runs"}
	second.Conclusive, third.Inputs = true, []string{"/etc/hostname"}
	w := h.see()
	w.OnRun = "linger"
	h.world(w)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if r := h.r.Apply(ctx, h.batch(first), func(int, host.Progress) { cancel() }); r[0].Error == nil || r[0].Error.Reason != "Interrupted" {
		t.Fatalf("the first manager: %+v", r[0])
	}
	w = h.see()
	w.OnRun = ""
	h.world(w)
	waits := 0
	for _, o := range []op.Exec{third, second} {
		r := h.r.Apply(t.Context(), h.batch(o), func(_ int, p host.Progress) {
			if !strings.HasPrefix(string(p.Output), "waiting for slipway-create-1-step-first.service") {
				return
			}
			if waits++; h.read("etc/runs") != "first\n" {
				t.Errorf("programs ran at the same time as the first: %q", h.read("etc/runs"))
			}
			w := h.see()
			w.settle()
			h.world(w)
		})[0]
		if r.Error != nil {
			t.Fatalf("%s: %v", o.Name, r.Error)
		}
	}
	if got := h.read("etc/runs"); waits != 1 || got != "first\nthird\n" {
		t.Errorf("waited %d times; have run: %q", waits, got)
	}
	if r := h.apply(first)[0]; r.Status == op.Failed {
		t.Errorf("the first one's result: %+v", r)
	}
	if got := h.read("etc/runs"); got != "first\nthird\n" {
		t.Errorf("run again: %q", got)
	}
}

// TestExec_UsesResultThatNoManagerHasSeen checks the next run after a program ended while
// no manager was connected.
func TestExec_UsesResultThatNoManagerHasSeen(t *testing.T) {
	for _, c := range []struct {
		name, reason, script, operation string
		runs                            int
		fails, killed                   bool
	}{
		{"success", "the work is done", "echo out; echo x >> $0/etc/runs; echo x > $0/etc/log", "create-1", 1, false, false},
		{"failure", "it is reported once", "echo out; echo x >> $0/etc/runs; echo x > $0/etc/log; exit 4", "create-1", 1, true, false},
		{
			"told to end", "systemd reports a clean end, but the work is not done",
			"echo out; echo x >> $0/etc/runs; echo x > $0/etc/log", "create-1", 1, true, true,
		},
		{
			"told to end, of another operation", "it has not done its work: ours runs",
			"echo out; echo x >> $0/etc/runs; echo x > $0/etc/log", "other", 2, false, true,
		},
		{
			"success of another operation", "the work is done all the same",
			"echo out; echo x >> $0/etc/runs; echo x > $0/etc/log", "other", 1, false, false,
		},
		{
			"failure of another operation", "it is not ours: ours runs",
			"echo out; echo x >> $0/etc/runs; echo x > $0/etc/log; [ $(wc -l < $0/etc/runs) -gt 1 ]", "other", 2, false, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			o := h.shell("step", c.script)
			o.Whole, o.Creates = true, []string{"/etc/log"}
			// The manager disconnects before the program has ended.
			ctx, cancel := context.WithCancel(context.Background())
			b := h.batch(o)
			b.Operation = c.operation
			w := h.see()
			w.OnRun = "linger"
			h.world(w)
			if r := h.r.Apply(ctx, b, func(int, host.Progress) { cancel() }); r[0].Error == nil || r[0].Error.Reason != "Interrupted" {
				t.Fatalf("the first manager: %+v", r[0])
			}
			w = h.see()
			w.settle()
			w.OnRun = ""
			for _, u := range w.Transient {
				u.Killed = c.killed
			}
			h.world(w)

			r := h.r.Apply(context.Background(), h.batch(o), nil)[0]
			if (r.Status == op.Failed) != c.fails {
				t.Errorf("%s: %s %v", c.reason, r.Status, r.Error)
			}
			if n := strings.Count(h.read("etc/runs"), "x"); n != c.runs {
				t.Errorf("%s: it ran %d times, want %d", c.reason, n, c.runs)
			}
		})
	}
}

// TestExec_RunsUnlessItsServiceResponds checks that a program runs unless its service responds, however
// often it has run before for the same reason.
func TestExec_RunsUnlessItsServiceResponds(t *testing.T) {
	const unhealthy = "https://127.0.0.1:2379 is unhealthy: failed to commit proposal: "
	for _, tc := range []struct {
		name, says string
		runs       bool
	}{
		{"healthy", "", false},
		{"no leader", unhealthy + "context deadline exceeded", true},
		{"the database is full, of several members", unhealthy + "Active Alarm(s): NOSPACE NOSPACE ", false},
		{"corrupt, too", unhealthy + "Active Alarm(s): NOSPACE CORRUPT ", true},
		{"an alarm of a newer etcd", unhealthy + "Active Alarm(s): NOSPACE UNKNOWN ", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			h.write("etc/says", tc.says)
			ask := h.shell("ask", `test ! -s $0/etc/says || { cat $0/etc/says >&2; exit 1; }`)
			e := h.shell("mend", "cat $0/etc/conf > $0/etc/manifest")
			e.Inputs, e.Again, e.UnlessServes = []string{"/etc/conf"}, "it does not serve", &op.Wait{
				Name:    "etcd",
				Program: ask.Argv, TimeoutSeconds: 1,
			}
			h.write("etc/conf", "older")
			for range 2 {
				h.write("etc/manifest", "newer") // by other software
				if r := h.apply(e)[0]; (r.Status == op.Changed) != tc.runs || (h.read("etc/manifest") == "older") != tc.runs {
					t.Errorf("%+v, and the manifest is %q: want it to run: %t", r, h.read("etc/manifest"), tc.runs)
				}
			}
		})
	}
}
