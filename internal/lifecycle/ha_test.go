package lifecycle

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/node/op"
)

var threeAndTwo = []string{"cp1", "cp2", "cp3", "w1", "w2"}

// All control planes are voting etcd members and share the service account key; workers,
// saved state and events do not contain the keys of the cluster.
func TestCreate_JoinsControlPlanesWithSharedKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.create(event.Succeeded)
	w.whole()
	for _, cp := range threeAndTwo[:3] {
		if is := w.API.EtcdRole(cp); is != lifecycletest.EtcdVoter {
			t.Errorf("in etcd %s is %q", cp, is)
		}
		if w.Hosts[cp].Files["/etc/kubernetes/pki/sa.key"] != lifecycletest.CanaryKey+"/etc/kubernetes/pki/sa.key" {
			t.Errorf("%s has another service account key", cp)
		}
	}
	for _, name := range threeAndTwo[3:] {
		for path, content := range w.Hosts[name].Files {
			if strings.Contains(content, lifecycletest.CanaryKey) {
				t.Errorf("the worker %s holds %s", name, path)
			}
		}
	}
	w.keysAreNowhere()
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// keysAreNowhere looks for the cluster's keys in the saved state and in the events.
func (w *world) keysAreNowhere() {
	w.t.Helper()
	err := filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), lifecycletest.CanaryKey) {
			w.t.Errorf("%s holds a key of the cluster", path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range w.events {
		if strings.Contains(e.Message, lifecycletest.CanaryKey) {
			w.t.Errorf("an event of %s on %s holds a key of the cluster", e.Task, e.Host)
		}
	}
}

// A creation that was killed while control planes joined can be resumed. The machines are
// then as after an undisturbed run.
func TestCreate_ResumesAfterKillDuringJoin(t *testing.T) {
	w := newWorld(t, threeAndTwo...)
	request := creating(w.Manifest())
	for _, m := range w.killed(t, request) {
		if !strings.Contains(m.name, " join.") && !strings.Contains(m.name, " endpoint.") {
			continue // the same as with one control plane
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(request)
			k.whole()
			k.same(w)
			k.keysAreNowhere()
		})
	}
}

// A host that was interrupted as an etcd learner keeps the others from joining. It joins
// first, whichever host is next in order.
func TestResume_JoinsLearnerFirst(t *testing.T) {
	for _, learner := range []string{"cp2", "cp3"} {
		t.Run(learner, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, threeAndTwo...)
			for _, m := range w.Hosts {
				m.Refuse = func(_ string, o op.Op) *op.Error {
					if o.Kind() == op.KindEtcdMember {
						return &op.Error{Reason: "Interrupted", Message: "cut off"}
					}
					return nil
				}
			}
			w.create(event.Failed)
			w.API.SetEtcdRole(learner, lifecycletest.EtcdLearner)
			for _, m := range w.Hosts {
				m.Refuse = nil
			}
			w.resume(event.Succeeded)
			w.whole()
		})
	}
}

// If the second control plane fails to join, all other hosts still join, and a resume
// adds it.
func TestCreate_JoinsOtherHostsWhenControlPlaneFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Hosts["cp2"].Refuse = func(step string, _ op.Op) *op.Error {
		if step == "join.certs" {
			return &op.Error{Reason: "CommandFailed", Message: "no"}
		}
		return nil
	}
	w.create(event.Failed)
	for name, want := range map[string]bool{"cp2": false, "cp3": true, "w1": true, "w2": true} {
		if got := w.API.HasObject("/api/v1/nodes/" + name); got != want {
			t.Errorf("%s has joined: %v, want %v", name, got, want)
		}
	}
	w.Hosts["cp2"].Refuse = nil
	w.resume(event.Succeeded)
	w.whole()
}
