//go:build linux

package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/testutil/racesample"
)

// crashEnv tells a copy of this test program to apply operations and to be
// killed at a certain step.
const crashEnv = "SLIPWAY_TEST_CRASH"

// crashPlan holds the instructions for that copy.
type crashPlan struct {
	Root, State, Path string
	Ops               op.List
	Blobs             map[string][]byte
	At                int // the step after which it is killed
}

func crashChild(plan string) int {
	var p crashPlan
	if err := json.Unmarshal([]byte(plan), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	step := 0
	r := &Runner{Root: p.Root, State: p.State, Path: p.Path, Blobs: blobs(p.Blobs)}
	r.disk = atomicfile.Disk{After: func(string) {
		if step++; step == p.At {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}}
	b := host.Batch{Operation: "create-1", Step: "step", Cluster: "demo", Fence: 1, Ops: p.Ops}
	for _, res := range r.Apply(context.Background(), b, nil) {
		if res.Status == op.Failed {
			fmt.Fprintf(os.Stderr, "%s %s: %+v\n", res.Kind, res.Target, *res.Error)
			return 1
		}
	}
	return 0
}

// crash applies operations in another process that is killed after a step. It returns
// false if the process ended before that step.
func (h *testHost) crash(at int, ops ...op.Op) bool {
	h.t.Helper()
	plan, err := json.Marshal(crashPlan{Root: h.r.Root, State: h.r.State, Path: h.r.Path, Ops: ops, Blobs: h.blobs, At: at})
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+string(plan))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return true
	}
	if err != nil {
		h.t.Fatalf("step %d: %v: %s", at, err, stderr.String())
	}
	return false
}

// TestApply_StopsOlderHelperAndItsProgram checks that a helper whose manager is gone does
// not block the host: it is killed together with its program.
func TestApply_StopsOlderHelperAndItsProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	plan, err := json.Marshal(crashPlan{
		Root: h.r.Root, State: h.r.State, Path: h.r.Path,
		Ops: op.List{h.shell("x", "echo $$ > $0/etc/pid; exec sleep 1000")},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+string(plan))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if r := h.r.Apply(context.Background(), host.Batch{Ops: op.List{op.Wait{Path: "/etc/pid", TimeoutSeconds: 20}}}, nil)[0]; r.Error != nil {
		t.Fatal(r.Error)
	}
	var child int
	if _, err := fmt.Sscan(h.read("etc/pid"), &child); err != nil {
		t.Fatal(err)
	}
	h.r.patience = 1
	h.apply(op.Dir{Path: "/etc/after"})
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Errorf("the helper that held the host ended by itself: %v", err)
	}
	if p, ok := process.ReadProcess(fmt.Sprintf("/proc/%d", child)); ok {
		t.Errorf("its program, process %d, has outlived it", p.PID)
	}
}

// fileOps are operations that need no program, so that each of their steps can be tested.
func fileOps(h *testHost) op.List {
	h.write("etc/gone.d/deep/file", "gone too\n")
	h.write("etc/app.conf", "old\n")
	bin := h.tarball(map[string]string{"bin/tool": "program", "bin/link": "-> tool"})
	return op.List{
		op.User{Name: "etcd"},
		op.Dir{Path: "/var/lib/ours", Exclusive: true},
		op.File{Path: "/var/lib/ours/implied/file", Content: []byte("x\n")},
		op.File{Path: "/etc/app.conf", Content: []byte("new\n"), Mode: 0o600},
		op.Link{Path: "/etc/alias", To: "app.conf"},
		op.Absent{Path: "/etc/gone.d", Recursive: true},
		op.Block{Path: "/etc/hosts", Name: "demo", Lines: []string{"10.0.0.1 a"}},
		op.Sysctl{File: "/etc/sysctl.d/90-slipway.conf", Values: map[string]string{"net.ipv4.ip_forward": "1"}},
		op.Hostname{Name: "node-1"},
		op.Unpack{Blob: bin, Name: "tools", Dir: "/usr/local/bin", Strip: "bin/"},
	}
}

