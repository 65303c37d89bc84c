//go:build linux

package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// host is a machine whose clock and units a test sets.
type host struct {
	Store
	boot  string
	up    time.Duration
	units []string
}

func newHost(t *testing.T) *host {
	h := &host{boot: "boot-1", up: time.Hour}
	h.Store = Store{
		Dir:    filepath.Join(t.TempDir(), "slipway"),
		BootID: func() (string, error) { return h.boot, nil },
		Uptime: func() (time.Duration, error) { return h.up, nil },
		Units:  func(context.Context, string) ([]string, error) { return h.units, nil },
	}
	return h
}

var (
	first  = Lock{Operation: "create-1", Manager: "a", Fence: 3}
	second = Lock{Operation: "create-2", Manager: "b", Fence: 4}
)

func TestTake_FollowsFenceAndHeartbeat(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		meanwhile    func(h *host)
		take         Lock
		breaking     bool
		want         bool
	}{
		{"held", "its holder was just heard of", func(*host) {}, second, false, false},
		{"same manager", "a manager takes over from itself", func(*host) {}, Lock{Operation: "create-2", Manager: "a", Fence: 4}, false, true},
		{"same number", "a number is used once", func(*host) {}, Lock{Operation: "create-2", Manager: "a", Fence: 3}, false, false},
		{"almost stale", "59 seconds are not 60", func(h *host) { h.up += 59 * time.Second }, second, false, false},
		{"stale", "silent for a minute", func(h *host) { h.up += time.Minute }, second, false, true},
		{
			"stale, lower number", "the number must rise all the same", func(h *host) { h.up += time.Minute },
			Lock{Operation: "create-2", Manager: "b", Fence: 2},
			false, false,
		},
		{
			"stale, units running", "its work goes on without it",
			func(h *host) { h.up += time.Hour; h.units = []string{"slipway-create-1-x.service"} }, second, false, false,
		},
		{"new boot", "nothing of it can be running", func(h *host) { h.boot, h.up = "boot-2", time.Second }, second, false, true},
		{"broken", "somebody insists", func(*host) {}, second, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, ctx := newHost(t), context.Background()
			if _, ok, err := h.TakeLock(ctx, first, false); !ok || err != nil {
				t.Fatalf("taking a free lock: %v %v", ok, err)
			}
			c.meanwhile(h)
			st, ok, err := h.TakeLock(ctx, c.take, c.breaking)
			if err != nil || ok != c.want {
				t.Fatalf("%s: %v %v, want %v", c.reason, ok, err, c.want)
			}
			holder := first
			if c.want {
				holder = c.take
			}
			if diff := cmp.Diff(holder, st.Holder); diff != "" {
				t.Errorf("holder:\n%s", diff)
			}
			if beat, err := h.RenewHeartbeat(ctx, first); err != nil || beat == c.want {
				t.Errorf("the first holder's heartbeat: %v %v", beat, err)
			}
		})
	}
}

func TestLock_TakeBeatRelease(t *testing.T) {
	h, ctx := newHost(t), context.Background()
	if st, err := h.ReadState(ctx); err != nil || st.Held {
		t.Fatalf("a fresh host: %+v %v", st, err)
	}
	if _, err := os.Stat(h.Dir); err == nil {
		t.Error("reading has made the state directory")
	}
	if _, _, err := h.TakeLock(ctx, first, false); err != nil {
		t.Fatal(err)
	}
	h.up += 50 * time.Second
	if ok, err := h.RenewHeartbeat(ctx, first); !ok || err != nil {
		t.Fatalf("heartbeat: %v %v", ok, err)
	}
	h.up += 30 * time.Second
	st, err := h.ReadState(ctx)
	if diff := cmp.Diff(State{Held: true, Holder: first, Highest: 3, AgeSeconds: 30}, st); diff != "" || err != nil {
		t.Errorf("state %v:\n%s", err, diff)
	}
	if err := h.ReleaseLock(ctx, second); err != nil {
		t.Fatal(err)
	}
	if st, err := h.ReadState(ctx); err != nil || !st.Held {
		t.Errorf("another's release has freed it: %+v %v", st, err)
	}
	if err := h.RaiseFence(9); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.Dir, "ledger"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.ReleaseLock(ctx, first); err != nil {
		t.Fatal(err)
	}
	st, err = h.ReadState(ctx)
	if diff := cmp.Diff(State{Highest: 9}, st); diff != "" || err != nil {
		t.Errorf("after the release of a managed host %v:\n%s", err, diff)
	}
	if err := h.ReleaseLock(ctx, first); err != nil {
		t.Errorf("releasing twice: %v", err)
	}
}

// With an unreadable fence, only a caller that breaks the lock gets it. The error names
// the file.
func TestTake_NeedsBreakWithUnreadableFence(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "no number": "seven\n"} {
		t.Run(name, func(t *testing.T) {
			h, ctx := newHost(t), context.Background()
			if err := h.RaiseFence(3); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(h.Dir, FenceName)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, ok, err := h.TakeLock(ctx, second, false)
			var told *FenceError
			if ok || !errors.As(err, &told) || !strings.Contains(told.Error(), path) {
				t.Errorf("taken: %t, %v: want it refused, and %s named", ok, err, path)
			}
			st, ok, err := h.TakeLock(ctx, second, true)
			if err != nil || !ok || st.Highest != second.Fence {
				t.Errorf("taken by somebody who insists: %t, %+v, %v", ok, st, err)
			}
		})
	}
}
