//go:build linux

package executor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/lock"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

func TestFile_KeepsAttributesItDoesNotSet(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/app.conf", "old\n")
	if err := unix.Setxattr(h.path("etc/app.conf"), "user.note", []byte("kept"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	h.apply(op.File{Path: "/etc/app.conf", Content: []byte("new\n"), Owner: "keeper", Group: "keeper"})
	st := host.StatOf(must(os.Stat(h.path("etc/app.conf"))))
	if st.Uid != 999 || st.Gid != 999 {
		t.Errorf("owner %d:%d, want keeper's", st.Uid, st.Gid)
	}
	value := make([]byte, 10)
	if n, err := unix.Getxattr(h.path("etc/app.conf"), "user.note", value); err == nil && string(value[:n]) != "kept" {
		t.Errorf("attribute is %q", value[:n])
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCheck_ReportsChangeOrProblem(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		op           op.Op
		change       string
		fails        string
	}{
		{"secret", "its content is in no diff", op.File{Path: "/etc/hosts", Content: []byte("canary"), Secret: true}, "content", ""},
		{
			"mode", "content is as wanted",
			op.File{Path: "/etc/hosts", Content: []byte("127.0.0.1 localhost"), Mode: 0o600},
			"mode 0644 → 0600", "",
		},
		{
			"unknown owner", "an operation before may make the user",
			op.File{Path: "/etc/hosts", Content: []byte("127.0.0.1 localhost"), Owner: "nobody-yet"},
			"user nobody-yet does not exist yet", "",
		},
		{"directory in the way", "nothing is removed for a file", op.File{Path: "/etc/chrony"}, "", "/etc/chrony is a directory"},
		{"unclean path", "it would mean another file", op.File{Path: "/etc/../root/x"}, "", "not a clean absolute path"},
		{"absent but full", "only Recursive takes that much", op.Absent{Path: "/etc/chrony"}, "", "a directory with content"},
		{
			"parameter not there", "a module may bring it",
			op.Sysctl{File: "/etc/sysctl.d/x.conf", Values: map[string]string{"net.bridge.x": "1"}},
			"x.conf: create, net.bridge.x does not exist yet", "",
		},
		{"unknown zone", "it names the remedy", op.Timezone{Name: "Mars/Olympus"}, "", "does not have the time zone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			r := h.check(c.op)[0]
			if c.fails != "" {
				if r.Error == nil || !strings.Contains(r.Error.Message, c.fails) {
					t.Fatalf("%s: %+v, want an error with %q", c.reason, r, c.fails)
				}
				return
			}
			if diff := cmp.Diff(c.change, r.Summary); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
			if strings.Contains(r.Diff, "canary") {
				t.Error("a secret is in a diff")
			}
		})
	}
}

func TestApply_ReportsMissingPrerequisite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		op           op.Op
		why, message string
	}{
		{
			"parameter", "the kernel has no such thing",
			op.Sysctl{File: "/etc/sysctl.d/x.conf", Values: map[string]string{"net.bridge.x": "1"}},
			"NoSuchParameter", "no parameter net.bridge.x",
		},
		{
			"module", "it is neither loaded nor to be had",
			op.KernelModules{File: "/etc/modules-load.d/x.conf", Modules: []string{"nosuch"}},
			"NoSuchModule",
			"nosuch cannot be loaded into kernel 6.1.0",
		},
		{"unit", "systemd does not know it", op.Unit{Name: "nosuch.service", Running: op.Bool(true)}, "NoSuchUnit", "no unit nosuch.service"},
		{"owner", "the user does not exist", op.File{Path: "/etc/x", Owner: "nosuch"}, "Invalid", "user nosuch does not exist"},
		{"wait", "it never comes", op.Wait{Path: "/nosuch", TimeoutSeconds: 1}, "Timeout", "/nosuch did not answer within 1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			r := h.r.Apply(context.Background(), h.batch(c.op), nil)[0]
			if r.Error == nil || r.Error.Reason != c.why || !strings.Contains(r.Error.Message, c.message) {
				t.Errorf("%s: %+v, want %s: %s", c.reason, r.Error, c.why, c.message)
			}
		})
	}
}

