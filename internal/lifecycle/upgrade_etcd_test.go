package lifecycle

import (
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
)

// agedManaged returns a world with a running cluster of the older version. Its etcd is a
// service, and an upgrade changes the minor version of etcd.
func agedManaged(t *testing.T) *world {
	t.Helper()
	w := managed(t)
	w.age(t)
	return w
}

var managedNodes = []string{"cp1", "w1"}

// servers returns the etcd program of each host.
func (w *world) servers() map[string]string {
	out := map[string]string{}
	for name, m := range w.Hosts {
		m.Mu.Lock()
		out[name] = m.Files[module.EtcdPrograms().Server]
		m.Mu.Unlock()
	}
	return out
}

// otherEtcd returns the hosts whose etcd program has changed.
func (w *world) otherEtcd(was map[string]string) (names []string) {
	for name, is := range w.servers() {
		if is != was[name] {
			names = append(names, name)
		}
	}
	return names
}

// wantEtcd checks that all members run with their current program and settings. If others
// is true, all programs have changed; otherwise none has.
func (w *world) wantEtcd(was map[string]string, others bool) {
	w.t.Helper()
	if names := w.otherEtcd(was); len(names) != len(w.Hosts) && others || len(names) > 0 && !others {
		w.t.Errorf("the etcd program has changed on %v", names)
	}
	for name, m := range w.Hosts {
		if m.State[module.EtcdUnitName+" started"] != m.HashInputs(module.EtcdUnit()) {
			w.t.Errorf("the member of %s does not run with its current files", name)
		}
	}
	if len(w.API.ManagedEtcd.Running) != len(w.Hosts) {
		w.t.Errorf("%d members run", len(w.API.ManagedEtcd.Running))
	}
}

// Members are upgraded one at a time after all nodes. A member has no new program before
// its turn, because a reboot would start it.
func TestUpgradeManagedEtcd_ChangesMembersAfterNodes(t *testing.T) {
	t.Parallel()
	w := agedManaged(t)
	was := w.servers()
	oneByOne := w.membersInTurn("etcd in " + facts.DirPrograms)
	w.events = nil
	w.keptAs(older, w.do(toNewest, event.Succeeded))
	oneByOne()
	back, restarted := 0, 0
	for _, e := range w.events {
		switch {
		case e.Task == "kubelet.running" && e.Type == event.StepFinished:
			back++
		case e.Task == "etcd.running" && e.Type == event.StepStarted:
			if restarted++; back != len(managedNodes) {
				t.Errorf("%s is restarted after only %d nodes were upgraded", e.Host, back)
			}
		}
	}
	if restarted != len(w.Hosts) {
		t.Errorf("%d members were restarted", restarted)
	}
	w.wantVersions(all(managedNodes, "v1.37.1"))
	w.wantEtcd(was, true)
	w.Version = "v1.37.1"
	w.whole()
	if p := w.prepared(w.service().Prepare(t.Context(), toNewest, nil)); !p.Plan().IsEmpty() {
		t.Errorf("after the upgrade, something is left to do: %+v", p.Plan().Steps)
	}
}

// Wherever the manager is killed, at most one member has another program than it runs. A
// resume finishes the upgrade.
func TestUpgradeManagedEtcd_ResumesAfterKill(t *testing.T) {
	w := agedManaged(t)
	was := w.servers()
	for _, m := range w.killed(t, toNewest) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			ahead := 0
			for _, m := range k.Hosts {
				if m.State[module.EtcdUnitName+" started"] != m.HashInputs(module.EtcdUnit()) {
					ahead++
				}
			}
			if ahead > 1 {
				t.Errorf("%d members would come back from a reboot with another program", ahead)
			}
			k.goOn(toNewest)
			k.wantVersions(all(managedNodes, "v1.37.1"))
			k.wantEtcd(was, true)
			k.Version = "v1.37.1"
			k.whole()
			k.same(w)
		})
	}
}

// A rollback restores the previous etcd programs, but only after etcd has been prepared
// for the downgrade.
func TestRollback_RestoresManagedEtcd(t *testing.T) {
	t.Parallel()
	w := agedManaged(t)
	was := w.servers()
	w.refusing("cp1", "upgrade.rights")
	w.do(toNewest, event.Failed)
	w.Hosts["cp1"].Refuse = nil
	w.wantEtcd(was, true)
	w.events = nil
	w.rollback(event.Succeeded)
	told, exchanged := 0, 0
	for _, e := range w.events {
		switch {
		case e.Task == "etcd.back" && e.Type == event.StepFinished:
			told++
		case e.Task == "etcd.running" && e.Type == event.StepStarted:
			if exchanged++; told != 1 {
				t.Errorf("%s is replaced before etcd was prepared for the downgrade", e.Host)
			}
		}
	}
	if exchanged != len(w.Hosts) {
		t.Errorf("%d members were replaced", exchanged)
	}
	w.wantVersions(all(managedNodes, older))
	w.wantEtcd(was, false)
	w.whole()
}
