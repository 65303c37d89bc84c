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

// kubeadm returns a program that makes a manifest and a key from its settings, and
// records each run.
func (h *testHost) kubeadm() op.Exec {
	o := h.shell("kubeadm",
		"mkdir -p $0/etc/made; umask 077; cat $0/etc/settings > $0/etc/made/pod.yaml; echo key > $0/etc/made/key; echo ran >> $0/etc/runs")
	o.Whole, o.Inputs = true, []string{"/etc/settings"}
	o.Creates, o.Keeps = []string{"/etc/made/pod.yaml", "/etc/made/key"}, []string{"/etc/made/pod.yaml", "/etc/made/none"}
	return o
}

const pod = "etc/made/pod.yaml"

// TestBaselineFile_RestoresChangedFileWithoutProgramRun checks that a changed file of a program is found, reported and restored, and
// that the program does not run again for it.
func TestBaselineFile_RestoresChangedFileWithoutProgramRun(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		change       func(h *testHost)
		want         string // what the check says
		diff         string
		runs         int
	}{
		{"nothing", "no file was changed", func(*testHost) {}, "", "", 1},
		{
			"content", "an edit by hand", func(h *testHost) { h.write(pod, "edited\n") }, "restore sh's version: content",
			"--- /etc/made/pod.yaml\n+++ /etc/made/pod.yaml\n@@ -1 +1 @@\n-edited\n+settings\n", 1,
		},
		{"mode", "others may read it", func(h *testHost) { h.do(os.Chmod(h.path(pod), 0o644)) }, "restore sh's version: mode 0644 → 0600", "", 1},
		{"gone", "it was moved away", func(h *testHost) { h.do(os.Remove(h.path(pod))) }, "restore sh's version: it is missing", "", 1},
		{"with its directory", "parents are made", func(h *testHost) {
			h.do(os.RemoveAll(h.path("etc/made")))
			h.write("etc/made/key", "key\n")
		}, "restore sh's version: it is missing", "", 1},
		{"written by another operation", "the later operation defines the file", func(h *testHost) {
			h.apply(op.File{Path: "/" + pod, Content: []byte("ours\n"), Mode: 0o600})
		}, "", "", 1},
		{"other settings", "the program makes it again, and the new content is saved", func(h *testHost) {
			h.write("etc/settings", "others\n")
			h.apply(h.kubeadm())
		}, "", "", 2},
		{"a program of another name", "a program that does not list the file in Keeps leaves no content to compare with", func(h *testHost) {
			o := h.shell("other", "echo other > $0/etc/made/pod.yaml")
			o.Declares = []string{"/" + pod}
			h.apply(o)
		}, "", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.write("etc/settings", "settings\n")
			kept := op.BaselineFile{Path: "/" + pod}
			h.apply(h.kubeadm(), kept)
			c.change(h)
			r := h.check(h.kubeadm(), kept, op.BaselineFile{Path: "/etc/made/none"})
			if r[0].Status != op.Unchanged || r[2].Status != op.Unchanged {
				t.Errorf("the program: %s, a file that it did not make: %s", r[0].Summary, r[2].Summary)
			}
			if d := cmp.Diff(c.want+"\n"+c.diff, r[1].Summary+"\n"+r[1].Diff); d != "" {
				t.Errorf("%s:\n%s", c.reason, d)
			}
			h.apply(h.kubeadm(), kept)
			if c.want != "" {
				info, err := os.Stat(h.path(pod))
				if err != nil || h.read(pod) != "settings\n" || info.Mode().Perm() != 0o600 {
					t.Errorf("it was not put back: %v, %v, %q", err, info.Mode(), h.read(pod))
				}
			}
			if r := h.check(kept)[0]; r.Status != op.Unchanged {
				t.Errorf("after: %s", r.Summary)
			}
			if n := strings.Count(h.read("etc/runs"), "ran"); n != c.runs {
				t.Errorf("the program ran %d times, want %d", n, c.runs)
			}
			if strings.Contains(c.name, "gone") && host.Exists(h.path("etc/made/none")) {
				t.Error("a file was made that never was")
			}
		})
	}
}

