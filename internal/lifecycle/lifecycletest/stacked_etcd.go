package lifecycletest

import (
	"slices"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// EtcdLearner is the role of a member that does not vote yet.
const EtcdLearner = "learner"

// EtcdVoter is the role of a member that votes.
const EtcdVoter = "voter"

// EtcdRole returns the role of a member; "" if there is none of that name.
func (a *API) EtcdRole(name string) string {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return a.Members[name]
}

// SetEtcdRole sets the role of a member; "" removes it.
func (a *API) SetEtcdRole(name, is string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if a.Members[name] = is; is == "" {
		delete(a.Members, name)
		delete(a.Minors.versions, name)
		delete(a.Minors.Away, name)
	}
}

// anyVoter reports whether a voter answers at one of these endpoints.
func (a *API) anyVoter(endpoints []string) bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return slices.ContainsFunc(endpoints, func(url string) bool {
		name := a.endpoints[url]
		return a.Members[name] == EtcdVoter && !a.Down[name]
	})
}

// membersToRemove returns the members that an operation would remove. The member of a host that
// is down does not answer.
func (a *API) membersToRemove(o op.EtcdRemove) (gone []string, refused *op.Error) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	o.Peers = slices.DeleteFunc(slices.Clone(o.Peers), func(p op.EtcdPeer) bool { return p.Stays })
	if o.Cert == module.EtcdClientCert {
		return a.ManagedEtcd.membersToRemove(o, a.Down)
	}
	voters, up := 0, 0
	for name, is := range a.Members {
		if is == EtcdVoter {
			if voters++; !a.Down[name] {
				up++
			}
		}
	}
	for name, is := range a.Members {
		known := func(p op.EtcdPeer) bool { return p.Name == name }
		if is == EtcdLearner && a.Down[name] && len(o.Known) > 0 && !slices.ContainsFunc(append(o.Known, o.Peers...), known) {
			gone = append(gone, name)
		}
	}
	for _, p := range o.Peers {
		is := a.Members[p.Name]
		if is == "" || p.Dead && !a.Down[p.Name] {
			continue
		}
		gone = append(gone, p.Name)
		if is == EtcdLearner {
			continue
		}
		if !a.Down[p.Name] {
			up--
		}
		if voters--; up < voters/2+1 {
			return nil, &op.Error{Reason: op.IDEtcdQuorum, Message: "too few would answer"}
		}
	}
	return gone, nil
}

// StopMember switches a host off, together with its etcd member.
func (a *API) StopMember(name string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.Down[name] = true
}

// etcdLearner returns the member that is being added.
func (a *API) etcdLearner() string {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	for name, is := range a.Members {
		if is == EtcdLearner {
			return name
		}
	}
	return ""
}