// TestRestoreHost_ResetsFailedStateOfUnit stops a job while it runs: without a reset,
// systemd would list the unit as failed although its file is gone.
func TestRestoreHost_ResetsFailedStateOfUnit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const job = "job.service"
	h.apply(op.File{Path: "/etc/systemd/system/" + job, Content: []byte("[Service]\n")}, op.Unit{Name: job, Running: op.Bool(true)})
	w := h.see()
	w.Units[job].FailsOnStop = true
	h.world(w)
	h.apply(op.RestoreHost{})
	if u := h.see().Units[job]; u.Active || u.Failed {
		t.Errorf("%s is active: %v, failed: %v; want neither", job, u.Active, u.Failed)
	}
}

// TestRestoreHost_StopsJobOfTimer has jobs that a timer has started: one runs, one has failed,
// and one runs already when Slipway records it.
func TestRestoreHost_StopsJobOfTimer(t *testing.T) {
	t.Parallel()
	runs := fakeUnit{Active: true, FailsOnStop: true}
	for state, was := range map[string]fakeUnit{"runs": runs, "failed": {Failed: true}, "ran before": runs} {
		h := newHost(t)
		const job = "job.service"
		list := op.List{op.File{Path: "/etc/systemd/system/" + job, Content: []byte("[Service]\n")}, op.Unit{Name: job}}
		if state == "ran before" {
			w := h.see()
			w.Units[job] = &runs
			h.world(w)
		}
		h.apply(list...)
		for _, r := range h.check(list...) {
			if r.Status != op.Unchanged {
				t.Errorf("the next check plans %s of %s", r.Summary, r.Target)
			}
		}
		w := h.see()
		w.Units[job] = &was
		h.world(w)
		h.apply(op.RestoreHost{})
		if u := h.see().Units[job]; u.Active || u.Failed {
			t.Errorf("%s, which %s, is active: %v, failed: %v; want neither", job, state, u.Active, u.Failed)
		}
	}
}

func TestRestoreHost_KeepsChangesOfOtherSoftware(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/app.conf", "old\n")
	h.apply(
		op.File{Path: "/etc/app.conf", Content: []byte("ours\n")},
		op.File{Path: "/etc/new.d/ours", Content: []byte("ours\n")},
		op.Block{Path: "/etc/hosts", Name: "demo", Lines: []string{"10.0.0.1 a"}},
		op.User{Name: "etcd"},
	)
	h.write("etc/app.conf", "edited\n")
	h.write("etc/new.d/theirs", "theirs\n")
	h.write("etc/hosts", h.read("etc/hosts")+"10.9.9.9 theirs\n")
	h.write("etc/passwd", h.read("etc/passwd")+"late:x:1000:1000::/:/bin/sh\n")
	r := h.apply(op.RestoreHost{})[0]
	for name, want := range map[string]string{
		"etc/app.conf":              "edited\n",
		"etc/app.conf.slipway-orig": "old\n",
		"etc/new.d/theirs":          "theirs\n",
		"etc/hosts":                 "127.0.0.1 localhost\n10.9.9.9 theirs\n",
		"etc/passwd":                "root:x:0:0:root:/root:/bin/bash\nkeeper:x:999:999::/:/bin/false\nlate:x:1000:1000::/:/bin/sh\n",
		"etc/group":                 "root:x:0:\nkeeper:x:999:\n",
	} {
		if diff := cmp.Diff(want, h.read(name)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if host.Exists(h.path("etc/new.d/ours")) {
		t.Error("our file in a directory that others use now is left")
	}
	if !strings.Contains(r.Summary, "2 left") || !strings.Contains(string(r.Output), "/etc/app.conf: left") {
		t.Errorf("summary %q, report:\n%s", r.Summary, r.Output)
	}
}

func TestUnit_RestartsOnlyIfItsFilesDiffer(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	unit := op.Unit{Name: "old.service", Running: op.Bool(true), RestartOn: []string{"/etc/app.conf"}}
	starts := func() int { return h.see().Units["old.service"].Starts }
	file := op.File{Path: "/etc/app.conf", Content: []byte("1\n")}
	h.apply(file, unit)
	h.apply(file, unit)
	if n := starts(); n != 1 {
		t.Fatalf("started %d times, want once", n)
	}
	file.Content = []byte("2\n")
	r := h.check(file, unit)
	if r[1].Summary != "restart: /etc/app.conf changed" {
		t.Errorf("check: %q, want the restart that the file before will bring about", r[1].Summary)
	}
	h.apply(file)
	h.apply(unit)
	h.apply(unit)
	if n := starts(); n != 2 {
		t.Errorf("started %d times, want twice", n)
	}
}

func sinceBoot(t *testing.T) time.Duration {
	t.Helper()
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &up); err != nil {
		t.Fatal(err)
	}
	return time.Duration(up.Nano())
}

// TestUnitStarted_ReportsStartTimeOfUnit checks that the start time is the wall-clock
// time at the start, even if the clock was set afterwards. The fakes count starts from
// the boot of the machine, in microseconds.
func TestUnitStarted_ReportsStartTimeOfUnit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	asked := op.UnitStarted{Name: "old.service"}
	if r := h.check(asked)[0]; !r.Missing || r.Status != op.Unchanged {
		t.Errorf("a unit that was never started: %+v", r)
	}
	r := h.apply(op.Unit{Name: "old.service", Running: op.Bool(true)}, asked)[1]
	at, err := time.Parse(time.RFC3339Nano, string(r.Output))
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Since(at) - sinceBoot(t); off.Abs() > time.Minute {
		t.Errorf("it was started at %s, %s off", at, off)
	}
	// The clock was set forward since.
	then := at.Add(-time.Hour).Truncate(time.Second)
	w := h.see()
	w.Units["old.service"].Started = then
	h.world(w)
	if got, want := string(h.check(asked)[0].Output), then.Format(time.RFC3339Nano); got != want {
		t.Errorf("by the clock as it was it was started at %s, not %s", want, got)
	}
}

