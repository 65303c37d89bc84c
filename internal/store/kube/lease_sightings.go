package kube

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaseSightings are the held Leases that this process has seen, by name. A holder renews its Lease, or notices that the
// lock is lost. So the lock is free if its Lease has not changed for its whole time on the clock of this process.
type leaseSightings struct {
	mu   sync.Mutex
	seen map[string]leaseSighting
}

// A leaseSighting is a state of a Lease, and when this process has first and last seen it. These times are of the clock
// that stands still while the machine is suspended.
type leaseSighting struct {
	uid           types.UID
	version       string
	since, latest time.Time
}

// note notes the state of a Lease that was just read. It returns how long the Lease has not changed. After a long time
// without a look, this time begins again: the database of the API can have been restored meanwhile.
func (s *leaseSightings) note(is *coordinationv1.Lease) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isFree(is) {
		delete(s.seen, is.Name)
		return 0
	}
	now := time.Now()
	was, ok := s.seen[is.Name]
	if !ok || was.uid != is.UID || was.version != is.ResourceVersion || now.Sub(was.latest) > 2*lengthOf(is) {
		was = leaseSighting{uid: is.UID, version: is.ResourceVersion, since: now}
	}
	was.latest = now
	if s.seen == nil {
		s.seen = map[string]leaseSighting{}
	}
	s.seen[is.Name] = was
	return now.Sub(was.since)
}

// forget forgets a Lease that does not exist.
func (s *leaseSightings) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, name)
}
