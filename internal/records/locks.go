package records

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/process"
)

// Locks are the locks of clusters, and the processes that hold them.
type Locks interface {
	// Acquire takes a cluster's lock, whether the cluster is saved or not. It does not wait for
	// another holder but returns a *HeldError. PID, Host and Since of the holder may be empty.
	Acquire(ctx context.Context, name string, who Holder) (Lock, error)
	// Holder returns the holder of a cluster's lock, nil if it is free.
	Holder(ctx context.Context, name string) (*Holder, error)

	// BeginHold generates a random id for this process as the holder of a cluster's lock on
	// hosts, and saves it before any host gets it.
	BeginHold(ctx context.Context, name string) (process string, err error)
	// EndHold removes processes that BeginHold has saved. Without names it removes all of
	// them: no host has a lock of this manager.
	EndHold(ctx context.Context, name string, processes ...string) error
	// ListUnreleased returns the ids of processes of this manager that have not released a
	// cluster's lock on all hosts. For a caller that has the cluster's Lock, all of them have
	// ended: their locks can be taken over immediately.
	ListUnreleased(ctx context.Context, name string) (processes []string, err error)
}

// A Lock is the permission to change a cluster.
type Lock interface {
	// SetHolder saves the holder of the lock, once the operation has an id.
	SetHolder(ctx context.Context, who Holder) error
	// Holder returns the saved holder of the lock.
	Holder() Holder
	// ID returns what identifies this hold for other programs: the holder in a Lease. It is "" if the backend has
	// no such ID.
	ID() string
	// Check returns ErrLost if the lock is lost. A process that was paused checks before it writes.
	Check(ctx context.Context) error
	// NotifyLost returns a channel that is closed when the lock is lost: another process can take
	// it. The channel is nil if the lock cannot be lost.
	NotifyLost() <-chan struct{}
	// Release releases the lock. Each backend limits its time.
	Release() error
}

// A Holder is the process that holds a cluster's lock.
type Holder struct {
	PID       int       `json:"pid"`
	Start     uint64    `json:"start,omitempty"` // of the process, see package process
	Host      string    `json:"host,omitempty"`  // the machine PID is on
	Operation string    `json:"operation,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Expires is when the lock ends unless the holder renews it, zero if that is not known. IsOverdue reports whether it was
	// not renewed in time: another process can take it soon.
	Expires   time.Time `json:"-"`
	IsOverdue bool      `json:"-"`
}

// ThisProcess returns this process as a Holder.
func ThisProcess() Holder { return Holder{}.WithDefaults() }

// WithDefaults returns the holder with this process and the current time for empty fields.
func (h Holder) WithDefaults() Holder {
	if h.PID == 0 {
		h.PID = os.Getpid()
		if p, err := process.Find(h.PID); err == nil {
			h.Start = p.Start
		}
	}
	if h.Host == "" {
		h.Host, _ = os.Hostname()
	}
	if h.Since.IsZero() {
		h.Since = time.Now().UTC()
	}
	return h
}

// String returns the holder for users: "process 4711 on mgr1".
func (h Holder) String() string {
	if h.PID == 0 {
		return "an unknown process"
	}
	if h.Host == "" {
		return fmt.Sprintf("process %d", h.PID)
	}
	return fmt.Sprintf("process %d on %s", h.PID, h.Host)
}

// IsSameProcess reports whether two holders are the same process.
func (h Holder) IsSameProcess(o Holder) bool {
	return h.PID == o.PID && h.Start == o.Start && h.Host == o.Host
}

// Equal reports whether two holders are the same process with the same operation, since the
// same time.
func (h Holder) Equal(o Holder) bool {
	return h.IsSameProcess(o) && h.Operation == o.Operation && h.Since.Equal(o.Since)
}

// DescribeExecutor returns the holder of a cluster's locks for the status of an operation. fence is the fencing number of
// the lock on the hosts.
func DescribeExecutor(l Lock, fence uint64) *v1alpha1.ExecutorStatus {
	holder := l.Holder()
	return &v1alpha1.ExecutorStatus{
		ID: holder.Host + "/" + strconv.Itoa(holder.PID), Lease: l.ID(), FencingNumber: int64(min(fence, math.MaxInt64)),
	}
}

// A HeldError is returned if another process holds a cluster's lock.
type HeldError struct {
	Cluster string
	Holder  Holder
}

// ErrLost is the cause of a context that ends because the process has lost the cluster's lock.
var ErrLost = errors.New("the lock of the cluster's records is lost: another process can take it")

func (e *HeldError) Error() string {
	return fmt.Sprintf("cluster %s is locked by %s", e.Cluster, e.Holder)
}