// TestUnit_RestartsAfterCrashOnlyIfNeeded checks that the host knows whether a unit was started with its current
// files, whenever the helper is killed.
func TestUnit_RestartsAfterCrashOnlyIfNeeded(t *testing.T) {
	unit := op.Unit{Name: "old.service", Running: op.Bool(true), RestartOn: []string{"/etc/app.conf"}}
	for name, tt := range map[string]struct {
		why    string
		starts int // before
		cut    string
		want   string
	}{
		"before the first start": {"it does not run", 0, "cut before", "start"},
		"after the first start":  {"it runs with the file as it is, which is younger than the boot", 0, "cut after", ""},
		"before another restart": {"the process before runs on", 1, "cut before", "restart: /etc/app.conf changed"},
		"after it was restarted": {"another process runs, with the file as it is", 1, "cut after", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			for i := range tt.starts {
				h.apply(op.File{Path: "/etc/app.conf", Content: []byte{byte('0' + i), '\n'}}, unit)
			}
			w := h.see()
			w.OnRun = tt.cut
			h.world(w)
			r := h.r.Apply(t.Context(), h.batch(op.File{Path: "/etc/app.conf", Content: []byte("new\n")}, unit), nil)
			if r[1].Status != op.Failed {
				t.Fatalf("%s is %s", r[1].Target, r[1].Status)
			}
			if got := h.check(unit)[0].Summary; got != tt.want {
				t.Errorf("%s: check says %q, want %q", tt.why, got, tt.want)
			}
		})
	}
}

func TestUnit_ReloadsSystemdForChangedUnitFile(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := h.see()
	w.Units["old.service"] = &fakeUnit{Active: true, NeedReload: true}
	h.world(w)
	h.apply(op.Unit{Name: "old.service", Running: op.Bool(true)})
	if w := h.see(); w.Reloads != 1 || w.Units["old.service"].Starts != 0 {
		t.Errorf("reloads %d, starts %d; want one reload and nothing restarted", w.Reloads, w.Units["old.service"].Starts)
	}
}

// lossy is a manager whose connection ends after some bytes.
type lossy struct {
	blobs
	bytes   int64
	offsets []int64
}

