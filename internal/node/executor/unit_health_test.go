//go:build linux

package executor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// healthy returns a unit with settings, and the checks that must pass again after a
// restart.
func healthy(h *testHost) op.Unit {
	u := op.Unit{Name: "old.service", Running: op.Bool(true), RestartOn: []string{"/etc/app.conf"}}
	for _, name := range []string{"one", "two"} {
		u.Again = append(u.Again, op.Wait{Name: name, Program: []string{"/usr/bin/grep", "-q", name, h.path("etc/answers")}, TimeoutSeconds: 1})
	}
	return u
}

// TestUnit_RequiresServicesThatRespondedBefore checks that a service that responded before a restart must respond after
// it, however often the helper is killed in between. A service that did not respond is
// not awaited.
func TestUnit_RequiresServicesThatRespondedBefore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason  string
		before, after string // the services that respond
		awaited       string // the service that is missing, "" for none
	}{
		{"all as before", "the node does what it did", "one two", "one two", ""},
		{"one less", "the node does not", "one two", "two", "one"},
		{"the other less", "each of them counts", "one two", "one", "two"},
		{"it did not before", "it did not respond before", "two", "two", ""},
		{"nothing before", "the restart may repair it", "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			unit := healthy(h)
			h.write("etc/answers", tc.before)
			h.apply(op.File{Path: "/etc/app.conf", Content: []byte("1\n")}, unit)
			h.apply(op.File{Path: "/etc/app.conf", Content: []byte("2\n")})
			w := h.see()
			w.OnRun = "write " + tc.after
			h.world(w)
			r := h.r.Apply(t.Context(), h.batch(unit), nil)[0]
			if tc.awaited == "" {
				if r.Status != op.Changed {
					t.Errorf("%+v: %s", r, tc.reason)
				}
				if r := h.check(unit)[0]; r.Status != op.Unchanged {
					t.Errorf("something is left to do: %+v", r)
				}
				return
			}
			if r.Error == nil || r.Error.Reason != op.ReasonUnhealthy || !strings.Contains(r.Error.Message, tc.awaited+" did not answer") ||
				r.Error.Detail == "" {
				t.Fatalf("%+v: %s", r.Error, tc.reason)
			}
			if r := h.check(unit)[0]; r.Status != op.Changed || !strings.Contains(r.Summary, "serves again") {
				t.Errorf("that it does not serve is forgotten: %+v", r)
			}
			// Its settings are as before, and it serves again.
			w = h.see()
			w.OnRun = "write " + tc.before
			h.world(w)
			h.apply(op.File{Path: "/etc/app.conf", Content: []byte("1\n")}, unit)
			if r := h.check(unit)[0]; r.Status != op.Unchanged {
				t.Errorf("after the way back something is left to do: %+v", r)
			}
		})
	}
}

// TestWait_DetectsRepeatedExitsOfContainer checks that a container that always ends after its start is not awaited
// until the timeout, and that its output is reported. Logs of the previous pod do not
// count.
func TestWait_DetectsRepeatedExitsOfContainer(t *testing.T) {
	t.Parallel()
	const logs = "var/log/pods/kube-system_kube-apiserver-cp1_%/kube-apiserver/"
	in := func(pod, file string) string { return strings.Replace(logs, "%", pod, 1) + file }
	wait := op.Wait{HTTP: "https://127.0.0.1:1/readyz", Manifest: apiManifest, Crashes: 2, TimeoutSeconds: 1}
	const said = "2026-11-23T04:00:00Z stderr F usage:\n2026-11-23T04:00:00Z stderr F Error: unknown flag: " +
		"--no-such\n2026-11-23T04:00:00Z stderr F see --help\n"
	for _, tc := range []struct {
		name, reason string
		logs         []string
		says         string
	}{
		{"twice", "the third start is under way", []string{"0.log", "1.log", "2.log"}, "unknown flag: --no-such"},
		{"once", "it may come yet", []string{"0.log", "1.log"}, "did not answer within 1s"},
		{"never", "it has just been written", nil, "did not answer within 1s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.write(in("before", "7.log"), "2026 stderr F Error: of the pod before\n")
			earlier := time.Now().Add(-time.Hour) // the container's directory may be newer
			if err := os.Chtimes(filepath.Dir(filepath.Dir(h.path(in("before", "7.log")))), earlier, earlier); err != nil {
				t.Fatal(err)
			}
			h.write(apiManifest, apiServer("--no-such"))
			// The logs are written during the wait.
			for _, l := range tc.logs {
				h.write(in("after", l), said)
			}
			s := &host.Host{Root: h.r.Root, State: h.r.State}
			if got := health.ExitedOften(s, wait, health.Crashes{}); got != (len(tc.logs) == 3) {
				t.Errorf("it has ended often: %t; %s", got, tc.reason)
			}
			if len(tc.logs) == 3 {
				if err := health.CrashError(s, wait); !strings.Contains(err.Error(), tc.says) {
					t.Errorf("it says %v, want %q", err, tc.says)
				}
			}
			// Exits before the wait do not count.
			if health.ExitedOften(s, wait, health.LatestExits(s, apiManifest)) {
				t.Error("exits before the wait count")
			}
			r := h.r.Apply(t.Context(), h.batch(wait), nil)[0]
			if r.Error == nil || r.Error.Reason != op.ReasonNotServing || len(tc.logs) > 0 && !strings.Contains(r.Error.Detail, "unknown flag") {
				t.Errorf("%+v", r.Error)
			}
		})
	}
	h := newHost(t)
	if r := h.check(op.Wait{Path: "/x", Crashes: 1})[0]; r.Error == nil || r.Error.Reason != "Invalid" {
		t.Errorf("nothing says whose container: %+v", r)
	}
}

