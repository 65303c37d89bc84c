package lifecycletest

import (
	"encoding/json"
	"fmt"
	"strings"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

// etcdLog returns how far a member's data reach, which their text describes. "log 4 900 899"
// is a log that ends at entry 900 of term 4, with entries up to 899 committed; options may
// follow. The data are of the same cluster unless "cluster=" names another one. An empty
// name is an unknown cluster.
func (m *Host) etcdLog() (is op.EtcdRecovered) {
	words := strings.Fields(m.Files[facts.EtcdData])
	if n, _ := fmt.Sscanf(m.Files[facts.EtcdData], "log %d %d %d", &is.Log.Term, &is.Log.Index, &is.Commit); n > 0 {
		is.Cluster = 1
	}
	for _, w := range words[min(4, len(words)):] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "cluster":
			is.Cluster = uint64(len(value))
		case "damaged":
			is.Damaged = "x.wal, from byte 7 of 9: it is not what was written"
		case "db":
			_, _ = fmt.Sscanf(value, "%d/%d", &is.Database.Term, &is.Database.Index)
		case "from":
			is.From = "y.wal"
		case "learner":
			is.Learner = true
		case "nodb":
			is.DatabaseDamaged = "there is no database"
		}
	}
	return is
}

// recoveryReport returns a host's report about its data.
func (m *Host) recoveryReport(o op.EtcdRecover) ([]byte, bool) {
	is := m.etcdLog()
	_, made := m.Files["/var/lib/slipway/salvage.json"]
	if o.Key != "" && made {
		is.Snapshot = &op.EtcdSnapshotInfo{Revision: 4711, Keys: 600}
	}
	raw, err := json.Marshal(is)
	if err != nil {
		panic(err)
	}
	return raw, o.Key == "" || made
}

// recoverEtcd simulates making a snapshot from a copy of the data. The member must be stopped, and
// its data must be as planned.
func (m *Host) recoverEtcd(o op.EtcdRecover) *op.Error {
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	if is := m.etcdLog(); is.Reach() != o.EtcdReach || is.ByDatabase() != o.Database {
		return &op.Error{Reason: op.IDEtcdMoved, Message: "it has moved"}
	}
	if !m.API.RestoreDone["stop "+o.Key+" "+m.Name] {
		return &op.Error{Reason: "TooEarly", Message: "it runs"}
	}
	m.Files["/var/lib/slipway/salvage.json"] = o.Key
	return nil
}

// rescueStep simulates a step of a rescue and checks the order of steps.
func (m *Host) rescueStep(o op.EtcdRestore) *op.Error {
	early := func(what string) *op.Error {
		return &op.Error{Reason: "TooEarly", Message: fmt.Sprintf("%s on %s: %s", o.Do, m.Name, what)}
	}
	did := func(do op.RestoreStep) bool { return m.API.RestoreDone[string(do)+" "+o.Key+" "+m.Name] }
	all := func(do op.RestoreStep) bool {
		for _, name := range m.API.RescueMembers {
			if !m.API.RestoreDone[string(do)+" "+o.Key+" "+name] {
				return false
			}
		}
		return true
	}
	switch o.Do {
	case op.RestoreStop:
		m.API.Running = false
	case op.RestorePrepare:
		if m.Files["/var/lib/slipway/salvage.json"] != o.Key || o.Cluster != o.Name+"="+o.PeerURL ||
			o.From != op.RecoveredSnapshot(facts.DirEtcd, o.Key) {
			return early(fmt.Sprintf("it has %+v", o))
		}
	case op.RestoreSwap:
		if !did(op.RestorePrepare) || !all(op.RestoreStop) {
			return early("nothing is prepared, or something runs")
		}
		m.Files[facts.EtcdData] = "rescued"
		m.API.Revision = "1000004711"
	case op.RestoreAside:
		if !did(op.RestoreStop) || m.API.Revision != "1000004711" {
			return early("the others have no data yet")
		}
		delete(m.Files, facts.EtcdData)
	case op.RestoreStart:
		m.API.Running = true
	}
	m.API.RestoreDone[string(o.Do)+" "+o.Key+" "+m.Name] = true
	if o.Do == op.RestoreSwap { // a stopped member remains stopped
		m.API.RestoreDone["stop "+o.Key+" "+m.Name] = true
	}
	return nil
}