// do fails the test on an error.
func (h *testHost) do(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestBaselineFile_SavesOnlyListedFiles checks that only files that an operation names are saved.
func TestBaselineFile_SavesOnlyListedFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/settings", "settings\n")
	h.apply(h.kubeadm())
	files, err := filepath.Glob(filepath.Join(h.r.State, "kept", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("kept: %v, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what is kept: %v, %v", info.Mode(), err)
	}
}

// TestBaselineFile_HasNoContentAfterFailedRun checks that the files of a failed run are not saved, and that the saved
// content is dropped: the program runs again.
func TestBaselineFile_HasNoContentAfterFailedRun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/settings", "settings\n")
	h.apply(h.kubeadm())
	h.write("etc/settings", "others\n")
	fails := h.kubeadm()
	fails.Argv[2] = "echo half > $0/etc/made/pod.yaml; exit 1"
	if r := h.r.Apply(context.Background(), h.batch(fails), nil)[0]; r.Error == nil {
		t.Fatal("it did not fail")
	}
	if r := h.check(h.kubeadm(), op.BaselineFile{Path: "/" + pod}); r[0].Status != op.Changed || r[1].Status != op.Unchanged {
		t.Errorf("the program: %q, the file: %q", r[0].Summary, r[1].Summary)
	}
}

// TestBaselineFile_DoesNotRecordManualEditAsOriginal checks that an edit by a person does not count as content of the host
// before the install.
func TestBaselineFile_DoesNotRecordManualEditAsOriginal(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	before := h.snapshot()
	h.apply(op.File{Path: "/etc/settings", Content: []byte("settings\n")})
	o := h.kubeadm()
	o.Declares = []string{"/etc/runs"}
	h.apply(op.Dir{Path: "/etc/made"}, o)
	h.write(pod, "edited\n")
	h.apply(op.BaselineFile{Path: "/" + pod})
	h.apply(op.RestoreHost{})
	if d := cmp.Diff(before, h.snapshot()); d != "" {
		t.Errorf("restored (-before +after):\n%s", d)
	}
}

// TestBaselineFile_WaitsForGateOnlyWhileServing checks that a change waits for its gate only while the running program
// serves.
func TestBaselineFile_WaitsForGateOnlyWhileServing(t *testing.T) {
	t.Parallel()
	says := func(code string) *op.Wait {
		return &op.Wait{Name: "etcd", Program: []string{"sh", "-c", "exit " + code}, TimeoutSeconds: 1}
	}
	for _, c := range []struct {
		name, reason       string
		serves, gate, then string
		written            bool
		failed             bool
	}{
		{"it serves, and so do all", "one member may restart", "0", "0", "0", true, false},
		{"it serves, and another does not", "this member must keep running", "0", "1", "0", false, true},
		{"it does not serve", "no service is interrupted", "1", "1", "0", true, false},
		{"it does not come back", "no other member is changed", "0", "0", "1", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			h.write("etc/settings", "settings\n")
			h.apply(h.kubeadm())
			h.write(pod, "edited\n")
			o := op.BaselineFile{Path: "/" + pod, Serves: says(c.serves), Gate: says(c.gate), Then: says(c.then)}
			r := h.r.Apply(context.Background(), h.batch(o), nil)[0]
			if (r.Error != nil) != c.failed || (h.read(pod) == "settings\n") != c.written {
				t.Errorf("%s: %v, the file has %q", c.reason, r.Error, h.read(pod))
			}
		})
	}
}

// TestBaselineFile_RestoresFileAfterCrashAtAnyStep kills the helper at each step of a
// program run and of a restore of its file.
func TestBaselineFile_RestoresFileAfterCrashAtAnyStep(t *testing.T) {
	t.Parallel()
	for at := 1; ; at += everyStep {
		h := newHost(t)
		h.write("etc/settings", "settings\n")
		ops := op.List{h.kubeadm(), op.BaselineFile{Path: "/" + pod}}
		first := h.crash(at, ops...)
		h.apply(ops...)
		h.write(pod, "edited\n")
		second := h.crash(at, ops...)
		h.apply(ops...)
		if got := h.read(pod); got != "settings\n" {
			t.Errorf("killed after step %d: the file has %q", at, got)
		}
		for _, r := range h.check(ops...) {
			if r.Status != op.Unchanged {
				t.Errorf("killed after step %d: %s %s", at, r.Target, r.Summary)
			}
		}
		if !first && !second {
			if at < 10 {
				t.Errorf("only %d steps: the kills are elsewhere", at)
			}
			return
		}
	}
}

// TestExec_RunsAgainForGivenReason checks that a program with unchanged inputs runs if
// the operation gives a reason.
func TestExec_RunsAgainForGivenReason(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.shell("record", "true")
	o.Inputs = []string{"/etc/hosts"}
	h.apply(o)
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("the settings are unchanged: %s", r.Summary)
	}
	o.Again = "what it made is gone"
	if r := h.check(o)[0]; r.Summary != "run: what it made is gone" {
		t.Errorf("check says %q", r.Summary)
	}
	h.apply(o)
}

