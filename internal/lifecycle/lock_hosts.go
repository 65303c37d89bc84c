package lifecycle

import (
	"context"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// hostLocks takes the lock of a cluster on its hosts.
type hostLocks struct{ *prepared }

// lockHosts takes the cluster lock. Operations that only prepare hosts take no lock, nor
// does the force-removal of a cluster without a reachable host.
func (p hostLocks) lockHosts(ctx context.Context, operation string) (*clusterlock.Lock, error) {
	if p.kind.PreparesHosts() || len(p.hosts) == 0 { // no host is touched
		return &clusterlock.Lock{}, nil
	}
	return clusterlock.Take(ctx, p.newRequest(operation, p.hosts))
}

// refuseOtherManager returns an error if another manager has taken the cluster: findings of its hosts are then its work.
// Planning leaves nothing on a host without a ledger, so such a host is not asked.
func (p hostLocks) refuseOtherManager(ctx context.Context) error {
	if p.kind.PreparesHosts() || !savedstate.IsCreated(p.recorded) {
		return nil
	}
	managed := slices.DeleteFunc(slices.Clone(p.hosts), func(h *engine.Host) bool { return h.Facts == nil || !h.Facts.Ledger })
	return clusterlock.CheckManager(ctx, p.newRequest("", managed))
}

// refuseDuringDelete returns an error if a removal of the cluster is unfinished: it has removed data of hosts.
func (p *prepared) refuseDuringDelete(ctx context.Context) error {
	if p.kind.RemovesCluster() {
		return nil
	}
	return p.svc.past.RefuseDuringDelete(ctx, p.env.Cluster.Name)
}

// newRequest returns the request for the lock, which is read on these hosts.
func (p hostLocks) newRequest(operation string, hosts []*engine.Host) clusterlock.Request {
	r := clusterlock.Request{
		Cluster: p.env.Cluster.Name, Operation: operation, Break: p.request.BreakLock, Records: p.svc.Records, Log: p.svc.Log,
		Restart: p.reconnect, Server: p.svc.Server, TakeOver: p.request.TakeOver,
	}
	r.Keepers, r.AllKeepers = p.lockKeepers()
	for _, h := range hosts {
		wasReset := !p.env.IsStaying(h) && h.Facts != nil && !h.Facts.Ledger
		r.Hosts = append(r.Hosts, clusterlock.Host{Name: h.Name, Conn: h.Conn, WasReset: wasReset})
	}
	return r
}

// lockedCluster returns the description whose control planes keep the lock: the running
// cluster, so that a manager that adds control planes uses control planes that all managers
// know. It includes leaving control planes until they have left.
func (p hostLocks) lockedCluster() *v1alpha1.Cluster {
	if savedstate.IsCreated(p.recorded) {
		return p.recorded
	}
	return p.env.WithLeaving()
}

// lockKeepers returns the reachable control planes, and the number of all of them. A leaving
// control plane that the resumed operation has already reset does not count: a lock on
// it would never be removed.
func (p hostLocks) lockKeepers() (reachable []clusterlock.Keeper, all int) {
	for _, cp := range spec.HostsWithRole(p.lockedCluster(), v1alpha1.RoleControlPlane) {
		i := slices.IndexFunc(p.hosts, func(h *engine.Host) bool { return h.Name == cp.Name })
		if i >= 0 && p.env.IsReset(p.hosts[i]) && p.hosts[i].Facts != nil && !p.hosts[i].Facts.Ledger {
			continue
		}
		if p.isLost(cp.Name) || p.isGivenUp(cp.Name) { // a lost host holds no lock
			continue
		}
		all++
		if i < 0 {
			continue
		}
		leaves := p.env.IsLeaving(p.hosts[i])
		if l, ok := p.hosts[i].Conn.(remote.Locker); ok && (!leaves || p.env.IsReset(p.hosts[i])) {
			reachable = append(reachable, clusterlock.Keeper{Name: cp.Name, Conn: l, Leaves: leaves})
		}
	}
	return reachable, all
}

// isGivenUp reports whether a leaving host is permanently lost.
func (p hostLocks) isGivenUp(name string) bool {
	return slices.ContainsFunc(p.env.Leaving, func(l module.LeavingHost) bool { return l.Name == name && l.IsLost })
}
