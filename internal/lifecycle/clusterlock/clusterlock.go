// Package clusterlock takes the lock of a cluster, which is kept on a majority of its control
// planes, and renews it with heartbeats.
package clusterlock

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

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
)

// idNoLockMajority is an error id with an entry in docs/guide/errors.md. It never changes.
const idNoLockMajority = "no-lock-majority"

// idOtherManager is the id of the refusal of a cluster that another manager manages.
const idOtherManager = "other-manager"

// requestTime limits a request about the lock.
const requestTime = 30 * time.Second

// A LockedError is returned if another operation is running on the cluster.
type LockedError struct {
	Cluster   string
	Operation string
	Holder    string // process or manager, for users
	// Elsewhere reports whether another manager runs the operation.
	Elsewhere bool
}

func (e *LockedError) Error() string {
	return "cluster " + e.Cluster + " is locked by operation " + e.Operation + " (" + e.Holder + ")"
}

// A Request describes the lock that an operation needs.
type Request struct {
	Cluster, Operation string
	// Keepers are the reachable control planes that keep the lock. AllKeepers is the number
	// of reachable and unreachable ones: an unreachable control plane counts as one without
	// the lock.
	Keepers    []Keeper
	AllKeepers int
	// Hosts are all reachable hosts, including workers.
	Hosts []Host
	// Break takes over a lock whose holder cannot be asked.
	Break bool
	// Server is the address of the management server that asks, "" for the command line. TakeOver takes the cluster
	// from the management server that manages it.
	Server   string
	TakeOver bool
	// Restart is how long a control plane may be silent because the operation restarts it,
	// one at a time; 0 if the operation restarts none.
	Restart time.Duration
	// Records have the id and the processes of this manager.
	Records records.Backend
	Log     *slog.Logger
}

// A Keeper is a control plane that keeps the lock.
type Keeper struct {
	Name string
	Conn remote.Locker
	// Leaves reports whether the operation resets the host, which then has no lock.
	Leaves bool
}

// A Host is a host of the operation.
type Host struct {
	Name string
	Conn remote.Host
	// WasReset reports whether the host was already reset.
	WasReset bool
}

// Lock is a cluster lock that is held. The zero value is the lock of an operation that needs
// none.
type Lock struct {
	lock    remote.Lock
	holders []Keeper
	// need is the number of holders that must keep the lock.
	need int
	// silence is how long the holders that are needed may be silent; 0 means maxSilence.
	silence time.Duration
	log     *slog.Logger
	// replaced maps a host to the process whose lock may be taken over immediately: an ended
	// process of this manager.
	replaced map[string]string
	// released is called when no host has the lock any longer.
	released func(context.Context) error
}

// Take takes the lock. It returns a *LockedError if another operation has it.
func Take(ctx context.Context, r Request) (*Lock, error) {
	seen, errs := readLocks(ctx, r.Hosts)
	l, isOurs, err := newLock(ctx, r, seen)
	if err != nil {
		return nil, err
	}
	l.need = r.AllKeepers/2 + 1
	if r.AllKeepers-1 < l.need { // one control plane or two: none can be restarted without a loss of the majority
		l.silence = r.Restart
	}
	if err := r.checkManager(managerOf(r.Keepers, seen), l.lock.Manager); err != nil {
		return nil, err
	}
	// One host that is locked by another manager is enough to stop: two managers may
	// know different control planes, and the majorities of these may have no host in
	// common. Then the fence number must not be raised either, because the hosts would
	// refuse the other manager's operation.
	isActive := func(st remote.LockState) bool {
		return !r.Break && st.Held && !st.Stale && !isOurs(st.Holder)
	}
	for _, h := range r.Hosts {
		if st := seen[h.Name]; isActive(st) {
			return nil, r.lockedError(&st)
		}
	}
	if l.lock.Process, err = r.Records.Locks().BeginHold(ctx, r.Cluster); err != nil {
		return nil, err
	}
	var other *remote.LockState
	for _, c := range r.Keepers {
		if other != nil && isActive(*other) { // the other manager was faster
			break
		}
		state, ok, err := c.take(ctx, l.lockFor(c.Name), r.Break)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("locking the cluster on %s: %w", c.Name, err))
		case ok:
			l.holders = append(l.holders, c)
		default:
			other = &state
		}
	}
	if len(l.holders) < l.need && r.Break && other == nil && ctx.Err() == nil { // the reachable control planes must be enough
		l.need = len(l.holders)/2 + len(l.holders)%2
	}
	if len(l.holders) >= l.need && (other == nil || !isActive(*other)) {
		r.displace(ctx, l, seen)
		r.saveManager(ctx, l, seen)
		return l, nil
	}
	// Hosts that were not reached may still have locks of processes that crashed.
	l.released = func(ctx context.Context) error { return r.Records.Locks().EndHold(ctx, r.Cluster, l.lock.Process) }
	l.Release(context.WithoutCancel(ctx))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case other == nil && len(errs) > 0:
		return nil, errors.Join(errs...)
	case other == nil:
		return nil, RefuseMinority(
			"make more control planes reachable, or use --break-lock if you are sure that no other manager works on the cluster")
	}
	return nil, r.lockedError(other)
}