// TestExec_RunsOnceDespiteCrash kills the helper around a step that must not be
// interrupted: the step runs once, and its unit and its input are removed.
func TestExec_RunsOnceDespiteCrash(t *testing.T) {
	t.Parallel()
	for at := 1; ; at += everyStep {
		h := newHost(t)
		o := h.shell("step", "cat >> $0/etc/log; echo ran >> $0/etc/runs")
		o.Whole, o.Creates, o.Stdin, o.SecretStdin = true, []string{"/etc/log"}, []byte("token"), true
		if !h.crash(at, o) {
			if at < 10 {
				t.Errorf("only %d steps: the kills are elsewhere", at)
			}
			break
		}
		if h.check(o)[0].Status != op.Unchanged { // otherwise, no further run is needed
			h.apply(o)
		}
		if runs := h.read("etc/runs"); runs != "ran\n" {
			t.Errorf("killed after step %d: runs: %q", at, runs)
		}
		if left, err := filepath.Glob(filepath.Join(h.r.State, "run", "*")); err != nil || len(left) > 0 {
			t.Errorf("killed after step %d: left: %v %v", at, left, err)
		}
		if w := h.see(); len(w.Transient) > 0 {
			t.Errorf("killed after step %d: units are left: %v", at, w.Transient)
		}
		if r := h.check(o)[0]; r.Status != op.Unchanged {
			t.Errorf("killed after step %d: %s (%s)", at, r.Status, r.Summary)
		}
	}
}

// everyStep is the distance of the steps at which tests kill a copy of this program. With the race detector, a copy takes
// four times as long to start.
var everyStep = racesample.OneIn(8)

// crashPoints limits the loops below: a test with more steps would never end.
const crashPoints = 400

func TestApply_CompletesAfterCrashAtAnyStep(t *testing.T) {
	t.Parallel()
	at := 1
	for ; ; at += everyStep {
		h := newHost(t)
		ops := fileOps(h)
		before := h.snapshot()
		if !h.crash(at, ops...) {
			break
		}
		if at > crashPoints {
			t.Fatal("there is no end to the steps")
		}
		h.apply(ops...)
		for _, r := range h.check(ops...) {
			if r.Status != op.Unchanged {
				t.Errorf("killed after step %d, applied again: %s %s is %s (%s)", at, r.Kind, r.Target, r.Status, r.Summary)
			}
		}
		h.apply(op.RestoreHost{})
		if diff := cmp.Diff(before, h.snapshot()); diff != "" {
			t.Fatalf("killed after step %d, applied again and restored:\n%s", at, diff)
		}
	}
	if at <= 30 {
		t.Errorf("there are only %d steps", at-1)
	}
}

func TestRestoreHost_RevertsInterruptedApply(t *testing.T) {
	t.Parallel()
	for at := 1; at < crashPoints; at += 3 * everyStep {
		h := newHost(t)
		ops := fileOps(h)
		before := h.snapshot()
		more := h.crash(at, ops...)
		h.apply(op.RestoreHost{})
		if diff := cmp.Diff(before, h.snapshot()); diff != "" {
			t.Fatalf("killed after step %d, then restored:\n%s", at, diff)
		}
		if !more {
			return
		}
	}
}

func TestRestoreHost_CompletesAfterCrashAtAnyStep(t *testing.T) {
	t.Parallel()
	at := 1
	for ; ; at += everyStep {
		h := newHost(t)
		ops := fileOps(h)
		before := h.snapshot()
		h.apply(ops...)
		if !h.crash(at, op.RestoreHost{}) {
			break
		}
		if at > crashPoints {
			t.Fatal("there is no end to the steps")
		}
		h.apply(op.RestoreHost{})
		if diff := cmp.Diff(before, h.snapshot()); diff != "" {
			t.Fatalf("killed after step %d of a restore, restored again:\n%s", at, diff)
		}
	}
	if at <= 20 {
		t.Errorf("there are only %d steps", at-1)
	}
}
