//go:build linux

package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFence_OutlivesTheState: a manager that was displaced is refused after the host was
// restored, too.
func TestFence_OutlivesTheState(t *testing.T) {
	h, ctx := newHost(t), t.Context()
	h.Past = filepath.Join(t.TempDir(), "run", "slipway")
	if _, ok, err := h.TakeLock(ctx, second, false); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := h.ReleaseLock(ctx, second); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory is left: %v", err)
	}
	st, ok, err := h.TakeLock(ctx, first, false)
	if ok || err != nil || st.Highest != second.Fence {
		t.Errorf("a lower number is taken: %v, %+v, %v", ok, st, err)
	}
	third := Lock{Operation: "create-3", Manager: "c", Fence: 5}
	if st, ok, err := h.TakeLock(ctx, third, false); !ok || err != nil || st.Highest != 5 {
		t.Errorf("the next number is not taken: %v, %+v, %v", ok, st, err)
	}
	if _, err := os.Stat(filepath.Join(h.Past, FenceName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the past is left beside the present: %v", err)
	}
	// One that cannot be read holds up all but who insists.
	if err := errors.Join(os.MkdirAll(h.Past, 0o700), os.WriteFile(filepath.Join(h.Past, FenceName), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var fence *FenceError
	if _, _, err := h.TakeLock(ctx, Lock{Manager: "d", Fence: 6}, false); !errors.As(err, &fence) {
		t.Errorf("got %v", err)
	}
	if st, ok, err := h.TakeLock(ctx, Lock{Manager: "d", Fence: 6}, true); !ok || err != nil || st.Highest != 6 {
		t.Errorf("by who insists: %v, %+v, %v", ok, st, err)
	}
}

// TestRelease_KeepsForeignFiles: a state directory with other files is kept, without the
// lock files.
func TestRelease_KeepsForeignFiles(t *testing.T) {
	h, ctx := newHost(t), t.Context()
	h.Past = filepath.Join(t.TempDir(), "past")
	h.Foreign = func(name string) bool { return name == "theirs" }
	if _, ok, err := h.TakeLock(ctx, first, false); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := os.WriteFile(filepath.Join(h.Dir, "theirs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.ReleaseLock(ctx, first); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(h.Dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"theirs"}, left); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestTake_WaitsForACopyOfTheManager: of two with one manager id, as copies of its records have, one waits
// for the other unless it knows that it has ended.
func TestTake_WaitsForACopyOfTheManager(t *testing.T) {
	for _, tt := range []struct {
		name, over string
		want       bool
	}{
		{"another process", "", false}, {"one that has ended, but not this", "x", false}, {"the one that has ended", "p1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, ctx := newHost(t), t.Context()
			if _, ok, err := h.TakeLock(ctx, Lock{Operation: "o", Manager: "a", Process: "p1", Fence: 1}, false); !ok || err != nil {
				t.Fatal(ok, err)
			}
			st, ok, err := h.TakeLock(ctx, Lock{Operation: "o", Manager: "a", Process: "p2", Fence: 2, Over: tt.over}, false)
			if err != nil || ok != tt.want {
				t.Fatalf("%v, %v", ok, err)
			}
			if ok && (st.Holder.Over != "" || st.Holder.Process != "p2") {
				t.Errorf("kept: %+v", st.Holder)
			}
		})
	}
}

// TestTake_OneHolderAtATime: a caller that waits for the lock directory while it is removed and
// created again does not get the lock together with the caller that created it.
func TestTake_OneHolderAtATime(t *testing.T) {
	h := newHost(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	inside, most := 0, 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		inside += by
		most = max(most, inside)
	}
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				unlock, err := h.lockExclusively(true)
				if err != nil {
					t.Error(fmt.Errorf("%d: %w", i, err))
					return
				}
				count(1)
				file := filepath.Join(h.Dir, "x")
				err = errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Remove(file))
				count(-1)
				if err = errors.Join(err, os.Remove(h.Dir)); err != nil { // as tidy does, at last
					t.Error(err)
				}
				unlock()
			}
		})
	}
	wg.Wait()
	if most != 1 {
		t.Errorf("%d were inside at once", most)
	}
}

// TestTake_SavesTheManager: the manager of a cluster is known after its operations, once a management server has held
// the lock.
func TestTake_SavesTheManager(t *testing.T) {
	h, ctx := newHost(t), t.Context()
	h.Foreign = func(name string) bool { return name == "theirs" }
	take := func(l Lock, want Manager) {
		t.Helper()
		before, err := h.ReadState(ctx)
		if err != nil {
			t.Fatal(err)
		}
		st, ok, err := h.TakeLock(ctx, l, false)
		if !ok || err != nil || st.Manager != before.Manager {
			t.Fatalf("taking: %t, %+v, %v, want manager %+v until a heartbeat", ok, st, err, before.Manager)
		}
		if ok, err := h.RenewHeartbeat(ctx, l); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := os.WriteFile(filepath.Join(h.Dir, "ours"), nil, 0o600); err != nil { // the host was changed
			t.Fatal(err)
		}
		if err := h.ReleaseLock(ctx, l); err != nil {
			t.Fatal(err)
		}
		if st, err := h.ReadState(ctx); err != nil || st.Held || st.Manager != want {
			t.Errorf("released: %+v, %v, want manager %+v", st, err, want)
		}
	}
	take(Lock{Manager: "a", Fence: 1}, Manager{})
	take(Lock{Manager: "b", Fence: 2, Server: "https://b"}, Manager{ID: "b", Server: "https://b", Fence: 2})
	take(Lock{Manager: "b", Fence: 3, Server: "https://b"}, Manager{ID: "b", Server: "https://b", Fence: 2})
	take(Lock{Manager: "c", Fence: 4}, Manager{ID: "c", Fence: 4})
	take(Lock{Manager: "b", Fence: 5, Server: "https://new"}, Manager{ID: "b", Server: "https://new", Fence: 5})
	if err := h.ForgetLock(); err != nil {
		t.Fatal(err)
	}
	if st, err := h.ReadState(ctx); err != nil || st.Manager != (Manager{}) {
		t.Errorf("after the end of the cluster: %+v, %v", st, err)
	}
	if err := os.WriteFile(filepath.Join(h.Dir, ManagerName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.TakeLock(ctx, Lock{Manager: "b", Fence: 6}, false); err == nil {
		t.Error("a damaged file of the manager is ignored")
	}
	if st, ok, err := h.TakeLock(ctx, Lock{Manager: "b", Fence: 6}, true); !ok || err != nil || st.Highest != 6 {
		t.Errorf("by force: %t, %+v, %v", ok, st, err)
	}
}