// RefuseMinority returns the error if less than a majority of the control planes is reachable.
func RefuseMinority(hint string) error {
	return diag.Refuse(idNoLockMajority, "too few control planes are reachable to lock the cluster", hint)
}

// CheckManager returns an error if another manager manages the cluster. Hosts that do not respond do not count.
func CheckManager(ctx context.Context, r Request) error {
	id, err := r.Records.ManagerID(ctx)
	if err != nil {
		return err
	}
	seen, _ := readLocks(ctx, r.Hosts)
	return r.checkManager(managerOf(r.Keepers, seen), id)
}

// managerOf returns the manager of the cluster between operations, an empty one if it has none. A control plane that was
// not reachable when another manager took the cluster over has a manager with a lower number.
func managerOf(keepers []Keeper, seen map[string]remote.LockState) (is remote.Manager) {
	for _, k := range keepers {
		if m := seen[k.Name].Manager; m.Fence > is.Fence {
			is = m
		}
	}
	return is
}

// checkManager returns an error if another manager than the one with an id manages the cluster.
func (r Request) checkManager(is remote.Manager, id string) error {
	if r.TakeOver || is.ID == "" || is.ID == id {
		return nil
	}
	hint := "change the cluster there"
	message := "a command line with other records manages cluster " + r.Cluster
	if is.Server != "" {
		hint = "change the Cluster there, with kubectl"
		message = "the management server " + is.Server + " manages cluster " + r.Cluster
	}
	if r.Server != "" {
		hint += "; to manage it with this server, request an operation with the parameter takeOver"
	} else {
		hint += "; to manage it from here, use --take-over"
	}
	return diag.Refuse(idOtherManager, message, hint)
}

// saveManager saves this manager as the one of the cluster, with the first heartbeat. Hosts that do not respond now get it
// with a later one.
func (r Request) saveManager(ctx context.Context, l *Lock, seen map[string]remote.LockState) {
	was := managerOf(r.Keepers, seen)
	if r.Server == "" && was.ID == "" || was.ID == l.lock.Manager && was.Server == r.Server {
		return
	}
	for _, k := range l.holders {
		ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
		if _, err := k.Conn.Beat(ctx, l.lock); err != nil {
			l.log.Warn("the manager of the cluster was not saved on a host yet", "host", k.Name, "error", err)
		}
		cancel()
	}
}

