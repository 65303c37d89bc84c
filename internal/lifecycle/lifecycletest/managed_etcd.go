package lifecycletest

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// ManagedEtcd simulates managed etcd in memory. It is as strict as etcd about how its members
// start.
type ManagedEtcd struct {
	mu      sync.Mutex
	joined  chan struct{}     // closed when another one runs; nil: no member waits
	initial string            // the initial cluster of the first member
	Votes   map[string]bool   // by name, whether they run or not
	Running map[string]string // name → CA that it trusts
}

func (e *ManagedEtcd) clone() *ManagedEtcd {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &ManagedEtcd{initial: e.initial, Votes: maps.Clone(e.Votes), Running: maps.Clone(e.Running)}
}

// isServing reports whether more than half of the members run.
func (e *ManagedEtcd) isServing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasMajority()
}

func (e *ManagedEtcd) hasMajority() bool {
	return len(e.Running) > 0 && 2*len(e.Running) > len(e.Votes)
}

// StopMember stops the member of a host. The cluster is gone with the last one.
func (e *ManagedEtcd) StopMember(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if delete(e.Running, name); len(e.Running) == 0 {
		e.initial, e.Votes = "", nil
	}
}

// isMember reports whether a host is a member and has its data.
func (e *ManagedEtcd) isMember(m *Host) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Votes[m.Name] && m.Files[facts.EtcdData] != ""
}

// joinMember adds a host to the members that serve.
func (e *ManagedEtcd) joinMember(m *Host, s *op.EtcdService) *op.Error {
	e.mu.Lock()
	switch {
	case !e.hasMajority():
		e.mu.Unlock()
		return &op.Error{Reason: "CommandFailed", Message: "too few members answer"}
	case e.Votes[m.Name] && m.Files[facts.EtcdData] == "" && e.Running[m.Name] != "":
		e.mu.Unlock()
		return &op.Error{Reason: op.ReasonEtcdDataLost, Message: "etcd counts on the vote of " + m.Name}
	case !e.Votes[m.Name]:
		e.Votes[m.Name] = true
		m.Files[s.Initial] = "ETCD_INITIAL_CLUSTER_STATE=existing"
	}
	e.mu.Unlock()
	return e.startMember(m)
}

// membersToRemove returns the members that a removal would remove.
func (e *ManagedEtcd) membersToRemove(o op.EtcdRemove, down map[string]bool) (gone []string, refused *op.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	up := func(name string) bool { return e.Running[name] != "" && !down[name] }
	voters, answer := len(e.Votes), 0
	for name := range e.Votes {
		if up(name) {
			answer++
		}
	}
	for _, p := range o.Peers {
		if !e.Votes[p.Name] || p.Dead && up(p.Name) {
			continue
		}
		gone = append(gone, p.Name)
		if voters--; up(p.Name) {
			answer--
		}
		if answer < voters/2+1 {
			return nil, &op.Error{Reason: op.IDEtcdQuorum, Message: "too few would answer"}
		}
	}
	return gone, nil
}

// removeMembers removes members.
func (e *ManagedEtcd) removeMembers(names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		delete(e.Votes, name)
		delete(e.Running, name)
	}
}

// awaitMajority waits for a majority while other hosts start their members.
func (e *ManagedEtcd) awaitMajority() {
	broken := time.After(10 * time.Second)
	for {
		e.mu.Lock()
		if e.hasMajority() {
			e.mu.Unlock()
			return
		}
		if e.joined == nil {
			e.joined = make(chan struct{})
		}
		more := e.joined
		e.mu.Unlock()
		select {
		case <-more:
		case <-broken:
			return
		}
	}
}

// startMember starts the member of a host.
func (e *ManagedEtcd) startMember(m *Host) *op.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	fail := func(format string, args ...any) *op.Error {
		return &op.Error{Reason: "UnitFailed", Message: fmt.Sprintf(format, args...)}
	}
	ca := m.Files[module.EtcdCA]
	for _, f := range []string{"ca.crt", "ca.key", "server.crt", "server.key", "peer.crt", "peer.key"} {
		if m.Files[module.EtcdPKI+"/"+f] == "" {
			return fail("%s has no %s", m.Name, f)
		}
	}
	for other, known := range e.Running {
		if known != ca && !shareCA(known, ca) {
			return fail("%s does not know the authority of %s", m.Name, other)
		}
	}
	if m.Files[facts.EtcdData] == "" {
		text := m.Files["/etc/kubernetes/slipway/etcd.env"]
		switch {
		case m.Files[facts.EtcdJoined] != "":
			return fail("%s was a member, and its data are lost", m.Name)
		case e.Votes[m.Name] && text == "ETCD_INITIAL_CLUSTER_STATE=existing":
			text = e.initial // the other members send it their list
		case !strings.Contains(text, "ETCD_INITIAL_CLUSTER_STATE=new") || !strings.Contains(text, m.Name+"=https://"):
			return fail("%s is not told how to begin: %q", m.Name, text)
		case e.initial != "" && e.initial != text:
			return fail("%s would begin another cluster", m.Name)
		}
		if e.initial == "" {
			e.Votes = map[string]bool{}
			for member := range strings.SplitSeq(strings.TrimPrefix(strings.SplitN(text, "\n", 2)[0], "ETCD_INITIAL_CLUSTER="), ",") {
				name, _, _ := strings.Cut(member, "=")
				e.Votes[name] = true
			}
		}
		e.initial = text
		m.Files[facts.EtcdData] = "data of " + m.Name
	}
	e.Running[m.Name] = ca
	if e.joined != nil {
		close(e.joined)
		e.joined = nil
	}
	return nil
}
