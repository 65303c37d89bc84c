//go:build linux

package executor

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/images"
	"slipway.dev/slipway/internal/node/executor/program"
	"slipway.dev/slipway/internal/node/op"
)

// certs makes a key and its certificate, as kubeadm does: it refuses a key
// without a certificate, and a crash may come between the two.
func (h *testHost) certs() op.Exec {
	o := h.shell("certs", `echo running; cd $0/etc/pki || exit 8
		[ -e ca.key ] && [ ! -s ca.crt ] && exit 9
		[ -e ca.key ] || { echo key > ca.key; [ -e ../cut ] && exit 0; [ -e ../fail ] && exit 7; echo crt > ca.crt; }
		echo x >> ../runs`)
	o.Whole, o.Creates = true, []string{"/etc/pki/ca.key", "/etc/pki/ca.crt"}
	return o
}

// interrupt applies an uninterruptible step whose manager disconnects. Then the host
// reboots, so that the result of the step is unknown.
func (h *testHost) interrupt(o op.Exec) {
	h.t.Helper()
	w := h.see()
	w.OnRun = "linger"
	h.world(w)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if r := h.r.Apply(ctx, h.batch(o), func(int, host.Progress) { cancel() }); r[0].Error == nil || r[0].Error.Reason != "Interrupted" {
		h.t.Fatalf("the first manager: %+v", r[0])
	}
	w = h.see()
	w.OnRun, w.Transient = "", nil
	h.world(w)
}

// TestExec_RemovesOnlyFilesOfInterruptedRun checks that files of a failed run and files
// of other software are kept.
func TestExec_RemovesOnlyFilesOfInterruptedRun(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		before       func(h *testHost)
		key, crt     string // afterwards
		fails        bool
	}{
		{"rebooted between", "the half is taken away, and the next run makes both", func(h *testHost) {
			h.write("etc/cut", "")
			h.interrupt(h.certs())
			h.remove("etc/cut")
		}, "key\n", "crt\n", false},
		{"rebooted after the end", "nothing stands on it yet; it is made again", func(h *testHost) {
			h.interrupt(h.certs())
		}, "key\n", "crt\n", false},
		{"failed by itself", "what a program leaves on purpose stays for people to see", func(h *testHost) {
			h.write("etc/fail", "")
			h.r.Apply(context.Background(), h.batch(h.certs()), nil)
			h.remove("etc/fail")
		}, "key\n", "", true},
		{"failed, mended by hand", "the file of the administrator is kept", func(h *testHost) {
			h.write("etc/fail", "")
			h.r.Apply(context.Background(), h.batch(h.certs()), nil)
			h.remove("etc/fail")
			h.write("etc/pki/ca.crt", "by hand\n")
		}, "key\n", "by hand\n", false},
		{"cut after a success", "what the cut run did not make is not half of its work", func(h *testHost) {
			h.apply(h.certs())
			h.write("etc/pki/ca.key", "in use\n")
			h.remove("etc/pki/ca.crt")
			h.interrupt(h.certs())
		}, "in use\n", "", true},
		{"the user's own", "it was there before us", func(h *testHost) {
			h.write("etc/pki/ca.key", "theirs\n")
			h.interrupt(h.certs())
		}, "theirs\n", "", true},
		{"empty after a power cut", "an empty file is none", func(h *testHost) {
			h.apply(h.certs())
			h.write("etc/pki/ca.key", "")
			h.write("etc/pki/ca.crt", "")
		}, "key\n", "crt\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			if err := os.MkdirAll(h.path("etc/pki"), 0o755); err != nil {
				t.Fatal(err)
			}
			c.before(h)
			o := h.certs()
			if r := h.check(o)[0]; c.crt != "by hand\n" && r.Status != op.Changed {
				t.Errorf("check: %s %v, want changed: %s", r.Status, r.Error, c.reason)
			}
			r := h.r.Apply(context.Background(), h.batch(o), nil)[0]
			if (r.Status == op.Failed) != c.fails {
				t.Errorf("%s: %s %v", c.reason, r.Status, r.Error)
			}
			if key, crt := h.content("etc/pki/ca.key"), h.content("etc/pki/ca.crt"); key != c.key || crt != c.crt {
				t.Errorf("%s: key %q, certificate %q", c.reason, key, crt)
			}
			if c.fails {
				return
			}
			if r := h.check(o)[0]; r.Status != op.Unchanged {
				t.Errorf("after that: %s (%s)", r.Status, r.Summary)
			}
		})
	}
}

