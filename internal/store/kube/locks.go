package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
)

// locks are the locks of clusters: Leases.
type locks struct{ *connection }

// annotationHolder has the holder of a Lease.
const annotationHolder = v1alpha1.Group + "/holder"

// leaseName returns the name of a cluster's Lease.
func leaseName(cluster string) string { return "slipway." + cluster }

// A lease is a lock that is held. It is renewed until it is released or lost.
type lease struct {
	*connection
	name string // of the Lease
	id   string // of this hold

	mu     sync.Mutex
	holder records.Holder

	ctx  context.Context //nolint:containedctx // of work in the background; without cancellation
	lost chan struct{}   // see lose
	stop func()          // ends the renewal, and waits for its end
}

// Acquire takes a cluster's lock. A Lease whose time is over can be taken. The clocks of two machines
// differ, so this process first watches such a Lease for its whole time on its own clock: its holder would
// renew it in that time, or has noticed that the lock is lost. The time since an earlier call counts.
func (s locks) Acquire(ctx context.Context, cluster string, who records.Holder) (records.Lock, error) {
	if err := records.CheckName(cluster); err != nil {
		return nil, fmt.Errorf("locking cluster: %w", err)
	}
	l := &lease{
		connection: s.connection, name: leaseName(cluster), id: randomHex(idBytes), holder: who.WithDefaults(),
		ctx: context.WithoutCancel(ctx), lost: make(chan struct{}), stop: func() {},
	}
	began := readClocks()
	taken, err := l.writeHolder(ctx, requestTime, func(is *coordinationv1.Lease) bool { return isFree(is) || l.isOurs(is) })
	if err == nil && taken != nil { // perhaps its holder has ended
		began, taken, err = l.takeEnded(ctx, taken)
	}
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("locking cluster %s: %w", cluster, err), l.Release()) // a request can have succeeded
	case taken != nil:
		return nil, &records.HeldError{Cluster: cluster, Holder: holderOf(taken)}
	}
	l.keepRenewed(began)
	return l, nil
}

// maxLeaseTime limits the wait for the end of a Lease that another program has written.
const maxLeaseTime = 5 * time.Minute

// takeEnded takes a Lease whose time is over, or ends later than a renewal allows, unless it changes
// while this process waits. It returns the Lease if its holder runs.
func (l *lease) takeEnded(ctx context.Context, seen *coordinationv1.Lease) (began clocks, taken *coordinationv1.Lease, err error) {
	unchanged, whole := l.sightings.note(seen), min(max(lengthOf(seen), l.LeaseTime), maxLeaseTime)
	if left := time.Until(endOf(seen)); left > 0 && left <= lengthOf(seen) && left <= maxLeaseTime {
		return began, seen, nil
	}
	if err := waitFor(ctx, whole-unchanged); err != nil {
		return began, nil, err
	}
	began = readClocks()
	taken, err = l.writeHolder(ctx, requestTime, func(is *coordinationv1.Lease) bool {
		return isFree(is) || l.isOurs(is) || is.UID == seen.UID && is.ResourceVersion == seen.ResourceVersion
	})
	return began, taken, err
}

// writeHolder writes this holder into the Lease if may allows it. Otherwise it returns the Lease. limit
// limits each request.
func (l *lease) writeHolder(
	ctx context.Context, limit time.Duration, may func(is *coordinationv1.Lease) bool,
) (taken *coordinationv1.Lease, err error) {
	leases := l.leases.Leases(l.Namespace)
	err = l.repeatEach(ctx, limit, func(context.Context) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// A request that is cancelled can be executed later, when this process has forgotten it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		taken = nil
		is, err := leases.Get(ctx, l.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			is = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.name}}
			if err := l.fillLease(is); err != nil {
				return err
			}
			_, err = leases.Create(ctx, is, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return apierrors.NewConflict(coordinationv1.Resource("leases"), l.name, err)
			}
			return err
		}
		if err != nil {
			return err
		}
		if !may(is) {
			taken = is
			return nil
		}
		if err := l.fillLease(is); err != nil {
			return err
		}
		_, err = leases.Update(ctx, is, metav1.UpdateOptions{})
		return err
	})
	return taken, err
}

