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
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// lockTime bounds a question about the lock.
const lockTime = 30 * time.Second

// hostLock is the cluster lock: a record on a majority of the control planes.
type hostLock struct {
	lock    remote.Lock
	holders []holder
	// need is how many of the holders must keep it.
	need int
	log  *slog.Logger
	// over is the process whose lock may be taken over at once, by host: it was one of
	// this manager's, and has ended.
	over map[string]string
	// freed is called when no host has the lock any more.
	freed func() error
}

type holder struct {
	name string
	conn remote.Locker
	// leaves says that the host is put back in the course of the operation,
	// and has no lock then.
	leaves bool
}

// lockHosts takes the cluster lock. Preparing hosts alone takes none, and
// neither does forgetting a cluster of which no host answers. A
// control plane that does not answer counts as one that has not got it.
func (p *prepared) lockHosts(ctx context.Context, operation string) (*hostLock, error) {
	if prepares(p.request.Kind) || len(p.hosts) == 0 { // nobody is touched
		return &hostLock{log: p.svc.Log}, nil
	}
	candidates, all := p.lockers()
	seen, errs := readLocks(ctx, p.hosts)
	hl, ours, err := p.newHostLock(operation, seen)
	if err != nil {
		return nil, err
	}
	hl.need = all/2 + 1
	// One host that is another's is enough: the records that managers go by may
	// have different control planes, and majorities of these nobody in common.
	// Not even the number is raised then: the holder's hosts would refuse it.
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
		if other != nil && works(*other) { // it came first
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
	if len(hl.holders) < hl.need && p.request.BreakLock && other == nil && ctx.Err() == nil { // those that answer must do
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
		return nil, refused(idNoLockMajority, "too few control planes answer to lock the cluster", "bring them back, or use --break-lock if you are sure that nobody else works on it")
	}
	return nil, p.lockedBy(other)
}

// newHostLock is the lock to be taken where seen was read, and tells which holders are
// processes of this manager that have ended.
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
	// Copies of the records have our manager id: of its processes, only those are ours
	// that these records remember. Locks of earlier versions do not say whose they are.
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

// displace has the other hosts that answer refuse whoever had the lock before: a
// manager that is cut off from the control planes may be at work on them.
func (p *prepared) displace(ctx context.Context, hl *hostLock, seen map[string]remote.LockState) {
	held := slices.ContainsFunc(slices.Collect(maps.Values(seen)), func(st remote.LockState) bool { return st.Held })
	if !held && !p.request.BreakLock {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(dialAtOnce)
	for _, h := range p.hosts {
		l, ok := h.Conn.(remote.Locker)
		putBack := !p.env.Stays(h) && h.Facts != nil && !h.Facts.Ledger // it is nobody's any more
		if !ok || putBack || slices.ContainsFunc(hl.holders, func(k holder) bool { return k.name == h.Name }) {
			continue
		}
		g.Go(func() error {
			_, ok, err := l.TakeLock(ctx, hl.taking(h.Name), p.request.BreakLock)
			if ok && err == nil { // its number stays
				err = l.ReleaseLock(ctx, hl.lock)
			}
			if err != nil {
				hl.log.Warn("a host has not heard that the cluster lock has changed hands", "host", h.Name, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are told
}

func (p *prepared) lockedBy(other *remote.LockState) error {
	return &LockedError{
		Cluster: p.env.Cluster.Name, Operation: other.Holder.Operation,
		Holder: fmt.Sprintf("%s, last heard of %.0f s ago", cmp.Or(other.Holder.By, "manager "+other.Holder.Manager), other.AgeSeconds), Elsewhere: true,
	}
}

// keepers is the description whose control planes keep the lock: that of the
// cluster as it runs, so that whoever adds some asks those that all know. Those
// that leave are among them until they have left.
func (p *prepared) keepers() *v1alpha1.Cluster {
	if created(p.recorded) {
		return p.recorded
	}
	return p.env.WithLeaving()
}

// lockers are the control planes that answer, and how many there are. One that
// leaves and has been put back by the operation that goes on keeps none: nobody
// would take it away again.
func (p *prepared) lockers() (answer []holder, all int) {
	for _, cp := range spec.HostsWithRole(p.keepers(), v1alpha1.RoleControlPlane) {
		i := slices.IndexFunc(p.hosts, func(h *engine.Host) bool { return h.Name == cp.Name })
		if i >= 0 && p.env.Resets(p.hosts[i]) && p.hosts[i].Facts != nil && !p.hosts[i].Facts.Ledger {
			continue
		}
		if p.isLost(cp.Name) || p.isGivenUp(cp.Name) { // nobody holds anything there
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

// isGivenUp says that a host leaves that is gone for good.
func (p *prepared) isGivenUp(name string) bool {
	return slices.ContainsFunc(p.env.Leaving, func(l module.Leaving) bool { return l.Name == name && l.Gone })
}

func (h holder) take(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	return h.conn.TakeLock(ctx, l, breaking)
}

// readLocks are the locks as the hosts have them, workers' too: they have none,
// but know the highest number.
func readLocks(ctx context.Context, hosts []*engine.Host) (map[string]remote.LockState, []error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	states := make([]remote.LockState, len(hosts))
	failed := make([]error, len(hosts))
	var g errgroup.Group
	g.SetLimit(dialAtOnce)
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

// highestFence is the highest number that any host has seen, workers too:
// they refuse lower ones even when the control planes have forgotten.
func highestFence(seen map[string]remote.LockState) (highest uint64) {
	for _, st := range seen {
		highest = max(highest, st.Highest)
	}
	return highest
}

// taking is the lock as a host is asked for it.
func (l *hostLock) taking(host string) remote.Lock {
	lock := l.lock
	lock.Over = l.over[host]
	return lock
}

func (l *hostLock) fence() uint64 { return l.lock.Fence }

// release frees the lock where it is held. A host that was put back as it was
// has none any more; one that does not answer forgets it within a minute.
func (l *hostLock) release(ctx context.Context) {
	held := false
	for _, h := range l.holders {
		ctx, cancel := context.WithTimeout(ctx, beatEvery)
		if err := h.conn.ReleaseLock(ctx, l.lock); err != nil {
			held = true
			l.log.Warn("the cluster lock was not freed; it ends within a minute", "host", h.name, "error", err)
		}
		cancel()
	}
	l.holders = nil
	if held || l.freed == nil {
		return
	}
	if err := l.freed(); err != nil {
		l.log.Warn("that the cluster lock was freed was not recorded", "error", err)
	}
}
