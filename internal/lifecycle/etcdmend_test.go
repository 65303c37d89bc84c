package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/node/op"
)

// lastMemberFails makes the last of three etcd members fail to start with the newer minor.
// The returned function ends the failure.
func (w *world) lastMemberFails() (mended func()) {
	members := threeAndTwo[:3]
	for _, name := range members {
		m := w.Hosts[name]
		m.Refuse = func(step string, o op.Op) *op.Error {
			newer := func(other string) bool {
				return other != name && strings.Contains(w.Hosts[other].Files[lifecycletest.EtcdManifest], "v1.37.")
			}
			if o.Kind() != op.KindExec || step != "upgrade.etcd" ||
				len(slices.DeleteFunc(slices.Clone(members), func(other string) bool { return !newer(other) })) < 2 {
				return nil
			}
			m.State[lifecycletest.OperationID(o)] = "it has not succeeded"
			m.API.Mu.Lock()
			defer m.API.Mu.Unlock()
			m.API.Minors.Away[name] = true
			return &op.Error{Reason: op.ReasonNotServing, Message: "etcd of " + name + " does not serve"}
		}
	}
	return func() {
		for _, m := range w.Hosts {
			m.Refuse = nil
		}
	}
}

// TestRollbackUpgrade_RepairsEtcdMemberTwice: a member that a rollback has repaired fails again in the next upgrade,
// and is repaired again.
func TestRollbackUpgrade_RepairsEtcdMemberTwice(t *testing.T) {
	t.Parallel()
	w := aged(t, threeAndTwo...)
	for range 2 {
		mended := w.lastMemberFails()
		w.do(toNewest, event.Failed)
		mended()
		w.apply(w.prepared(w.service().PrepareRollback(t.Context(), rollingBack(), nil)), event.Succeeded)
	}
}

// TestRepairEtcd_OneMemberAtATime: etcd members that do not serve get their settings one at a time. If
// one fails with them, no further member gets them.
func TestRepairEtcd_OneMemberAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.create(event.Succeeded)
	for _, name := range threeAndTwo[:3] {
		m := w.Hosts[name]
		w.API.Minors.Away[name] = true
		m.Spoil = func(_ *lifecycletest.Host, step string, o op.Op) *op.Error {
			if e, ok := o.(op.Exec); ok && step == "etcd.mend" && strings.Contains(m.Files[lifecycletest.SettingsFile], "many") {
				if e.Then == nil || !strings.HasSuffix(e.Then.HTTP, ":2381/livez") {
					t.Errorf("the step does not wait until the member runs: %+v", e.Then)
				}
				return &op.Error{Reason: op.ReasonUnhealthy, Message: "quota-backend-bytes is bad"}
			}
			return nil
		}
	}
	c := w.Manifest()
	c.Spec.Etcd.ExtraArgs = map[string]string{"quota-backend-bytes": "many"}
	w.events = nil
	w.do(ApplyRequest{Subject: Subject{Cluster: c}, ApplyOptions: ApplyOptions{KeepFailed: true}}, event.Failed)
	var tried []string
	for _, e := range w.events {
		if e.Task == "etcd.mend" && e.Type == event.StepStarted {
			tried = append(tried, e.Host)
		}
	}
	if len(tried) != 1 {
		t.Errorf("%v have the bad settings, want one host", tried)
	}
}
