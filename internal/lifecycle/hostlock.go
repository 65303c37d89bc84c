package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
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
	if p.request.Kind == InitOS || len(p.hosts) == 0 { // nobody is touched
		return hl, nil
	}
	manager, err := p.svc.Store.ManagerID()
	if err != nil {
		return nil, err
	}
	candidates, all := lockers(p.hosts, p.env)
	highest, errs := highestFence(ctx, p.hosts)
	hl.need = all/2 + 1
	hl.lock = remote.Lock{Operation: operation, Manager: manager, Fence: highest + 1}
	var other *remote.LockState
	for _, c := range candidates {
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
	case len(hl.holders) >= hl.need:
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
	return nil, &LockedError{
		Cluster: p.env.Cluster.Name, Operation: other.Holder.Operation,
		Holder: fmt.Sprintf("manager %s, %.0f s ago", other.Holder.Manager, other.AgeSeconds), Elsewhere: true,
	}
}

// lockers are the control planes that answer, and how many there are. Those
// that leave are among them until they have left.
func lockers(hosts []*engine.Host, env module.Env) (answer []holder, all int) {
	for _, h := range env.WithLeaving().Spec.Hosts {
		if spec.HasRole(h, v1alpha1.RoleControlPlane) {
			all++
		}
	}
	for _, h := range hosts {
		leaves := env.Leaves(h)
		if l, ok := h.Conn.(remote.Locker); ok && h.HasRole(v1alpha1.RoleControlPlane) && (!leaves || env.Resets(h)) {
			answer = append(answer, holder{name: h.Name, conn: l, leaves: leaves})
		}
	}
	return answer, all
}

func (h holder) take(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	return h.conn.TakeLock(ctx, l, breaking)
}

// highestFence is the highest number that any host has seen, workers too:
// they refuse lower ones even when the control planes have forgotten.
func highestFence(ctx context.Context, hosts []*engine.Host) (highest uint64, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	seen := make([]remote.LockState, len(hosts))
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
			if seen[i], err = l.ReadLock(ctx); err != nil {
				failed[i] = fmt.Errorf("reading the cluster lock on %s: %w", h.Name, err)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	for i := range hosts {
		highest = max(highest, seen[i].Highest)
		if failed[i] != nil {
			errs = append(errs, failed[i])
		}
	}
	return highest, errs
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
// not answer says nothing: its record ages.
func (l *hostLock) beatOnce(ctx context.Context) (kept, need int) {
	stay := 0
	for _, h := range l.holders {
		ctx, cancel := context.WithTimeout(ctx, beatEvery)
		ok, err := h.conn.Beat(ctx, l.lock)
		cancel()
		if h.leaves {
			continue
		}
		stay++
		if err != nil || ok {
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