func (l *lossy) FetchBlob(ctx context.Context, b op.Blob, offset int64, w io.Writer) (host.Fetched, error) {
	l.offsets = append(l.offsets, offset)
	if l.bytes == 0 {
		return l.blobs.FetchBlob(ctx, b, offset, w)
	}
	if _, err := w.Write(l.blobs[b.Digest][offset:][:l.bytes]); err != nil {
		return nil, err
	}
	return nil, io.ErrUnexpectedEOF
}

func TestFetchBlob_ResumesInterruptedTransfer(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	content := bytes.Repeat([]byte("0123456789"), 1000)
	from := &lossy{blobs: h.blobs, bytes: 4000}
	h.r.Blobs = from
	fetch := op.FetchBlob{Blob: h.blobs.add(content), Name: "x"}
	r := h.r.Apply(context.Background(), h.batch(fetch), nil)[0]
	if r.Error == nil || r.Error.Reason != "TransferFailed" {
		t.Fatalf("a transfer that was cut: %+v", r)
	}
	from.bytes = 0
	h.apply(fetch)
	if diff := cmp.Diff([]int64{0, 4000}, from.offsets); diff != "" {
		t.Errorf("offsets asked for:\n%s", diff)
	}
	got := must(os.ReadFile(filepath.Join(h.r.State, "blobs", "sha256", strings.TrimPrefix(fetch.Digest, "sha256:"))))
	if !bytes.Equal(got, content) {
		t.Error("the content is wrong")
	}
}

func TestFetchBlob_RejectsCorruptContent(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	fetch := op.FetchBlob{Blob: h.blobs.add([]byte("content")), Name: "x"}
	h.blobs[fetch.Digest] = []byte("CONTENT")
	r := h.r.Apply(context.Background(), h.batch(fetch), nil)[0]
	if r.Error == nil || r.Error.Reason != "BlobCorrupt" {
		t.Fatalf("corrupt content: %+v", r)
	}
	if left := must(os.ReadDir(filepath.Join(h.r.State, "blobs", "sha256"))); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// Damage to a part on this host is not an error of the sender.
	h.blobs[fetch.Digest] = []byte("content")
	part := filepath.Join(h.r.State, "blobs", "sha256", strings.TrimPrefix(fetch.Digest, "sha256:")+".part")
	if err := os.WriteFile(part, []byte("XXX"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.apply(fetch)
}

// others represents hosts that have content, and then the manager. A host with wrong
// content is asked once.
type others struct {
	blobs
	lies  int
	asked []int64
	came  []*fetched
	room  int
}

func (o *others) FetchBlob(ctx context.Context, b op.Blob, offset int64, w io.Writer) (host.Fetched, error) {
	o.asked = append(o.asked, offset)
	f := &fetched{shared: len(o.asked) <= o.lies}
	o.came = append(o.came, f)
	if f.shared {
		_, err := w.Write(bytes.Repeat([]byte("x"), int(b.Size-offset)))
		return f, err
	}
	_, err := o.blobs.FetchBlob(ctx, b, offset, w)
	return f, err
}

func (o *others) MakeRoom() { o.room++ }

func TestFetchBlob_TriesAgainAfterWrongContent(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		lies         int
		fails        bool
	}{
		{"none", "what is right is had at once", 0, false},
		{"one", "the next is asked", 1, false},
		{"as many as there are tries", "the manager has the last word", hostfs.MaxFetches - 1, false},
		{"all", "it does not go on for ever", 99, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			from := &others{blobs: h.blobs, lies: tc.lies}
			h.r.Blobs = from
			fetch := op.FetchBlob{Blob: h.blobs.add([]byte("content")), Name: "x"}
			r := h.r.Apply(context.Background(), h.batch(fetch), nil)[0]
			if (r.Status == op.Failed) != tc.fails || tc.fails && r.Error.Reason != "BlobCorrupt" {
				t.Fatalf("%+v: %s", r, tc.reason)
			}
			path := filepath.Join(h.r.State, "blobs", "sha256", strings.TrimPrefix(fetch.Digest, "sha256:"))
			for i, f := range from.came {
				want := []string{""}
				if i >= tc.lies {
					want[0] = path
				}
				if diff := cmp.Diff(want, f.paths); diff != "" || from.asked[i] != 0 {
					t.Errorf("try %d, from %d: where the content is said to be:\n%s", i+1, from.asked[i], diff)
				}
			}
			if want := min(tc.lies+1, hostfs.MaxFetches); len(from.came) != want {
				t.Errorf("asked %d times, want %d: %s", len(from.came), want, tc.reason)
			}
		})
	}
}

