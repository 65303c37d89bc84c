// Package sharding shares clusters between the processes that run the controllers. Each process renews a Lease, and each
// cluster belongs to one of the processes with a valid Lease. A change of the processes moves only the clusters of the
// processes that came or left.
//
// Processes of two releases run at the same time during an upgrade. Only the processes of the newest release have
// clusters, so that an operation continues in a newer release, and an older one does not take it again.
//
// For some seconds after such a change, two processes can look at the same cluster. The lock of the cluster and its
// fencing number protect it then, as always.
package sharding

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/version"
)

const (
	defaultDuration = 15 * time.Second
	// renewals is the number of renewals in the duration of a Lease.
	renewals = 3
	// remains is the time, in durations, after which the Lease of a process that has ended is deleted.
	remains = 20
)

// A Config configures Members. All fields except Duration are required.
type Config struct {
	Leases coordination.LeaseInterface
	// Group is the name of the processes that share clusters, and the start of the names of their Leases.
	Group string
	// Identity is the name of this process. It is different in each process, and a part of an object name.
	Identity string
	// Release is the version of this process. "" or a text that is not a version counts as the newest release.
	Release string
	// Duration is the time after which a process that does not renew its Lease has ended. Default: 15 s.
	Duration time.Duration
	Log      *slog.Logger
}

// Members are the processes that share clusters, as this process sees them.
type Members struct {
	Config

	mu      sync.Mutex
	changes []func() // see OnChange
	// renewed is the start of the latest renewal of the own Lease, and joined of the first one since the Lease is valid.
	renewed, joined time.Time
	listed          time.Time              // when the other Leases were read
	seen            map[string]observation // by identity
	live            []string               // sorted identities of the newest release, without this process
	isIn            bool                   // this process has a valid Lease
}

// An observation is the latest renewal of a Lease of another process, and the time at which it was seen first, on the
// clock of this process: the clocks of two machines differ.
type observation struct {
	renewed metav1.MicroTime
	at      time.Time
	release string
}

// New returns the members. Start joins them.
func New(c Config) *Members {
	if c.Duration == 0 {
		c.Duration = defaultDuration
	}
	return &Members{Config: c, seen: map[string]observation{}}
}

// OnChange calls f after each change of the members: clusters can belong to another process then.
func (m *Members) OnChange(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, f)
}

// Owns reports whether a cluster belongs to this process. Without a valid Lease, none does.
func (m *Members) Owns(cluster types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isIn || time.Since(m.renewed) >= m.Duration {
		return false
	}
	return Owner(append([]string{m.Identity}, m.live...), cluster) == m.Identity
}

// Owner returns the process to which a cluster belongs, one of identities: the one with the greatest weight for the
// cluster (rendezvous hashing). identities is not empty.
func Owner(identities []string, cluster types.NamespacedName) string {
	return slices.MaxFunc(identities, func(a, b string) int { return bytes.Compare(weigh(a, cluster), weigh(b, cluster)) })
}

func weigh(identity string, cluster types.NamespacedName) []byte {
	sum := sha256.Sum256([]byte(identity + "\x00" + cluster.String()))
	return sum[:]
}

// Start joins the members until ctx ends, and leaves them then.
func (m *Members) Start(ctx context.Context) error {
	tick := time.NewTicker(m.interval())
	defer tick.Stop()
	defer m.leave(ctx)
	for {
		m.refresh(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// interval is the time between two renewals, and between two readings of the other Leases.
func (m *Members) interval() time.Duration { return m.Duration / renewals }

// refresh renews the own Lease, and reads the others.
func (m *Members) refresh(ctx context.Context) {
	trial := time.Now()
	if err := m.limit(ctx, m.renew); err != nil {
		if ctx.Err() == nil {
			m.Log.Warn("the Lease of this process was not renewed", "lease", m.leaseName(m.Identity), "error", err)
		}
	} else {
		m.noteRenewal(trial)
	}
	var list *coordinationv1.LeaseList
	err := m.limit(ctx, func(ctx context.Context) (err error) {
		list, err = m.Leases.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelMembers + "=" + m.Group})
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			m.Log.Warn("the Leases of the other processes were not read", "error", err)
		}
		list = nil
	}
	changes, ended := m.observe(list)
	for _, lease := range ended {
		if err := m.limit(ctx, func(ctx context.Context) error { return m.removeLease(ctx, lease) }); err != nil {
			m.Log.Warn("the Lease of a process that has ended was not deleted", "lease", lease.Name, "error", err)
		}
	}
	for _, f := range changes {
		f()
	}
}

// limit calls f with the time limit of a request.
func (m *Members) limit(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.interval()/2)
	defer cancel()
	return f(ctx)
}

