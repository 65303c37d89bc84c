//go:build linux

package executor

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// shutDown applies operations, and ends the context like a shutdown when the host has
// another boot ID.
func (h *testHost) shutDown(ops ...op.Op) []op.Result {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	before := h.read("proc/sys/kernel/random/boot_id")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ended := make(chan []op.Result)
	go func() { ended <- h.r.Apply(ctx, h.batch(ops...), nil) }()
	for {
		select {
		case results := <-ended:
			return results
		case <-tick.C:
			if raw, err := os.ReadFile(h.path("proc/sys/kernel/random/boot_id")); err == nil && string(raw) != before && len(raw) > 0 {
				cancel()
			}
		}
	}
}

func TestReboot_HappensOnlyForItsBoot(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	before := h.snapshot()
	reboot := op.Reboot{Boot: "boot-1"}
	if r := h.check(reboot)[0]; r.Status != op.Changed || r.Summary != "reboot" {
		t.Fatalf("before the reboot: %+v", r)
	}
	h.shutDown(reboot)
	if n := h.see().Boots; n != 1 {
		t.Fatalf("%d reboots, want 1", n)
	}
	if r := h.check(reboot)[0]; r.Status != op.Unchanged {
		t.Errorf("on the next boot: %+v", r)
	}
	// The manager sends the operation again when it has connected to the new boot.
	if r := h.apply(reboot)[0]; r.Status != op.Unchanged || h.see().Boots != 1 {
		t.Errorf("applied again: %+v, and %d reboots in all", r, h.see().Boots)
	}
	if r := h.check(op.Reboot{Boot: "boot-2"})[0]; r.Status != op.Changed {
		t.Errorf("a later operation reboots the next boot: %+v", r)
	}
	h.apply(op.RestoreHost{})
	after := h.snapshot()
	const boot = "/proc/sys/kernel/random/boot_id"
	delete(before, boot)
	delete(after, boot)
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("a reboot leaves something on the host (-before +after):\n%s", d)
	}
}

// TestReboot_InterruptedIsRepeatable checks the moments at which a reboot can be
// interrupted: the host reboots once.
func TestReboot_InterruptedIsRepeatable(t *testing.T) {
	t.Parallel()
	t.Run("before systemd was asked", func(t *testing.T) {
		h := newHost(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reboot := op.Reboot{Boot: "boot-1"}
		if r := h.r.Apply(ctx, h.batch(reboot), nil)[0]; r.Status != op.Failed || h.see().Boots != 0 {
			t.Fatalf("%+v, and %d reboots", r, h.see().Boots)
		}
		h.shutDown(reboot)
		if n := h.see().Boots; n != 1 {
			t.Errorf("%d reboots, want 1", n)
		}
	})
	t.Run("while systemd was asked", func(t *testing.T) {
		h := newHost(t)
		w := h.see()
		w.OnRun = "shutdown"
		h.world(w)
		reboot := op.Reboot{Boot: "boot-1"}
		h.shutDown(reboot)
		if r := h.apply(reboot)[0]; r.Status != op.Unchanged || h.see().Boots != 1 {
			t.Errorf("%+v, and %d reboots", r, h.see().Boots)
		}
	})
}

func TestReboot_Refuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		op           op.Reboot
		onRun        string
		want         string // a part of the message
	}{
		{"no boot", "it would reboot the host again and again", op.Reboot{}, "", "does not name the boot"},
		{"refused by systemd", "the reason of systemd is shown", op.Reboot{Boot: "boot-1"}, "refuse", "systemctl"},
		{
			"a closed gate", "other etcd members may be down",
			op.Reboot{Boot: "boot-1", Gate: &op.Wait{Path: "/never", TimeoutSeconds: 1}},
			"", "/never did not answer within 1s",
		},
		{
			"a gate without a condition", "it would always be open",
			op.Reboot{Boot: "boot-1", Gate: &op.Wait{}},
			"",
			"must name exactly one of",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			w := h.see()
			w.OnRun = tc.onRun
			h.world(w)
			results := h.r.Apply(t.Context(), h.batch(tc.op), nil)
			r := results[0]
			if r.Status != op.Failed || !strings.Contains(r.Error.Message, tc.want) || r.Error.Reason == "" {
				t.Errorf("%s: %+v, %+v", tc.reason, r, r.Error)
			}
			if n := h.see().Boots; n != 0 {
				t.Errorf("%s: %d reboots", tc.reason, n)
			}
		})
	}
}

// A host that does not name its boot is not rebooted: the reboot could not be detected.
func TestReboot_NeedsBootID(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("proc/sys/kernel/random/boot_id", "")
	if r := h.check(op.Reboot{Boot: "boot-1"})[0]; r.Status != op.Failed {
		t.Errorf("%+v", r)
	}
}