// TestExec_SucceedsIfConclusiveFileExists checks that a node with its own credentials has joined, whatever the
// result of the program that joined it.
func TestExec_SucceedsIfConclusiveFileExists(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.shell("join", "echo running; echo begun >> $0/etc/runs; echo half > $0/etc/ca.crt")
	o.Whole, o.Conclusive, o.Stdin, o.SecretStdin = true, true, []byte("token"), true
	o.Creates, o.Declares = []string{"/etc/kubelet.conf"}, []string{"/etc/ca.crt"}
	h.interrupt(o)
	if r := h.check(o)[0]; r.Summary != "run: /etc/kubelet.conf is missing" {
		t.Errorf("before it has: %q", r.Summary)
	}
	h.write("etc/kubelet.conf", "credentials\n") // the kubelet's
	if r := h.check(o)[0]; r.Summary != "record the command as done" {
		t.Errorf("once it has: %q", r.Summary)
	}
	h.apply(o)
	if runs := h.content("etc/runs"); runs != "begun\n" {
		t.Errorf("runs: %q; a node that is ready would be refused", runs)
	}
	if h.content("etc/kubelet.conf") != "credentials\n" || h.content("etc/ca.crt") != "half\n" {
		t.Error("what a node lives on is gone")
	}
	if left, err := filepath.Glob(filepath.Join(h.r.State, "run", "*")); err != nil || len(left) > 0 {
		t.Errorf("its token is left: %v %v", left, err)
	}
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("after that: %s", r.Summary)
	}
}

func (h *testHost) remove(name string) {
	h.t.Helper()
	if err := os.Remove(h.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// content returns the content of a file, or "" if it does not exist.
func (h *testHost) content(name string) string {
	raw, _ := os.ReadFile(h.path(name))
	return string(raw)
}

// TestReset_StopsStepsWithoutManager checks that a reset rolls back steps. A step whose manager is gone
// is stopped first, and none of its units remains on the host.
func TestReset_StopsStepsWithoutManager(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		since        func(w *world)
	}{
		{"goes on", "its changes after the reset would not be rolled back", func(w *world) {
			for _, u := range w.Transient {
				u.MayStop = true
			}
		}},
		{"succeeded unseen", "its unit remains until a manager fetches the result", func(w *world) { w.settle() }},
		{"failed unseen", "so does one that failed", func(w *world) {
			w.settle()
			for _, u := range w.Transient {
				u.Code = 1
			}
		}},
		{"rebooted", "only its record is left", func(w *world) { w.Transient = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.write("etc/pki/other", "")
			ctx, cancel := context.WithCancel(t.Context())
			w := h.see()
			w.OnRun = "linger"
			h.world(w)
			if r := h.r.Apply(ctx, h.batch(h.certs()), func(int, host.Progress) { cancel() }); r[0].Error == nil ||
				r[0].Error.Reason != "Interrupted" {
				t.Fatalf("the manager: %+v", r[0])
			}
			w = h.see()
			c.since(&w)
			h.world(w)

			if r := h.check(op.Reset{})[0]; r.Status != op.Changed {
				t.Errorf("before: %s (%s): %s", r.Status, r.Summary, c.reason)
			}
			h.apply(op.Reset{})
			if r := h.check(op.Reset{})[0]; r.Status != op.Unchanged {
				t.Errorf("after: %s (%s)", r.Status, r.Summary)
			}
			if w := h.see(); len(w.Transient) > 0 {
				t.Errorf("units are left: %v: %s", w.Transient, c.reason)
			}
		})
	}
}

// TestImportImages_RemovesInputOfStepThatNeverStarted checks that the input of a step is removed if the step never
// started. The input may be large, and secret.
func TestImportImages_RemovesInputOfStepThatNeverStarted(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"the disk is full":  func(io.Writer) error { return unix.ENOSPC },
		"the helper killed": func(io.Writer) error { panic("killed") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write("run/containerd/containerd.sock", "")
			s, err := h.r.session(host.Batch{Operation: "earlier", Step: "images"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				leave, _, err := s.takeApplyLock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer leave()
				if err := program.Execute(t.Context(), s.Host, images.ImportStep(), write, &op.Result{}); err == nil {
					t.Error("a step was started without what it reads")
				}
			}()
			h.apply(op.ImportImages{Images: []op.Image{{
				Ref:      "registry.example/pause:3",
				Manifest: h.blobs.add([]byte("{}")), MediaType: "application/x",
			}}})
			if left, err := os.ReadDir(filepath.Join(h.r.State, "run")); err != nil || len(left) > 0 {
				t.Errorf("left: %v %v", left, err)
			}
		})
	}
}
