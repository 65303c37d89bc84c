//go:build linux

package executor

import (
	"context"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// TestHealthGate_RequiresServiceThatRespondedBefore checks that a service that responded before a change must respond after it,
// however often the helper is killed in between. A service that did not respond is not
// awaited.
func TestHealthGate_RequiresServiceThatRespondedBefore(t *testing.T) {
	t.Parallel()
	const forwards = "proc/sys/net/ipv4/ip_forward"
	for _, tc := range []struct {
		name, reason string
		answers      string // the value with which it serves
		bad          bool
	}{
		{"as before", "it serves with any value", "[01]", false},
		{"not any more", "it serves without forwarding alone", "0", true},
		{"not before", "it did not serve before", "2", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			set := func(value string) op.List {
				return op.List{
					op.Sysctl{File: "/etc/sysctl.d/90-slipway.conf", Values: map[string]string{"net.ipv4.ip_forward": value}},
					op.RevertStep{Step: "step"},
					op.HealthGate{
						Name:  "step",
						Waits: []op.Wait{{Name: "it", Program: []string{"/usr/bin/grep", "-q", tc.answers, h.path(forwards)}, TimeoutSeconds: 1}},
					},
				}
			}
			for _, r := range h.check(set("1")...)[1:] {
				if r.Status != op.Unchanged {
					t.Errorf("before anything is changed something is to be waited for: %+v", r)
				}
			}
			results := h.r.Apply(t.Context(), h.batch(set("1")...), nil)
			last := results[len(results)-1]
			if !tc.bad {
				if last.Error != nil {
					t.Errorf("%+v: %s", last.Error, tc.reason)
				}
				if r := h.check(set("1")...)[2]; r.Status != op.Unchanged {
					t.Errorf("something is left to do: %+v", r)
				}
				return
			}
			if last.Error == nil || last.Error.Reason != op.ReasonUnhealthy || !strings.Contains(last.Error.Message, "it did not answer") {
				t.Fatalf("%+v: %s", last, tc.reason)
			}
			if r := h.check(set("1")...)[2]; r.Status != op.Changed || !strings.Contains(r.Summary, "as before") {
				t.Errorf("that it does not serve is forgotten: %+v", r)
			}
			h.apply(set("0")...)
			if r := h.check(set("0")...)[2]; r.Status != op.Unchanged {
				t.Errorf("after the way back something is left to do: %+v", r)
			}
		})
	}
	h := newHost(t)
	if r := h.check(op.HealthGate{Name: "../x"})[0]; r.Error == nil || r.Error.Reason != "Invalid" {
		t.Errorf("its name is a way out: %+v", r)
	}
}

// TestHealthGate_RemainsPlannedIfInterrupted checks that the health check still runs if the helper is stopped while
// the changes settle.
func TestHealthGate_RemainsPlannedIfInterrupted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	list := op.List{
		op.File{Path: "/etc/app.conf", Content: []byte("1\n")},
		op.HealthGate{Name: "step", SettleSeconds: 3600, Waits: []op.Wait{{Path: "/etc/hosts", TimeoutSeconds: 1}}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r := h.r.Apply(ctx, h.batch(list...), nil)
	if len(r) != 2 || r[1].Error == nil || r[1].Error.Reason != "Timeout" {
		t.Fatalf("%+v", r)
	}
	if r := h.check(list...)[1]; r.Status != op.Changed {
		t.Errorf("the health check is not planned: %+v", r)
	}
}
