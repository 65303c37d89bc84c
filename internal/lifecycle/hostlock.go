package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// beatEvery is well below the 60 s after which a lock counts as stale.
const beatEvery = 10 * time.Second

// lockTime bounds a question about the lock.
const lockTime = 30 * time.Second

// errLockLost is an operation whose cluster another manager works on now.
var errLockLost = errors.New("another manager has taken the cluster lock")

// hostLock is the cluster lock: a record on a majority of the control planes.
type hostLock struct {
	lock    remote.Lock
	holders []holder
	// need is how many of the holders must keep it.
	need int
	log  *slog.Logger
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
	hl := &hostLock{log: p.svc.Log}
	if prepares(p.request.Kind) || len(p.hosts) == 0 { // nobody is touched
		return hl, nil
	}
	manager, err := p.svc.Store.ManagerID()
	if err != nil {
		return nil, err
	}
	candidates, all := p.lockers()
	seen, errs := readLocks(ctx, p.hosts)
	hl.need = all/2 + 1
	who := store.ThisProcess()
	hl.lock = remote.Lock{
		Operation: operation, Manager: manager, Fence: highestFence(seen) + 1,
		By: who.String() + " since " + who.Since.Format("2006-01-02 15:04:05 MST"),
	}
	// One host that is another's is enough: the records that managers go by may
	// have different control planes, and majorities of these nobody in common.
	// Not even the number is raised then: the holder's hosts would refuse it.
	works := func(st remote.LockState) bool {
		return !p.request.BreakLock && st.Held && !st.Stale && st.Holder.Manager != manager
	}
	for _, h := range p.hosts {
		if st := seen[h.Name]; works(st) {
			return nil, p.lockedBy(&st)
		}
	}
	var other *remote.LockState
	for _, c := range candidates {
		if other != nil && works(*other) { // it came first
			break
		}
		state, ok, err := c.take(ctx, hl.lock, p.request.BreakLock)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("locking the cluster on %s: %w", c.name, err))
		case ok:
			hl.holders = append(hl.holders, c)
		default:
			other = &state
		}
	}
	switch {
	case len(hl.holders) >= hl.need && (other == nil || !works(*other)):
		return hl, nil
	case p.request.BreakLock && other == nil && ctx.Err() == nil: // those that answer must do
		hl.need = len(hl.holders)/2 + len(hl.holders)%2
		return hl, nil
	}
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

func (l *hostLock) fence() uint64 { return l.lock.Fence }

// beat renews the lock until the returned function is called, which waits for
// the end of it. If the majority is lost the operation is stopped.
func (l *hostLock) beat(ctx context.Context, stop context.CancelCauseFunc) func() {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if kept, need := l.beatOnce(ctx); kept < need {
				stop(errLockLost)
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// beatOnce answers how many hosts have not said that the lock is another's,
// and how many must not: of those that stay, when some leave. A host that does
// not answer says nothing, and keeps no other waiting: its record ages.
func (l *hostLock) beatOnce(ctx context.Context) (kept, need int) {
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	keeps := make([]bool, len(l.holders))
	var wg sync.WaitGroup
	for i, h := range l.holders {
		wg.Go(func() {
			ok, err := h.conn.Beat(ctx, l.lock)
			keeps[i] = err != nil || ok
		})
	}
	wg.Wait()
	stay := 0
	for i, h := range l.holders {
		if h.leaves {
			continue
		}
		if stay++; keeps[i] {
			kept++
		}
	}
	if stay == len(l.holders) {
		return kept, l.need
	}
	return kept, stay/2 + 1
}

// release frees the lock where it is held. A host that was put back as it was
// has none any more; one that does not answer forgets it within a minute.
func (l *hostLock) release(ctx context.Context) {
	for _, h := range l.holders {
		ctx, cancel := context.WithTimeout(ctx, beatEvery)
		if err := h.conn.ReleaseLock(ctx, l.lock); err != nil {
			l.log.Warn("the cluster lock was not freed; it ends within a minute", "host", h.name, "error", err)
		}
		cancel()
	}
	l.holders = nil
}