// TestExec_WaitsForGateAndRepeatsUntilThenHolds checks that a program runs when its gate is open, and has succeeded
// when Then holds. Until then, it runs again. While Then does not hold, the gate is not
// checked.
func TestExec_WaitsForGateAndRepeatsUntilThenHolds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.r.etcdTime = 1
	is := func(name string) *op.Wait {
		return &op.Wait{Name: name, Program: []string{"/usr/bin/test", "-e", h.path("etc/" + name)}, TimeoutSeconds: 1}
	}
	h.write("etc/in", "1")
	e := op.Exec{
		Name: "change", Argv: []string{"/bin/sh", "-c", "echo x >> " + h.path("etc/ran")},
		Inputs: []string{"/etc/in"}, Gate: is("healthy"), Then: is("serves"),
	}
	ran := func() int { return strings.Count(h.read("etc/ran"), "x") }
	h.write("etc/ran", "")
	h.write("etc/serves", "")
	if r := h.r.Apply(t.Context(), h.batch(e), nil)[0]; r.Error == nil || ran() != 0 {
		t.Errorf("it ran past its gate: %+v, %d", r, ran())
	}
	if err := os.Remove(h.path("etc/serves")); err != nil {
		t.Fatal(err)
	}
	if r := h.r.Apply(t.Context(), h.batch(e), nil)[0]; r.Error == nil || ran() != 1 {
		t.Errorf("nothing serves: %+v, %d", r, ran())
	}
	if r := h.check(e)[0]; r.Status != op.Changed {
		t.Errorf("it is taken to have succeeded: %+v", r)
	}
	h.write("etc/healthy", "")
	h.write("etc/serves", "")
	h.apply(e)
	if r := h.check(e)[0]; r.Status != op.Unchanged || ran() != 2 {
		t.Errorf("%+v, %d runs", r, ran())
	}
}

// TestExec_LeavesWaitToLaterOperations runs programs whose service is not there yet: the gate
// does not apply, and the run is complete.
func TestExec_LeavesWaitToLaterOperations(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.r.etcdTime = 1
	is := func(name string) *op.Wait {
		return &op.Wait{Name: name, Program: []string{"/usr/bin/test", "-e", h.path("etc/" + name)}, TimeoutSeconds: 1}
	}
	h.write("etc/in", "1")
	e := op.Exec{
		Name: "change", Argv: []string{"/bin/sh", "-c", "echo x >> " + h.path("etc/ran")}, Inputs: []string{"/etc/in"},
		Gate: is("healthy"), Then: is("serves"), ThenLater: true,
	}
	h.apply(e)
	if r := h.check(e)[0]; r.Status != op.Unchanged || strings.Count(h.read("etc/ran"), "x") != 1 {
		t.Errorf("after the run: %+v, ran %q", r, h.read("etc/ran"))
	}
	h.write("etc/serves", "")
	h.write("etc/in", "2")
	if r := h.r.Apply(t.Context(), h.batch(e), nil)[0]; r.Error == nil {
		t.Error("a program that serves is replaced without its gate")
	}
}