// newLock returns the lock to take on the hosts whose locks were read into seen. isOurs
// reports whether a holder is an ended process of this manager.
func newLock(ctx context.Context, r Request, seen map[string]remote.LockState) (l *Lock, isOurs func(remote.Lock) bool, err error) {
	manager, err := r.Records.ManagerID(ctx)
	if err != nil {
		return nil, nil, err
	}
	before, err := r.Records.Locks().ListUnreleased(ctx, r.Cluster)
	if err != nil {
		return nil, nil, err
	}
	// A copy of the state directory has our manager id too, so a process counts as ours
	// only if this state directory knows it. Locks of earlier versions name no process.
	isOurs = func(other remote.Lock) bool {
		return other.Manager == manager && (other.Process == "" || slices.Contains(before, other.Process))
	}
	l = &Lock{log: r.Log, replaced: map[string]string{}}
	l.released = func(ctx context.Context) error { return r.Records.Locks().EndHold(ctx, r.Cluster) }
	for name, st := range seen {
		if st.Held && isOurs(st.Holder) {
			l.replaced[name] = st.Holder.Process
		}
	}
	who := records.ThisProcess()
	by := who.String()
	if r.Server != "" {
		by = "management server " + r.Server + ", " + by
	}
	l.lock = remote.Lock{
		Operation: r.Operation, Manager: manager, Fence: highestFence(seen) + 1, Server: r.Server,
		By: by + " since " + who.Since.Format("2006-01-02 15:04:05 MST"),
	}
	return l, isOurs, nil
}

// displace makes the other reachable hosts refuse the previous holder of the lock: a
// manager without a connection to the control planes may still work on these hosts.
func (r Request) displace(ctx context.Context, l *Lock, seen map[string]remote.LockState) {
	held := slices.ContainsFunc(slices.Collect(maps.Values(seen)), func(st remote.LockState) bool { return st.Held })
	if !held && !r.Break {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(hostconn.MaxParallel)
	for _, h := range r.Hosts {
		conn, ok := h.Conn.(remote.Locker)
		if !ok || h.WasReset || slices.ContainsFunc(l.holders, func(k Keeper) bool { return k.Name == h.Name }) {
			continue
		}
		g.Go(func() error {
			_, ok, err := conn.TakeLock(ctx, l.lockFor(h.Name), r.Break)
			if ok && err == nil { // the host keeps the fence number
				err = conn.ReleaseLock(ctx, l.lock)
			}
			if err != nil {
				l.log.Warn("a host was not informed about the new holder of the cluster lock", "host", h.Name, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are logged
}

func (r Request) lockedError(other *remote.LockState) error {
	return &LockedError{
		Cluster: r.Cluster, Operation: other.Holder.Operation,
		Holder:    fmt.Sprintf("%s, last heartbeat %.0f s ago", cmp.Or(other.Holder.By, "manager "+other.Holder.Manager), other.AgeSeconds),
		Elsewhere: true,
	}
}

func (k Keeper) take(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return k.Conn.TakeLock(ctx, l, breaking)
}

// readLocks returns the lock states of all hosts, including workers, which have no lock
// but know the highest fence number.
func readLocks(ctx context.Context, hosts []Host) (map[string]remote.LockState, []error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
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

// lockFor returns the lock to request from a host.
func (l *Lock) lockFor(host string) remote.Lock {
	lock := l.lock
	lock.Over = l.replaced[host]
	return lock
}

// Fence returns the fence number of the lock.
func (l *Lock) Fence() uint64 { return l.lock.Fence }

// SaveManager saves the holder of the lock as the manager of the cluster, on a majority of the control planes.
func (l *Lock) SaveManager(ctx context.Context) error {
	var errs []error
	saved := 0
	for _, k := range l.holders {
		ctx, cancel := context.WithTimeout(ctx, requestTime)
		ok, err := k.Conn.Beat(ctx, l.lock)
		cancel()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("on %s: %w", k.Name, err))
		case !ok:
			errs = append(errs, fmt.Errorf("on %s: %w", k.Name, ErrLost))
		default:
			saved++
		}
	}
	if saved >= l.need {
		return nil
	}
	return errors.Join(errs...)
}

// Release releases the lock on all holders. A host that was reset no longer has it, and
// on a host that does not respond it expires within a minute.
func (l *Lock) Release(ctx context.Context) {
	held := false
	for _, h := range l.holders {
		ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
		if err := h.Conn.ReleaseLock(ctx, l.lock); err != nil {
			held = true
			l.log.Warn("the cluster lock was not released; it expires within a minute", "host", h.Name, "error", err)
		}
		cancel()
	}
	l.holders = nil
	if held || l.released == nil {
		return
	}
	if err := l.released(ctx); err != nil {
		l.log.Warn("the release of the cluster lock was not saved", "error", err)
	}
}
