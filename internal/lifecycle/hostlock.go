package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// lockTime limits a request about the lock.
const lockTime = 30 * time.Second

// hostLock is the cluster lock, which is kept on a majority of the control planes.
type hostLock struct {
	lock    remote.Lock
	holders []holder
	// need is how many of the holders must keep it.
	need int
	log  *slog.Logger
	// over maps a host to the process whose lock may be taken over immediately: an ended
	// process of this manager.
	over map[string]string
	// freed is called when no host has the lock any longer.
	freed func() error
}

type holder struct {
	name string
	conn remote.Locker
	// leaves reports whether the operation resets the host, which then has no lock.
	leaves bool
}

// lockHosts takes the cluster lock. Operations that only prepare hosts take no lock, nor
// does the force-removal of a cluster without a reachable host. An unreachable control
// plane counts as one without the lock.
func (p *prepared) lockHosts(ctx context.Context, operation string) (*hostLock, error) {
	if prepares(p.request.Kind) || len(p.hosts) == 0 { // no host is touched
		return &hostLock{log: p.svc.Log}, nil
	}
	candidates, all := p.lockers()
	seen, errs := readLocks(ctx, p.hosts)
	hl, ours, err := p.newHostLock(operation, seen)
	if err != nil {
		return nil, err
	}
	hl.need = all/2 + 1
	// One host that is locked by another manager is enough to stop: two managers may
	// know different control planes, and the majorities of these may have no host in
	// common. Then the fence number must not be raised either, because the hosts would
	// refuse the other manager's operation.
	works := func(st remote.LockState) bool {
		return !p.request.BreakLock && st.Held && !st.Stale && !ours(st.Holder)
	}
	for _, h := range p.hosts {
		if st := seen[h.Name]; works(st) {
			return nil, p.lockedBy(&st)
		}
	}
	if hl.lock.Process, err = p.svc.Store.BeginHold(p.env.Cluster.Name); err != nil {
		return nil, err
	}
	var other *remote.LockState
	for _, c := range candidates {
		if other != nil && works(*other) { // the other manager was faster
			break
		}
		state, ok, err := c.take(ctx, hl.taking(c.name), p.request.BreakLock)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("locking the cluster on %s: %w", c.name, err))
		case ok:
			hl.holders = append(hl.holders, c)
		default:
			other = &state
		}
	}
	if len(hl.holders) < hl.need && p.request.BreakLock && other == nil && ctx.Err() == nil { // the reachable control planes must be enough
		hl.need = len(hl.holders)/2 + len(hl.holders)%2
	}
	if len(hl.holders) >= hl.need && (other == nil || !works(*other)) {
		p.displace(ctx, hl, seen)
		return hl, nil
	}
	// Hosts that were not reached may still have locks of processes that crashed.
	hl.freed = func() error { return p.svc.Store.EndHold(p.env.Cluster.Name, hl.lock.Process) }
	hl.release(context.WithoutCancel(ctx))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case other == nil && len(errs) > 0:
		return nil, errors.Join(errs...)
	case other == nil:
		return nil, refused(idNoLockMajority, "too few control planes are reachable to lock the cluster",
			"make more control planes reachable, or use --break-lock if you are sure that no other manager works on the cluster")
	}
	return nil, p.lockedBy(other)
}

// newHostLock returns the lock to take on the hosts whose locks were read into seen. ours
// reports whether a holder is an ended process of this manager.
func (p *prepared) newHostLock(operation string, seen map[string]remote.LockState) (hl *hostLock, ours func(remote.Lock) bool, err error) {
	manager, err := p.svc.Store.ManagerID()
	if err != nil {
		return nil, nil, err
	}
	cluster := p.env.Cluster.Name
	before, err := p.svc.Store.Holds(cluster)
	if err != nil {
		return nil, nil, err
	}
	// A copy of the state directory has our manager id too, so a process counts as ours
	// only if this state directory knows it. Locks of earlier versions name no process.
	ours = func(l remote.Lock) bool {
		return l.Manager == manager && (l.Process == "" || slices.Contains(before, l.Process))
	}
	hl = &hostLock{log: p.svc.Log, over: map[string]string{}, freed: func() error { return p.svc.Store.EndHold(cluster) }}
	for name, st := range seen {
		if st.Held && ours(st.Holder) {
			hl.over[name] = st.Holder.Process
		}
	}
	who := store.ThisProcess()
	hl.lock = remote.Lock{
		Operation: operation, Manager: manager, Fence: highestFence(seen) + 1,
		By: who.String() + " since " + who.Since.Format("2006-01-02 15:04:05 MST"),
	}
	return hl, ours, nil
}