// TestRootOnly_RepairsModeAndOwnerOfExistingFiles checks that only matching files change,
// and no targets of symbolic links.
func TestRootOnly_RepairsModeAndOwnerOfExistingFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := op.RootOnly{Name: "keys", Paths: []string{"/etc/pki/*.key", "/etc/admin.conf"}}
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("where there is none: %s", r.Summary)
	}
	for name, mode := range map[string]os.FileMode{
		"etc/pki/ca.key": 0o644, "etc/pki/ca.crt": 0o644,
		"etc/pki/sa.key": 0o600, "etc/admin.conf": 0o660,
	} {
		h.write(name, name)
		h.do(os.Chmod(h.path(name), mode))
	}
	h.do(os.Chown(h.path("etc/admin.conf"), 999, 999))
	h.do(os.Symlink("ca.crt", h.path("etc/pki/link.key")))
	want := "/etc/pki/ca.key: mode 0644 → 0600, /etc/admin.conf: mode 0660 → 0600, /etc/admin.conf: owner 999:999 → 0:0"
	if got := h.check(o)[0].Summary; got != want {
		t.Errorf("check says %q, want %q", got, want)
	}
	h.apply(o)
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("after: %s", r.Summary)
	}
	for name, want := range map[string]entry{
		"/etc/pki/ca.key": {Mode: 0o600, Content: "etc/pki/ca.key"},
		"/etc/pki/ca.crt": {Mode: 0o644, Content: "etc/pki/ca.crt"},
		"/etc/admin.conf": {Mode: 0o600, Content: "etc/admin.conf"},
	} {
		if d := cmp.Diff(want, h.snapshot()[name]); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

func TestQuery_ReturnsOutputUnlessProgramFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, c := range []struct {
		name    string
		argv    []string
		want    string
		missing bool
	}{
		{"it prints", []string{"sh", "-c", "cat; echo talk >&2"}, "settings", false},
		{"it fails", []string{"sh", "-c", "echo half; exit 1"}, "", true},
		{"it is not there", []string{"/usr/local/bin/nothing"}, "", true},
	} {
		r := h.check(op.Query{Name: "manifests", Argv: c.argv, Stdin: []byte("settings")})[0]
		if r.Status != op.Unchanged || r.Missing != c.missing || string(r.Output) != c.want {
			t.Errorf("%s: %s, missing %t, %q", c.name, r.Status, r.Missing, r.Output)
		}
	}
}

// TestUnit_RestartsIfStartedByOthersWithChangedFile checks that a restored file restarts a unit that other software
// started with the changed file. With an unchanged file, the unit is not restarted.
func TestUnit_RestartsIfStartedByOthersWithChangedFile(t *testing.T) {
	t.Parallel()
	unit := op.Unit{Name: "old.service", Running: op.Bool(true), RestartOn: []string{"/etc/app.conf"}}
	file := op.File{Path: "/etc/app.conf", Content: []byte("ours\n")}
	restarted := func(h *testHost) { // by hand, now
		w := h.see()
		w.Units["old.service"].Since = sinceBoot(t)
		h.world(w)
	}
	h := newHost(t)
	h.apply(file, unit)
	restarted(h)
	if r := h.check(file, unit)[1]; r.Status != op.Unchanged {
		t.Errorf("with the unchanged file: %s", r.Summary)
	}
	h.write("etc/app.conf", "theirs\n")
	restarted(h)
	if r := h.check(file, unit)[1]; r.Summary != "restart: /etc/app.conf changed" {
		t.Errorf("it runs with the changed file: check reports %q", r.Summary)
	}
	h.apply(file)
	h.apply(unit)
	if n := h.see().Units["old.service"].Starts; n != 2 {
		t.Errorf("started %d times, want twice", n)
	}
	restarted(h)
	unit.RestartOn = append(unit.RestartOn, "/etc/hosts", "/etc/app.extra.conf")
	if r := h.check(unit)[0]; r.Status != op.Unchanged {
		t.Errorf("asked for others, one of which is older, and one is not there: %s", r.Summary)
	}
	extra := op.File{Path: "/etc/app.extra.conf", Content: []byte("more\n")}
	if r := h.check(extra, unit)[1]; r.Summary != "restart: /etc/app.extra.conf changed" {
		t.Errorf("one of them is about to be: check says %q", r.Summary)
	}
	h.apply(extra, unit)
	restarted(h)
	h.remove("etc/app.extra.conf")
	if r := h.check(unit)[0]; r.Summary != "restart: /etc/app.extra.conf changed" {
		t.Errorf("it ran with one that is gone: check says %q", r.Summary)
	}
}