func TestFetchBlob_ReportsFullDisk(t *testing.T) {
	t.Parallel()
	requireroot.Need(t, "mounting a disk")
	h := newHost(t)
	if err := os.MkdirAll(h.r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", h.r.State, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(h.r.State, 0); err != nil {
			t.Error(err)
		}
	}()
	from := &others{blobs: h.blobs}
	h.r.Blobs = from
	fetch := op.FetchBlob{Blob: h.blobs.add(make([]byte, 2<<20)), Name: "x"}
	r := h.r.Apply(context.Background(), h.batch(fetch), nil)[0]
	if r.Error == nil || r.Error.Reason != "DiskFull" || !strings.Contains(r.Error.Message, "2 MiB are needed") {
		t.Errorf("a full disk: %+v", r.Error)
	}
	if from.room != 1 {
		t.Errorf("what is held for others was given up %d times, want once", from.room)
	}
}

func TestUnpack_RefusesPathsOutsideItsDirectory(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		files        map[string]string
	}{
		{"dots", "the name leads outside", map[string]string{"../../etc/evil": "x"}},
		{"link", "the link leads outside", map[string]string{"a": "-> ../../etc"}},
		{"absolute link", "the link leads outside", map[string]string{"a": "-> /etc/passwd"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			before := h.snapshot()
			u := op.Unpack{Blob: h.tarball(c.files), Name: "x", Dir: "/opt/x"}
			if r := h.r.Apply(context.Background(), h.batch(u), nil)[0]; r.Error == nil || r.Error.Reason != "Invalid" {
				t.Errorf("%s: %+v", c.reason, r)
			}
			h.apply(op.RestoreHost{})
			if diff := cmp.Diff(before, h.snapshot()); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
	h := newHost(t)
	h.write("opt/x/keep", "")
	if err := os.Symlink("/", h.path("opt/x/out")); err != nil {
		t.Fatal(err)
	}
	u := op.Unpack{Blob: h.tarball(map[string]string{"out/etc/evil": "x"}), Name: "x", Dir: "/opt/x"}
	if r := h.r.Apply(context.Background(), h.batch(u), nil)[0]; r.Error == nil {
		t.Error("a link that was there was followed outside")
	}
}

func TestUnpack_ReplacesOnlyDifferentFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	u := op.Unpack{Blob: h.tarball(map[string]string{"a": "one", "b": "two"}), Name: "x", Dir: "/opt/x"}
	h.apply(u)
	inode := func(name string) uint64 { return host.StatOf(must(os.Stat(h.path(name)))).Ino }
	a, b := inode("opt/x/a"), inode("opt/x/b")
	h.write("opt/x/b", "changed")
	if r := h.check(u)[0]; r.Summary != "unpack again: /opt/x/b is missing or has changed" || string(r.Output) != "/opt/x/b" {
		t.Errorf("check: %q, files %q", r.Summary, r.Output)
	}
	h.apply(u)
	if inode("opt/x/a") != a {
		t.Error("a file that was as wanted was written again")
	}
	if inode("opt/x/b") == b || h.read("opt/x/b") != "two" {
		t.Error("a file that was changed was not replaced")
	}
	must(0, os.Chown(h.path("opt/x/a"), 999, 999))
	if r := h.check(u)[0]; r.Summary != "unpack again: /opt/x/a is missing or has changed" {
		t.Errorf("a program of another user: %q", r.Summary)
	}
	h.apply(u)
	if host.StatOf(must(os.Stat(h.path("opt/x/a")))).Uid != 0 {
		t.Error("a program still belongs to another user")
	}
	if left := must(os.ReadDir(filepath.Join(h.r.State, "passing", "sha256"))); len(left) > 0 {
		t.Errorf("blobs that only passed through are left: %v", left)
	}
}

func TestUnpack_ReplacesRunningProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	sleep := must(os.ReadFile("/bin/sleep"))
	h.apply(op.Unpack{Blob: h.tarball(map[string]string{"p": string(sleep)}), Name: "x", Dir: "/opt/x"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	proc := must(os.StartProcess(h.path("opt/x/p"), []string{"p", "1000"}, &os.ProcAttr{}))
	defer func() {
		_ = proc.Kill()
		_, _ = proc.Wait()
	}()
	u := op.Unpack{Blob: h.tarball(map[string]string{"p": "new"}), Name: "x", Dir: "/opt/x"}
	if r := h.r.Apply(ctx, h.batch(u), nil)[0]; r.Error != nil || h.read("opt/x/p") != "new" {
		t.Errorf("replacing a program that runs: %+v", r.Error)
	}
}

// TestRestoreHost_EndsLockOfHostThatLeaves checks that a host that leaves a cluster ends its lock, because
// no manager returns for it.
func TestRestoreHost_EndsLockOfHostThatLeaves(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ctx := context.Background()
	l := lock.Lock{Operation: "apply-1", Manager: "m", Fence: 7}
	if _, ok, err := h.r.TakeLock(ctx, l, false); !ok || err != nil {
		t.Fatalf("taking the lock: %v %v", ok, err)
	}
	leave := op.RestoreHost{EndLock: true}
	if r := h.check(leave)[0]; r.Status != op.Changed {
		t.Errorf("with a lock alone: %s", r.Status)
	}
	b := h.batch(op.File{Path: "/etc/x", Content: []byte("x")}, leave)
	b.Fence = 7
	for _, r := range h.r.Apply(ctx, b, nil) {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	if host.Exists(h.r.State) {
		t.Errorf("left: %v", must(os.ReadDir(h.r.State)))
	}
	if ok, err := h.r.Beat(ctx, l); ok || err != nil {
		t.Errorf("the holder gets %v, %v", ok, err)
	}
	if err := h.r.ReleaseLock(ctx, l); err != nil || host.Exists(h.r.State) {
		t.Errorf("releasing what has ended: %v", err)
	}
	if r := h.check(leave)[0]; r.Status != op.Unchanged {
		t.Errorf("again: %s", r.Summary)
	}
}

// TestRestoreHost_KeepsForeignFilesInStateDirectory checks that files of other software in the state directory are
// neither removed nor a problem, whether they are older or newer than Slipway's.
func TestRestoreHost_KeepsForeignFilesInStateDirectory(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("var/lib/slipway/d", "precious")
	h.write("var/lib/slipway/more/deep", "too")
	h.write("var/lib/slipway/e\nerror: fake", "it looks like two lines")
	if r := h.check(op.RestoreHost{})[0]; r.Status != op.Unchanged {
		t.Errorf("on a host that nothing was done to: %s", r.Summary)
	}
	before := h.snapshot()
	results := h.apply(op.File{Path: "/etc/x", Content: []byte("x")}, op.RestoreHost{})
	if diff := cmp.Diff(before, h.snapshot()); diff != "" {
		t.Errorf("not as before:\n%s", diff)
	}
	r := results[len(results)-1]
	if want := "files of other software, which remain: d, "; !strings.Contains(r.Summary, want) {
		t.Errorf("%q does not say %q", r.Summary, want)
	}
	for _, name := range []string{"d", `e\nerror: fake`, "more"} {
		if want := "/var/lib/slipway/" + name + ": left: not created by Slipway\n"; !strings.Contains(string(r.Output), want) {
			t.Errorf("%q does not say %q", r.Output, want)
		}
	}
	if r := h.check(op.RestoreHost{})[0]; r.Status != op.Unchanged {
		t.Errorf("again: %s", r.Summary)
	}
}

// TestRestoreHost_StopsOnlineTargetIfInactiveBefore checks that a target that our units started is stopped with them, if
// it was not active before. Removing only one of the units leaves the target active.
func TestRestoreHost_StopsOnlineTargetIfInactiveBefore(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		h := newHost(t)
		set := func(active bool) {
			w := h.see()
			w.Units[systemd.OnlineTarget] = &fakeUnit{Active: active}
			h.world(w)
		}
		set(before)
		h.apply(op.Unit{Name: "old.service", Running: op.Bool(true)})
		set(true)
		h.apply(op.RevertStep{Step: "step"}, op.Unit{Name: "old.service", Running: op.Bool(true)})
		if !h.see().Units[systemd.OnlineTarget].Active {
			t.Error("a step that has ended has stopped it")
		}
		h.apply(op.RestoreHost{})
		if got := h.see().Units[systemd.OnlineTarget].Active; got != before {
			t.Errorf("active: %v, was %v", got, before)
		}
	}
}

// TestReleaseLock_RemovesStateOfRestoredHost checks that the lock outlasts a restore, and
// that its release removes the state directory.
func TestReleaseLock_RemovesStateOfRestoredHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ctx := context.Background()
	l := lock.Lock{Operation: "delete-1", Manager: "m", Fence: 7}
	if _, ok, err := h.r.TakeLock(ctx, l, false); !ok || err != nil {
		t.Fatalf("taking the lock: %v %v", ok, err)
	}
	b := h.batch(op.File{Path: "/etc/x", Content: []byte("x")}, op.RestoreHost{})
	b.Fence = 7
	for _, r := range h.r.Apply(ctx, b, nil) {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	if ok, err := h.r.Beat(ctx, l); !ok || err != nil {
		t.Errorf("the lock did not outlive the restore: %v %v", ok, err)
	}
	if r := h.check(op.RestoreHost{})[0]; r.Status != op.Unchanged {
		t.Errorf("restoring again: %s", r.Summary)
	}
	if err := h.r.ReleaseLock(ctx, l); err != nil {
		t.Fatal(err)
	}
	if host.Exists(h.r.State) {
		t.Errorf("left: %v", must(os.ReadDir(h.r.State)))
	}
}

func TestReset_RemovesOnlyOwnPathsAndCgroups(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.apply(op.Dir{Path: "/var/lib/kubelet"})
	h.write("var/lib/kubelet/pods/x/data", "x")
	h.write("opt/theirs/x", "x")
	for _, dir := range []string{"sys/fs/cgroup/cpu/kubepods/burstable/pod1", "sys/fs/cgroup/cpu/other"} {
		if err := os.MkdirAll(h.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	reset := op.Reset{Paths: []string{"/var/lib/kubelet", "/opt/theirs"}, Cgroups: []string{"kubepods"}}
	h.apply(reset)
	if host.Exists(h.path("var/lib/kubelet")) || host.Exists(h.path("sys/fs/cgroup/cpu/kubepods")) {
		t.Error("what was ours is left")
	}
	if !host.Exists(h.path("opt/theirs/x")) || !host.Exists(h.path("sys/fs/cgroup/cpu/other")) {
		t.Error("what was others' is gone")
	}
	if r := h.check(reset)[0]; r.Status != op.Unchanged {
		t.Errorf("again: %s", r.Summary)
	}
}

func TestReset_RefusesUnmanagedHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := h.see()
	w.Units["old.service"] = &fakeUnit{Active: true}
	h.world(w)
	reset := op.Reset{Units: []string{"old.service"}, KeepUnmanaged: true}
	if r := h.check(reset)[0]; r.Error == nil || r.Error.Reason != op.IDUnmanaged {
		t.Errorf("a host without a ledger: %+v", r)
	}
	if calls := h.see().Calls; slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "stop") }) {
		t.Errorf("it was touched: %v", calls)
	}
}

func TestReset_UnmountsOnlyBelowGivenPath(t *testing.T) {
	t.Parallel()
	requireroot.Need(t, "mounting")
	h := newHost(t)
	for _, dir := range []string{"var/lib/kubelet", "var/lib/kubelet/pods/a b", "var/lib/kubelet/pods/a b/deep"} {
		p := h.path(dir)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", p, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(p, unix.MNT_DETACH) }()
	}
	reset := op.Reset{Mounts: []string{"/var/lib/kubelet"}}
	h.apply(reset)
	if r := h.check(reset)[0]; r.Status != op.Unchanged {
		t.Errorf("again: %s", r.Summary)
	}
	if err := unix.Unmount(h.path("var/lib/kubelet"), 0); err != nil {
		t.Errorf("the directory's own mount is gone: %v", err)
	}
}
