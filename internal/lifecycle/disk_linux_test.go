package lifecycle

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// TestOperation_FailsWithHintIfStateIsNotWritable keeps the state on a small disk in a separate mount namespace. The
// disk fills up during an operation, or turns read-only.
func TestOperation_FailsWithHintIfStateIsNotWritable(t *testing.T) {
	t.Parallel()
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		t.Run("full", func(t *testing.T) { fullDisk(t, mounted(t, dir)) })
		t.Run("read-only", func(t *testing.T) { readOnly(t, mounted(t, dir)) })
	})
}

// mounted returns a world whose state is on a disk of 1 MiB.
func mounted(t *testing.T, dir string) *world {
	smalldisk.Mount(t, dir, "1m")
	w := newWorld(t, "cp1", "w1")
	w.home = filepath.Join(dir, "home")
	return w
}

// unwritable checks for the diagnostic about state that cannot be written.
func unwritable(t *testing.T, err error) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != "records-unwritable" || list[0].Hint == "" {
		t.Errorf("got %v, want a remedy for state that cannot be written", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func fullDisk(t *testing.T, w *world) {
	filler := filepath.Join(filepath.Dir(w.home), "filler")
	p := w.prepared(w.service().Prepare(t.Context(), creating(w.Manifest()), nil))
	res, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
		if e.Type != event.StepStarted || e.Task != "kubeadm.init.certs" {
			return
		}
		f, err := os.Create(filler)
		if err == nil {
			_, err = io.Copy(f, zeros{})
			err = errors.Join(err, f.Close())
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("filling the disk: %v", err)
		}
	}))
	unwritable(t, err)
	if res == nil || res.Outcome != event.Failed {
		t.Fatalf("%+v: want the operation failed", res)
	}
	i := len(res.Failures) - 1
	if f := res.Failures[i]; f.Reason != "records-unwritable" || !strings.Contains(f.Message, "no space left") || f.Remedy == "" {
		t.Errorf("the failure is %+v", f)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	// The saved state can still be read.
	if _, ops := w.status(); len(ops) != 1 || ops[0] != "create Failed" {
		t.Errorf("operations %v", ops)
	}
	again := w.prepared(w.service().PrepareResume(t.Context(), resuming(), nil))
	_, err = again.Apply(t.Context())
	unwritable(t, errors.Join(err, again.Close()))
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.resume(event.Succeeded)
	w.whole()
}

func readOnly(t *testing.T, w *world) {
	w.create(event.Succeeded)
	before := w.Hosts["w1"].AllState()
	dir := filepath.Dir(w.home)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
	if _, _, err := w.service().Kubeconfig(t.Context(), "prod", false); err != nil {
		t.Error(err)
	}
	p := w.prepared(w.service().Prepare(t.Context(), applying(w.changed()), nil))
	if p.Plan().IsEmpty() {
		t.Error("the plan is empty")
	}
	_, err := p.Apply(t.Context())
	unwritable(t, errors.Join(err, p.Close()))
	if d := cmp.Diff(before, w.Hosts["w1"].AllState()); d != "" {
		t.Errorf("a host was changed without a saved operation (-before +after):\n%s", d)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
}