// TestWait_RequiresMinimumRunTimeOfProgram checks that a program counts only after it has run for a time: with
// invalid settings, it may respond before it ends.
func TestWait_RequiresMinimumRunTimeOfProgram(t *testing.T) {
	site := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(site.Close)
	const justNow = 1 << 33 // after boot: it has not run for any time
	for _, tc := range []struct {
		name, reason string
		started      int
		serves       bool
	}{
		{"since boot", "it stays up", 1, true},
		{"just started", "it may end yet", justNow, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			scheduler(h)
			h.pod(77, started(tc.started), "pid:[1]")
			r := h.check(op.Wait{HTTP: site.URL + "/healthz", Manifest: schedulerManifest, SteadySeconds: 1, TimeoutSeconds: 1})[0]
			if (r.Status == op.Unchanged) != tc.serves || r.Error != nil {
				t.Errorf("%+v: %s", r, tc.reason)
			}
		})
	}
	if r := newHost(t).check(op.Wait{Path: "/x", SteadySeconds: 1})[0]; r.Error == nil || r.Error.Reason != "Invalid" {
		t.Errorf("nothing says whose program: %+v", r)
	}
}

// TestUnit_RemovesListedFilesWhileStopped checks that a unit does not find files that do not match its new
// settings. They are removed while the unit is stopped, also after the helper was killed.
// They are kept until the unit is restarted.
func TestUnit_RemovesListedFilesWhileStopped(t *testing.T) {
	const state, other = "var/lib/app/state", "var/lib/app/other"
	unit := op.Unit{
		Name: "old.service", Running: op.Bool(true), RestartOn: []string{"/etc/app.conf"},
		Forgets: []string{"/" + state, "/var/lib/app/missing"},
	}
	settings := func(text string) op.File { return op.File{Path: "/etc/app.conf", Content: []byte(text)} }
	running := func(h *testHost) {
		h.apply(settings("1\n"), unit)
		h.write(state, "of 1")
		h.write(other, "of others")
	}
	for _, tc := range []struct {
		name, reason string
		do           func(*testHost)
		kept         bool
		starts       int // since it ran with the first settings
	}{
		{"nothing changes", "the unit is not restarted", func(h *testHost) { h.apply(settings("1\n"), unit) }, true, 0},
		{"other settings", "it would not start with the file", func(h *testHost) { h.apply(settings("2\n"), unit) }, false, 1},
		{"it has ended", "it may have ended for the file", func(h *testHost) {
			w := h.see()
			w.Units["old.service"].Active = false
			h.world(w)
			h.apply(unit)
		}, false, 1},
		{"killed before the start", "the next run begins where this one was", func(h *testHost) {
			h.apply(settings("2\n"))
			w := h.see()
			w.OnRun = "cut before"
			h.world(w)
			if r := h.r.Apply(h.t.Context(), h.batch(unit), nil)[0]; r.Error == nil {
				h.t.Fatal("it was not cut")
			}
			w = h.see()
			w.OnRun = ""
			h.world(w)
			h.apply(unit)
		}, false, 1},
		{"rebooted before the removal", "the unit runs with the new settings and the file", func(h *testHost) {
			h.apply(settings("2\n"))
			w := h.see()
			w.OnRun = "cut before the stop"
			h.world(w)
			if r := h.r.Apply(h.t.Context(), h.batch(unit), nil)[0]; r.Error == nil {
				h.t.Fatal("it was not cut")
			}
			w = h.see()
			w.OnRun = ""
			u := w.Units["old.service"]
			u.Starts, u.Since = u.Starts+1, sinceBoot(h.t)
			h.world(w)
			h.apply(unit)
		}, false, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			running(h)
			before := h.see().Units["old.service"].Starts
			tc.do(h)
			if _, err := os.Stat(h.path(state)); (err == nil) != tc.kept {
				t.Errorf("the file: %v, kept should be %t: %s", err, tc.kept, tc.reason)
			}
			if _, err := os.Stat(h.path(other)); err != nil {
				t.Errorf("the file of others is gone: %v", err)
			}
			if got := h.see().Units["old.service"].Starts - before; got != tc.starts {
				t.Errorf("it was started %d times, want %d: %s", got, tc.starts, tc.reason)
			}
			if r := h.check(unit)[0]; r.Status != op.Unchanged {
				t.Errorf("something is left to do: %+v", r)
			}
		})
	}
}
