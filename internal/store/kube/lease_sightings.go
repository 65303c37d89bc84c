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

// A leaseSighting is a state of a Lease, and when this process has first seen it.
type leaseSighting struct {
	uid     types.UID
	version string
	since   time.Time // with the clock that stands still while the machine is suspended
}

// note notes the state of a Lease that was just read. It returns how long the Lease has not changed.
func (s *leaseSightings) note(is *coordinationv1.Lease) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.seen[is.Name]
	switch {
	case isFree(is):
		delete(s.seen, is.Name)
		return 0
	case ok && was.uid == is.UID && was.version == is.ResourceVersion:
		return time.Since(was.since)
	}
	if s.seen == nil {
		s.seen = map[string]leaseSighting{}
	}
	s.seen[is.Name] = leaseSighting{is.UID, is.ResourceVersion, time.Now()}
	return 0
}