// noteRenewal notes a renewal of the own Lease that began at a time. If the Lease was over in the meantime, the clusters
// belonged to no process: the change that follows makes this process look at them again.
func (m *Members) noteRenewal(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.renewed.IsZero() || time.Since(m.renewed) >= m.Duration {
		m.joined, m.isIn = at, false
	}
	m.renewed = at
}

// leaseName returns the name of the Lease of a process.
func (m *Members) leaseName(identity string) string { return m.Group + "." + identity }

// renew writes the own Lease.
func (m *Members) renew(ctx context.Context) error {
	now := metav1.NowMicro()
	wanted := coordinationv1.LeaseSpec{
		HolderIdentity: &m.Identity, RenewTime: &now, LeaseDurationSeconds: ptr.To(int32(max(1, m.Duration/time.Second))),
	}
	is, err := m.Leases.Get(ctx, m.leaseName(m.Identity), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		wanted.AcquireTime = &now
		_, err = m.Leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: m.leaseName(m.Identity), Labels: map[string]string{v1alpha1.LabelMembers: m.Group},
				Annotations: map[string]string{annotationRelease: m.Release},
			},
			Spec: wanted,
		}, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	}
	wanted.AcquireTime = is.Spec.AcquireTime
	is.Spec = wanted
	if is.Labels == nil {
		is.Labels = map[string]string{}
	}
	if is.Annotations == nil {
		is.Annotations = map[string]string{}
	}
	is.Labels[v1alpha1.LabelMembers], is.Annotations[annotationRelease] = m.Group, m.Release // a user can have removed them
	_, err = m.Leases.Update(ctx, is, metav1.UpdateOptions{})
	return err
}

// observe compares the Leases with the observation before. list is nil if they were not read. It returns what to call
// after a change of the members, and the Leases of processes that have ended long ago.
func (m *Members) observe(list *coordinationv1.LeaseList) (changes []func(), ended []*coordinationv1.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if list != nil {
		seen := map[string]observation{}
		for i := range list.Items {
			lease := &list.Items[i]
			identity := ptr.Deref(lease.Spec.HolderIdentity, "")
			if identity == "" || identity == m.Identity || lease.Name != m.leaseName(identity) {
				continue
			}
			is, known := m.seen[identity]
			renewed := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
			switch {
			case !known && now.Sub(renewed.Time) > remains*m.Duration:
				is = observation{renewed: renewed, at: now.Add(-m.Duration)} // of a process that has ended long ago, unless it is renewed
			case !known || !is.renewed.Equal(&renewed):
				is = observation{renewed: renewed, at: now}
			}
			is.release = lease.Annotations[annotationRelease]
			seen[identity] = is
			if now.Sub(is.at) > remains*m.Duration {
				ended = append(ended, lease)
			}
		}
		m.seen, m.listed = seen, now
	}
	live, isNewest := m.findNewest(now)
	isIn := isNewest && !m.renewed.IsZero() && now.Sub(m.renewed) < m.Duration
	if m.listed.IsZero() || now.Sub(m.listed) >= m.Duration {
		isIn = false // the others are not known
	}
	if now.Sub(m.joined) < m.interval() {
		isIn = false // the others have not seen the own Lease yet, and some that start now are not seen
	}
	if isIn != m.isIn || !slices.Equal(live, m.live) {
		changes = slices.Clone(m.changes)
		m.Log.Info("the processes that share the clusters have changed", "this", m.Identity, "isMember", isIn, "others", live)
	}
	m.isIn, m.live = isIn, live
	return changes, ended
}

// annotationRelease has the release of the process of a Lease.
const annotationRelease = v1alpha1.Group + "/release"

// findNewest returns the other processes of the newest release that run, and reports whether this process has it too. The
// caller holds mu.
func (m *Members) findNewest(now time.Time) (live []string, isNewest bool) {
	releases := []string{m.Release}
	for _, is := range m.seen {
		if now.Sub(is.at) < m.Duration {
			releases = append(releases, is.release)
		}
	}
	isOlder := func(release string) bool {
		return slices.ContainsFunc(releases, func(other string) bool { return version.IsEarlier(release, other) })
	}
	for identity, is := range m.seen {
		if now.Sub(is.at) < m.Duration && !isOlder(is.release) {
			live = append(live, identity)
		}
	}
	slices.Sort(live)
	return live, !isOlder(m.Release)
}

// removeLease deletes the Lease of a process that has ended, unless it has come back.
func (m *Members) removeLease(ctx context.Context, lease *coordinationv1.Lease) error {
	err := m.Leases.Delete(ctx, lease.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// leave deletes the own Lease, so that the other processes take the clusters at once.
func (m *Members) leave(ctx context.Context) {
	m.mu.Lock()
	m.isIn = false
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.interval())
	defer cancel()
	if err := m.Leases.Delete(ctx, m.leaseName(m.Identity), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		m.Log.Warn(fmt.Sprintf("the Lease of this process was not deleted; it ends after %s", m.Duration), "error", err)
	}
}
