//go:build linux

package executor

import (
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
)

// downgrade plays etcd, which downgrades by one minor only, and only from the minor of
// its cluster.
func (w *world) downgrade(to string) error {
	switch {
	case w.Cluster != "3.7" || to != "3.6":
		return errors.New("etcdserver: invalid downgrade target version")
	case w.begun():
		return errors.New("etcdserver: cluster has a downgrade job in progress")
	}
	for _, s := range w.States {
		s.Downgrade.Enabled, s.Downgrade.Target = true, "3.6.0"
		if !w.Slow {
			s.Storage = "3.6.0"
		}
	}
	return nil
}

func (w *world) begun() bool {
	for _, s := range w.States {
		return s.Downgrade.Enabled
	}
	return false
}

// TestEtcdDowngrade_StartsOnlyIfClusterVersionIsNewer checks when a downgrade starts, and
// that it waits until all members are ready.
func TestEtcdDowngrade_StartsOnlyIfClusterVersionIsNewer(t *testing.T) {
	const change = "downgrade the storage format of all members to etcd 3.6"
	down := func(w *world) { delete(w.States, "https://c:2379") }
	for _, tc := range []struct {
		name, reason string
		change       func(*world)
		says, err    string
		begun        bool
	}{
		{"all newer", "members of 3.6 do not start with the data of 3.7", nil, change, "", true},
		{
			"one is older", "the cluster never reached the newer version",
			func(w *world) { w.Cluster, w.States["https://c:2379"].Version = "3.6", "3.6.8" }, "", "", false,
		},
		{"told already", "a member may be downgraded", func(w *world) { _ = w.downgrade("3.6") }, "", "", true},
		{
			"told, and not ready", "a member looks every few seconds",
			func(w *world) { w.Slow = true; _ = w.downgrade("3.6") }, change, "waiting for a, b, c", true,
		},
		{
			"told, and one is down", "etcd lowers its version when all members respond",
			func(w *world) { w.Slow = true; _ = w.downgrade("3.6"); down(w) }, change, "these do not answer: c", true,
		},
		{
			"not yet of the newer", "it is being upgraded: the first downgraded member would not start",
			func(w *world) { w.Cluster = "3.6" }, change, "invalid downgrade target", false,
		},
		{"one is down, and was newer", "the other members are downgraded", down, change, "", true},
		{
			"one is down, and was older", "the cluster never reached the newer version",
			func(w *world) { down(w); w.Cluster = "3.6" }, change, "", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			o := op.EtcdDowngrade{EtcdClient: h.defragging(func(w *world) {
				w.Cluster = "3.7"
				for _, s := range w.States {
					s.Version, s.Storage = "3.7.0", "3.7.0"
				}
				if tc.change != nil {
					tc.change(w)
				}
			}).EtcdClient, To: "3.6.8"}
			if r := h.check(o)[0]; r.Summary != tc.says || r.Error != nil {
				t.Errorf("%s: the check says %q (%v), want %q", tc.reason, r.Summary, r.Error, tc.says)
			}
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if (r.Error == nil) != (tc.err == "") || r.Error != nil && !strings.Contains(r.Error.Message, tc.err) {
				t.Errorf("%s: %+v, want %q", tc.reason, r.Error, tc.err)
			}
			if w := h.see(); w.begun() != tc.begun {
				t.Errorf("%s: the downgrade has begun: %t", tc.reason, w.begun())
			}
		})
	}
}
