package lifecycle

import (
	"cmp"
	"errors"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/remote"
)

// needs says that the operation cannot go on without a host that stays. The
// first control plane cannot be done without, unless the cluster is taken away;
// nor any, as long as none is known to hold the cluster, nor any host for etcd,
// as long as none is known to hold its data; nor one that must have its turn.
func (p *prepared) needs(h *engine.Host, staying []facts.Host) bool {
	return !p.removes() && (p.env.IsFirst(h) || p.restoresOn(h.Host) || p.awaits(h) || p.headless() && h.HasRole(v1alpha1.RoleControlPlane) || p.memberless(staying) && h.HasRole(v1alpha1.RoleEtcd))
}

// awaits says that others change their version only after a host: one that nobody
// reaches may serve all the same, and no kubelet may be newer than an API server that
// it asks. On the way there these are control planes, on the way back all nodes.
func (p *prepared) awaits(h *engine.Host) bool {
	return p.request.Kind == Upgrade && h.HasRole(v1alpha1.RoleControlPlane) || p.request.Kind == Revert && facts.RunsKubelet(h.Roles)
}

// offerRest adds to the hints about hosts that cannot be reached how a cluster
// that exists is changed without them.
func (p *prepared) offerRest(staying []facts.Host) {
	if !created(p.recorded) || !changesHosts(p.request.Kind) && !renewsData(p.request.Kind) && !aboutCertificates(p.request.Kind) {
		return
	}
	for i, h := range p.hosts[:len(staying)] {
		var lost *remote.Error
		if !errors.As(staying[i].Err, &lost) || p.needs(h, staying) || slices.Contains(p.request.Nodes, h.Name) {
			if lost != nil {
				p.offerOff(h, string(lost.Reason))
			}
			continue
		}
		p.hint(h.Name, string(lost.Reason), "; or go on without it for now: --ignore-errors")
	}
}

// hint adds to that of a host's finding.
func (p *prepared) hint(host, id, more string) {
	for i, d := range p.findings {
		if d.Host == host && d.ID == id {
			p.findings[i].Hint = cmp.Or(d.Hint, "mend it") + more
		}
	}
}

// offerOff adds to the hint about a host that others wait for what is left to do
// without it.
func (p *prepared) offerOff(h *engine.Host, id string) {
	if p.awaits(h) && !p.env.IsFirst(h) {
		p.hint(h.Name, id, "; or, if it is gone for good, take it off: slipway delete node "+h.Name+" --forget")
	}
}

const notForgotten = "; --forget is for hosts that are gone, and this is wrong here, whatever the host is"

// isHere says that the reason for which a host is not to be had is one of this
// machine's: the host may well run.
func isHere(h v1alpha1.Host, reason string) bool {
	switch remote.Reason(reason) {
	case remote.KeyUnreadable, remote.SecretUnreadable, remote.HostKeyUnknown:
		return true
	case remote.SudoFailed:
		return h.Address == "localhost"
	}
	return false
}

// dropLost goes on without the hosts that cannot be reached; they stay failed
// in the result.
func (p *prepared) dropLost(found []facts.Host) error {
	var lost []*engine.Host
	kept := slices.Clone(p.hosts[len(found):]) // those that leave are judged by themselves
	for i, h := range p.hosts[:len(found)] {
		f := p.unfit(h.Name, found[i].Err)
		forgotten := p.request.Forget && p.removes() // else it takes part later
		if f == nil || p.needs(h, found) || forgotten && isHere(h.Host, f.Reason) {
			switch {
			case f != nil && forgotten:
				p.hint(h.Name, f.Reason, notForgotten)
			case f != nil:
				p.offerOff(h, f.Reason)
			}
			kept = append(kept, h)
			continue
		}
		lost = append(lost, h)
		p.lost = append(p.lost, HostFailure{Host: h.Name, Task: "connect", Title: "connect to host", Failure: *f})
		for i, d := range p.findings {
			if d.Host == h.Name { // told, but nothing is refused for it
				p.findings[i].Severity = diag.Warning
			}
		}
	}
	p.hosts = kept
	return closeAll(lost)
}