// fillLease writes this holder and the current time into a Lease.
func (l *lease) fillLease(is *coordinationv1.Lease) error {
	l.mu.Lock()
	holder, err := json.Marshal(l.holder)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	now := metav1.NowMicro()
	if !l.isOurs(is) {
		is.Spec.AcquireTime = &now
		is.Spec.LeaseTransitions = ptr.To(ptr.Deref(is.Spec.LeaseTransitions, 0) + 1)
	}
	is.Spec.HolderIdentity, is.Spec.RenewTime = ptr.To(l.id), &now
	is.Spec.LeaseDurationSeconds = ptr.To(int32(max(1, (l.LeaseTime+time.Second-1)/time.Second)))
	if is.Annotations == nil {
		is.Annotations = map[string]string{}
	}
	is.Annotations[annotationHolder] = string(holder)
	return nil
}

func (l *lease) isOurs(is *coordinationv1.Lease) bool {
	return ptr.Deref(is.Spec.HolderIdentity, "") == l.id
}

func isFree(is *coordinationv1.Lease) bool { return ptr.Deref(is.Spec.HolderIdentity, "") == "" }

// lengthOf returns the time of a Lease, which its holder has chosen.
func lengthOf(is *coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(is.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// endOf returns the end of the time of a Lease.
func endOf(is *coordinationv1.Lease) time.Time {
	if is.Spec.RenewTime == nil {
		return time.Time{}
	}
	return is.Spec.RenewTime.Add(lengthOf(is))
}

// holderOf returns the holder in a Lease. Another program can have written it.
func holderOf(is *coordinationv1.Lease) (h records.Holder) {
	_ = json.Unmarshal([]byte(is.Annotations[annotationHolder]), &h) // an unknown holder then
	return h
}

// clocks are a time on the wall clock and on the clock that stands still while the machine is
// suspended.
type clocks struct{ wall, monotonic time.Time }

func readClocks() clocks {
	now := time.Now()
	return clocks{wall: now.Round(0), monotonic: now}
}

// passed returns the time since then: the longer one of both clocks.
func (c clocks) passed() time.Duration {
	now := readClocks()
	return max(now.wall.Sub(c.wall), now.monotonic.Sub(c.monotonic))
}

// keepRenewed renews the Lease three times in its time until stop is called. began is the time of the
// first request. If the Lease cannot be renewed for two thirds of its time, it is lost: another
// process takes it after the whole time. If only the wall clock has run so far, the machine was
// suspended or its clock was set: then one more renewal decides.
func (l *lease) keepRenewed(began clocks) {
	ctx, cancel := context.WithCancel(l.ctx)
	ended := make(chan struct{})
	l.stop = func() {
		cancel()
		<-ended
	}
	go func() { // ends with ctx, or when the Lease is lost
		defer close(ended)
		for renewed := began; waitFor(ctx, l.LeaseTime/12) == nil; {
			if renewed.passed() < l.LeaseTime/3 {
				continue
			}
			trial := readClocks()
			taken, err := l.renewOnce(ctx)
			switch {
			case taken != nil:
			case err == nil:
				renewed = trial
				continue
			case ctx.Err() != nil || renewed.passed() < l.LeaseTime*2/3:
				continue
			}
			l.lose()
			return
		}
	}()
}

// lose marks the lock as lost. A lost lock is not renewed, so it does not become valid again.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isLost() {
		close(l.lost)
	}
}

func (l *lease) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

// renewOnce renews the Lease with one request, which cannot take long. It returns the Lease if another
// process has taken it.
func (l *lease) renewOnce(ctx context.Context) (taken *coordinationv1.Lease, err error) {
	limit := l.LeaseTime / 12
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	return l.writeHolder(ctx, limit, l.isOurs)
}

// SetHolder saves the holder of the lock.
func (l *lease) SetHolder(ctx context.Context, who records.Holder) error {
	l.mu.Lock()
	l.holder = who.WithDefaults()
	l.mu.Unlock()
	return l.Check(ctx)
}

// Check renews the lock, or returns records.ErrLost.
func (l *lease) Check(ctx context.Context) error {
	if l.isLost() {
		return records.ErrLost
	}
	taken, err := l.writeHolder(ctx, requestTime, l.isOurs)
	if err == nil && taken != nil {
		l.lose()
	}
	if err == nil && l.isLost() {
		err = records.ErrLost
	}
	return err
}

