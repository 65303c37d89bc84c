package lifecycle

import (
	"cmp"
	"errors"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/remote"
)

// needs reports whether the operation cannot continue without host h, which stays in
// the cluster. An operation that removes the cluster needs no host. Every other
// operation needs these hosts:
//   - the first control plane
//   - each host without which a restore, a rescue or a CA rotation cannot continue
//     (behaviour.needs)
//   - each host that other nodes wait for (behaviour.awaits)
//   - every control plane, if no control plane is known to hold the cluster (lacksLeader)
//   - every etcd host, if no etcd host is known to hold the data (lacksEtcdMembers)
func (p *prepared) needs(h *engine.Host, staying []facts.Host) bool {
	return !p.kind.RemovesCluster() &&
		(p.env.IsFirst(h) || p.behaviour.needs(p, h) || p.behaviour.awaits(h) || p.lacksLeader() && h.HasRole(v1alpha1.RoleControlPlane) ||
			p.lacksEtcdMembers(staying) && h.HasRole(v1alpha1.RoleEtcd))
}

// offerRest adds to the hints about unreachable hosts how to change an existing
// cluster without them.
func (p hostChecks) offerRest(staying []facts.Host) {
	if !savedstate.IsCreated(p.recorded) || !p.kind.OffersIgnoreErrors() {
		return
	}
	for i, h := range p.hosts[:len(staying)] {
		var lost *remote.Error
		if !errors.As(staying[i].Err, &lost) || p.needs(h, staying) || slices.Contains(p.nodes, h.Name) {
			if lost != nil {
				p.offerOff(h, string(lost.Reason))
			}
			continue
		}
		p.hint(h.Name, string(lost.Reason), ", or continue without this host for now: --ignore-errors")
	}
}

// hint appends text to the hint of the host's finding with this id.
func (p hostChecks) hint(host, id, more string) {
	for i, d := range p.findings {
		if d.Host == host && d.ID == id {
			p.findings[i].Hint = cmp.Or(d.Hint, "fix the problem") + more
		}
	}
}

// offerOff adds to the hint about a host that other nodes wait for how to remove it.
func (p hostChecks) offerOff(h *engine.Host, id string) {
	if p.behaviour.awaits(h) && !p.env.IsFirst(h) {
		p.hint(h.Name, id, ", or remove the host if it is permanently lost: slipway delete node "+h.Name+" --forget")
	}
}

const notForgotten = " (--forget does not help: this problem is on this machine, not on the host)"

// isHere reports whether the reason why a host cannot be used lies on this machine.
// The host itself may be running.
func isHere(h v1alpha1.Host, reason string) bool {
	switch remote.Reason(reason) {
	case remote.KeyUnreadable, remote.SecretUnreadable, remote.HostKeyUnknown:
		return true
	case remote.SudoFailed:
		return h.Address == "localhost"
	}
	return false
}

// dropLost continues without the hosts that cannot be used. The result lists them as
// failed.
func (p hostChecks) dropLost(found []facts.Host) error {
	var lost []*engine.Host
	kept := slices.Clone(p.hosts[len(found):]) // leaving hosts are checked separately
	for i, h := range p.hosts[:len(found)] {
		f := p.reasonToDrop(h.Name, found[i].Err)
		forgotten := p.request.forget && p.kind.RemovesCluster() // otherwise the host takes part later
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
			if d.Host == h.Name { // reported, but refuses nothing
				p.findings[i].Severity = diag.Warning
			}
		}
	}
	p.hosts = kept
	return closeAll(lost)
}
