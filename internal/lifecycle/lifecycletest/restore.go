package lifecycletest

import (
	"fmt"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

// stepDone reports whether a step of a restore was done on a host.
func (a *API) stepDone(name string, o op.EtcdRestore) bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if o.Do == op.RestoreStop && a.RestoreDone["swap "+o.Key+" "+name] {
		return true
	}
	return a.RestoreDone[string(o.Do)+" "+o.Key+" "+name]
}

// allRestored reports whether every member has new data.
func (a *API) allRestored() bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return a.doneByAll(op.RestoreSwap)
}

// doneByAll reports whether a step was done for every member. The caller holds Mu.
func (a *API) doneByAll(step op.RestoreStep) bool {
	n := 0
	for what := range a.RestoreDone {
		if strings.HasPrefix(what, string(step)+" ") {
			n++
		}
	}
	return n > 0 && n >= a.etcdVoters()
}

// etcdVoters returns the number of etcd members: three if etcd is a service. The caller holds
// Mu.
func (a *API) etcdVoters() int {
	if a.Rescuing {
		return 1
	}
	if len(a.Members) == 0 {
		return 3
	}
	return len(a.Members)
}

// restoreStep simulates a step and checks the order. Nothing stops before all new data are
// prepared, and no data are replaced while anything runs. Nothing starts before all data
// are replaced.
func (m *Host) restoreStep(o op.EtcdRestore) *op.Error {
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	if m.API.Rescuing {
		return m.rescueStep(o)
	}
	before := map[op.RestoreStep]op.RestoreStep{
		op.RestoreStop: op.RestorePrepare, op.RestoreSwap: op.RestoreStop, op.RestoreStart: op.RestoreSwap, op.RestoreRefresh: op.RestoreStart,
	}[o.Do]
	if before != "" && !m.API.doneByAll(before) {
		return &op.Error{Reason: "TooEarly", Message: fmt.Sprintf("%s on %s, but not all members have done %s", o.Do, m.Name, before)}
	}
	switch o.Do {
	case op.RestorePrepare:
		if o.Snapshot.Size == 0 || len(strings.Split(o.Cluster, ",")) != m.API.etcdVoters() ||
			!strings.Contains(o.Cluster, o.Name+"="+o.PeerURL) {
			return &op.Error{Reason: "Invalid", Message: fmt.Sprintf("it has %+v", o)}
		}
		m.API.bump = o.Bump
	case op.RestoreStop:
		m.API.Running = false
	case op.RestoreSwap:
		m.Files[facts.EtcdData] = "restored " + o.Key
		m.API.Revision = strconv.FormatUint(4711+m.API.bump, 10)
	case op.RestoreStart:
		m.API.Running = true
	}
	if m.API.RestoreDone == nil {
		m.API.RestoreDone = map[string]bool{}
	}
	m.API.RestoreDone[string(o.Do)+" "+o.Key+" "+m.Name] = true
	return nil
}