// Holder returns the saved holder of the lock.
func (l *lease) Holder() records.Holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// ID returns the holder in the Lease.
func (l *lease) ID() string { return l.id }

// NotifyLost returns a channel that is closed when the lock is lost.
func (l *lease) NotifyLost() <-chan struct{} { return l.lost }

// releaseTime limits the release of a lock. A lock that is not released ends on its own.
const releaseTime = 10 * time.Second

// Release releases the lock.
func (l *lease) Release() error {
	l.stop()
	ctx, cancel := context.WithTimeout(l.ctx, releaseTime)
	defer cancel()
	leases := l.leases.Leases(l.Namespace)
	err := l.repeat(ctx, func(ctx context.Context) error {
		is, err := leases.Get(ctx, l.name, metav1.GetOptions{})
		if err != nil || !l.isOurs(is) {
			return err
		}
		is.Spec.HolderIdentity = nil
		delete(is.Annotations, annotationHolder)
		_, err = leases.Update(ctx, is, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return fmt.Errorf("releasing the lock %s: %w", l.name, err)
	}
	return nil
}

// Holder returns the holder of a cluster's lock, nil if it is free. A Lease counts as free only when
// it is over for its whole time, because the clock of its holder can be behind.
func (s locks) Holder(ctx context.Context, cluster string) (*records.Holder, error) {
	if err := records.CheckName(cluster); err != nil {
		return nil, fmt.Errorf("checking the lock: %w", err)
	}
	var is *coordinationv1.Lease
	err := s.repeat(ctx, func(ctx context.Context) (err error) {
		is, err = s.leases.Leases(s.Namespace).Get(ctx, leaseName(cluster), metav1.GetOptions{})
		return err
	})
	switch {
	case errors.Is(err, records.ErrNotFound):
		s.sightings.forget(leaseName(cluster))
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("checking the lock of cluster %s: %w", cluster, err)
	}
	s.sightings.note(is)
	if isFree(is) || time.Now().After(endOf(is).Add(lengthOf(is))) {
		return nil, nil
	}
	h := holderOf(is)
	h.Expires = endOf(is)
	left := time.Until(h.Expires)
	h.IsOverdue = left < 0 || left > 2*lengthOf(is) // the clock of its holder can be ahead, but not by more than a lock takes
	return &h, nil
}

// mostHolds limits the number of saved processes that ended without releasing a cluster's hosts.
const mostHolds = 16

// ListUnreleased returns the ids of processes that have not released a cluster's lock on all hosts.
func (s locks) ListUnreleased(ctx context.Context, cluster string) (processes []string, err error) {
	if err := records.CheckName(cluster); err != nil {
		return nil, fmt.Errorf("reading the lock holders: %w", err)
	}
	err = contents(s).loadJSON(ctx, clusterContent(cluster, ofHolds), nil, &processes)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, fmt.Errorf("reading the lock holders of cluster %s: %w", cluster, err)
	}
	return processes, nil
}

// BeginHold generates a random id for this process as the holder of a cluster's lock on hosts, and
// saves it before any host gets it.
func (s locks) BeginHold(ctx context.Context, cluster string) (process string, err error) {
	all, err := s.ListUnreleased(ctx, cluster)
	if err != nil {
		return "", err
	}
	process = randomHex(idBytes)
	all = append(all, process)
	return process, s.saveHolds(ctx, cluster, all[max(0, len(all)-mostHolds):])
}

// EndHold removes processes that BeginHold has saved; without names, all of them.
func (s locks) EndHold(ctx context.Context, cluster string, processes ...string) error {
	left, err := s.ListUnreleased(ctx, cluster)
	if err != nil {
		return err
	}
	left = slices.DeleteFunc(left, func(p string) bool { return len(processes) == 0 || slices.Contains(processes, p) })
	return s.saveHolds(ctx, cluster, left)
}

func (s locks) saveHolds(ctx context.Context, cluster string, processes []string) error {
	var text []byte
	if len(processes) > 0 {
		var err error
		if text, err = json.Marshal(processes); err != nil {
			return err
		}
	}
	return s.saveContent(ctx, "saving the lock holders", cluster, ofHolds, text)
}
