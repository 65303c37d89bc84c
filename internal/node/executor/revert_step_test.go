//go:build linux

package executor

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// droppable returns two lists of operations: gone has the operations of a step at first,
// and kept the operations that remain later.
func droppable() (kept, gone op.List) {
	kept = op.List{
		op.File{Path: "/etc/mirrors/b/hosts.toml", Content: []byte("b\n")},
		op.Sysctl{File: "/etc/sysctl.d/90-slipway.conf", Values: map[string]string{"net/ipv4/ip_forward": "1"}},
		op.RevertStep{Step: "step"},
	}
	gone = op.List{
		op.File{Path: "/etc/mirrors/a/hosts.toml", Content: []byte("a\n")},
		op.File{Path: "/etc/mirrors/b/hosts.toml", Content: []byte("b\n")},
		op.File{Path: "/etc/app.conf", Content: []byte("new\n")},
		op.Sysctl{File: "/etc/sysctl.d/90-slipway.conf", Values: map[string]string{"net.ipv4.ip_forward": "1", "vm.swappiness": "1"}},
		op.Timezone{Name: "Europe/Berlin"},
		op.TimeSync{Servers: []string{"ntp.example.org"}},
		op.Block{Path: "/etc/hosts", Name: "demo", Lines: []string{"10.0.0.1 a"}},
		op.RevertStep{Step: "step"},
	}
	return kept, gone
}

// machine returns a host with files whose settings can be dropped.
func machine(t *testing.T) *testHost {
	t.Helper()
	h := newHost(t)
	h.write("etc/app.conf", "old\n")
	h.write("proc/sys/vm/swappiness", "60\n")
	h.write("etc/systemd/system/multi-user.target.wants/other.service", "") // all units share it
	return h
}

// outside returns a snapshot without Slipway's own files.
func (h *testHost) outside() map[string]entry {
	out := h.snapshot()
	maps.DeleteFunc(out, func(path string, _ entry) bool { return strings.HasPrefix(path+"/", "/var/lib/slipway/") })
	return out
}

// TestRevertStep_RemovesEffectsOfDroppedSettings checks that a host whose settings were dropped looks like a host that never
// had them.
func TestRevertStep_RemovesEffectsOfDroppedSettings(t *testing.T) {
	t.Parallel()
	kept, gone := droppable()
	h, never := machine(t), machine(t)
	before := h.snapshot()
	never.apply(kept...)
	h.apply(gone...)

	r := h.check(kept...)[2]
	want := "remove the block /etc/hosts#demo, restore chrony.service, remove the block /etc/chrony/chrony.conf#time, " +
		"remove /etc/localtime, vm.swappiness 1 → 60, restore /etc/app.conf, remove /etc/mirrors/a/hosts.toml"
	if diff := cmp.Diff(want, r.Summary); diff != "" || r.Status != op.Changed {
		t.Errorf("%s: the plan names what is put back (-want +got):\n%s", r.Status, diff)
	}
	h.apply(kept...)
	if diff := cmp.Diff(never.outside(), h.outside()); diff != "" {
		t.Errorf("not as a host that never had them (-want +got):\n%s", diff)
	}
	for _, r := range h.check(kept...) {
		if r.Status != op.Unchanged {
			t.Errorf("after that, %s %s: %s (%s)", r.Kind, r.Target, r.Status, r.Summary)
		}
	}
	if u := h.see().Units["chrony.service"]; u.Active || u.Enabled {
		t.Errorf("the time service, which did not run before: %+v", *u)
	}
	h.apply(gone...) // wanted again
	h.apply(op.RestoreHost{})
	if diff := cmp.Diff(before, h.snapshot()); diff != "" {
		t.Errorf("dropped, wanted again, restored: not as before:\n%s", diff)
	}
}