// displace makes the other reachable hosts refuse the previous holder of the lock: a
// manager without a connection to the control planes may still work on these hosts.
func (p *prepared) displace(ctx context.Context, hl *hostLock, seen map[string]remote.LockState) {
	held := slices.ContainsFunc(slices.Collect(maps.Values(seen)), func(st remote.LockState) bool { return st.Held })
	if !held && !p.request.BreakLock {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(hostconn.MaxParallel)
	for _, h := range p.hosts {
		l, ok := h.Conn.(remote.Locker)
		putBack := !p.env.Stays(h) && h.Facts != nil && !h.Facts.Ledger // the host was reset
		if !ok || putBack || slices.ContainsFunc(hl.holders, func(k holder) bool { return k.name == h.Name }) {
			continue
		}
		g.Go(func() error {
			_, ok, err := l.TakeLock(ctx, hl.taking(h.Name), p.request.BreakLock)
			if ok && err == nil { // the host keeps the fence number
				err = l.ReleaseLock(ctx, hl.lock)
			}
			if err != nil {
				hl.log.Warn("a host was not informed about the new holder of the cluster lock", "host", h.Name, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are logged
}

func (p *prepared) lockedBy(other *remote.LockState) error {
	return &LockedError{
		Cluster: p.env.Cluster.Name, Operation: other.Holder.Operation,
		Holder:    fmt.Sprintf("%s, last heartbeat %.0f s ago", cmp.Or(other.Holder.By, "manager "+other.Holder.Manager), other.AgeSeconds),
		Elsewhere: true,
	}
}

// keepers returns the description whose control planes keep the lock: the running
// cluster, so that a manager that adds control planes uses those that all managers know.
// It includes leaving control planes until they have left.
func (p *prepared) keepers() *v1alpha1.Cluster {
	if created(p.recorded) {
		return p.recorded
	}
	return p.env.WithLeaving()
}

// lockers returns the reachable control planes, and the number of all of them. A leaving
// control plane that the resumed operation has already reset does not count: a lock on
// it would never be removed.
func (p *prepared) lockers() (answer []holder, all int) {
	for _, cp := range spec.HostsWithRole(p.keepers(), v1alpha1.RoleControlPlane) {
		i := slices.IndexFunc(p.hosts, func(h *engine.Host) bool { return h.Name == cp.Name })
		if i >= 0 && p.env.Resets(p.hosts[i]) && p.hosts[i].Facts != nil && !p.hosts[i].Facts.Ledger {
			continue
		}
		if p.isLost(cp.Name) || p.isGivenUp(cp.Name) { // a lost host holds no lock
			continue
		}
		all++
		if i < 0 {
			continue
		}
		leaves := p.env.Leaves(p.hosts[i])
		if l, ok := p.hosts[i].Conn.(remote.Locker); ok && (!leaves || p.env.Resets(p.hosts[i])) {
			answer = append(answer, holder{name: cp.Name, conn: l, leaves: leaves})
		}
	}
	return answer, all
}

// isGivenUp reports whether a leaving host is permanently lost.
func (p *prepared) isGivenUp(name string) bool {
	return slices.ContainsFunc(p.env.Leaving, func(l module.Leaving) bool { return l.Name == name && l.Gone })
}

func (h holder) take(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	return h.conn.TakeLock(ctx, l, breaking)
}

// readLocks returns the lock states of all hosts, including workers, which have no lock
// but know the highest fence number.
func readLocks(ctx context.Context, hosts []*engine.Host) (map[string]remote.LockState, []error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	states := make([]remote.LockState, len(hosts))
	failed := make([]error, len(hosts))
	var g errgroup.Group
	g.SetLimit(hostconn.MaxParallel)
	for i, h := range hosts {
		l, ok := h.Conn.(remote.Locker)
		if !ok {
			continue
		}
		g.Go(func() error {
			var err error
			if states[i], err = l.ReadLock(ctx); err != nil {
				failed[i] = fmt.Errorf("reading the cluster lock on %s: %w", h.Name, err)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	seen := map[string]remote.LockState{}
	for i, h := range hosts {
		if failed[i] == nil {
			seen[h.Name] = states[i]
		}
	}
	return seen, slices.DeleteFunc(failed, func(err error) bool { return err == nil })
}

// highestFence returns the highest fence number that any host has seen. Workers count
// too: they refuse lower numbers even if the control planes have lost theirs.
func highestFence(seen map[string]remote.LockState) (highest uint64) {
	for _, st := range seen {
		highest = max(highest, st.Highest)
	}
	return highest
}

// taking returns the lock to request from a host.
func (l *hostLock) taking(host string) remote.Lock {
	lock := l.lock
	lock.Over = l.over[host]
	return lock
}

func (l *hostLock) fence() uint64 { return l.lock.Fence }

// release releases the lock on all holders. A host that was reset no longer has it, and
// on a host that does not respond it expires within a minute.
func (l *hostLock) release(ctx context.Context) {
	held := false
	for _, h := range l.holders {
		ctx, cancel := context.WithTimeout(ctx, beatEvery)
		if err := h.conn.ReleaseLock(ctx, l.lock); err != nil {
			held = true
			l.log.Warn("the cluster lock was not released; it expires within a minute", "host", h.name, "error", err)
		}
		cancel()
	}
	l.holders = nil
	if held || l.freed == nil {
		return
	}
	if err := l.freed(); err != nil {
		l.log.Warn("the release of the cluster lock was not saved", "error", err)
	}
}