// TestRevertStep_KeepsChangesOfOtherSoftware checks that files that other software has changed since are
// left alone.
func TestRevertStep_KeepsChangesOfOtherSoftware(t *testing.T) {
	t.Parallel()
	h := machine(t)
	put := op.RevertStep{Step: "step"}
	h.apply(op.File{Path: "/etc/app.conf", Content: []byte("new\n")}, op.File{Path: "/etc/mirrors/a", Content: []byte("a\n")},
		op.Sysctl{File: "/etc/sysctl.d/x.conf", Values: map[string]string{"net.ipv4.ip_forward": "1"}})
	h.write("etc/app.conf", "edited\n")
	h.write("etc/mirrors/theirs", "theirs\n")
	h.write("proc/sys/net/ipv4/ip_forward", "0\n")
	want := "remove /etc/sysctl.d/x.conf, remove /etc/mirrors/a, leave /etc/app.conf (changed by other software since then)"
	want = "forget net.ipv4.ip_forward, which is unchanged, " + want
	if diff := cmp.Diff(want, h.check(put)[0].Summary); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.apply(put)
	for name, want := range map[string]string{
		"etc/app.conf": "edited\n", "etc/app.conf.slipway-orig": "old\n",
		"etc/mirrors/theirs": "theirs\n",
	} {
		if diff := cmp.Diff(want, h.read(name)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	// From here on, all of it belongs to other software.
	h.write("etc/mirrors/a", "theirs\n")
	h.write("proc/sys/net/ipv4/ip_forward", "1\n")
	if r := h.check(put)[0]; r.Status != op.Unchanged {
		t.Errorf("what was let go of: %s", r.Summary)
	}
	h.apply(op.RestoreHost{})
	if h.read("etc/mirrors/a") != "theirs\n" || h.read("proc/sys/net/ipv4/ip_forward") != "1\n" {
		t.Error("a restore has touched what was let go of")
	}
}

// TestRevertStep_KeepsFilesOfOtherSteps checks that files of other steps are kept. If files of a program
// cannot be separated from wanted files, the check fails.
func TestRevertStep_KeepsFilesOfOtherSteps(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.apply(op.File{Path: "/etc/x", Content: []byte("x\n")})
	if r := h.check(op.RevertStep{Step: "another"})[0]; r.Status != op.Unchanged {
		t.Errorf("another step's: %s", r.Summary)
	}
	makes := h.shell("x", "true")
	makes.Declares = []string{"/etc/y"}
	r := h.check(makes, op.RevertStep{Step: "step"})[1]
	if r.Error == nil || !strings.Contains(r.Error.Message, "cannot be separated from") {
		t.Errorf("with a program: %+v", r)
	}
}

// TestRevertStep_RemovesDroppedInputOfProgram checks that input files of a program are removed when the
// step no longer has them, if the program creates no files.
func TestRevertStep_RemovesDroppedInputOfProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	program := op.Exec{Name: "hook", Argv: []string{"/bin/true"}, Inputs: []string{"/opt/hook/run"}}
	given := func(more ...op.Op) op.List {
		list := append(op.List{op.Dir{Path: "/opt/hook"}, op.File{Path: "/opt/hook/run", Content: []byte("x")}}, more...)
		return append(list, op.RevertStep{Step: "step"}, program)
	}
	h.apply(given(op.File{Path: "/opt/hook/secret", Content: []byte("y"), Secret: true})...)
	h.apply(given()...)
	if host.Exists(h.path("/opt/hook/secret")) || !host.Exists(h.path("/opt/hook/run")) {
		t.Errorf("the dropped file exists: %t; the kept file exists: %t", host.Exists(h.path("/opt/hook/secret")),
			host.Exists(h.path("/opt/hook/run")))
	}
}

func TestRevertStep_CompletesAfterCrashAtAnyStep(t *testing.T) {
	t.Parallel()
	kept, gone := droppable()
	never := machine(t)
	never.apply(kept...)
	want := never.outside()
	at := 1
	for ; ; at += everyStep {
		h := machine(t)
		before := h.snapshot()
		h.apply(gone...)
		if !h.crash(at, kept...) {
			break
		}
		if at > crashPoints {
			t.Fatal("there is no end to the steps")
		}
		h.apply(kept...)
		if diff := cmp.Diff(want, h.outside()); diff != "" {
			t.Fatalf("killed after step %d, applied again:\n%s", at, diff)
		}
		for _, r := range h.check(kept...) {
			if r.Status != op.Unchanged {
				t.Errorf("killed after step %d, applied again: %s %s is %s (%s)", at, r.Kind, r.Target, r.Status, r.Summary)
			}
		}
		h.apply(op.RestoreHost{})
		if diff := cmp.Diff(before, h.snapshot()); diff != "" {
			t.Fatalf("killed after step %d, applied again and restored:\n%s", at, diff)
		}
	}
	if at <= 15 {
		t.Errorf("there are only %d steps", at-1)
	}
}
