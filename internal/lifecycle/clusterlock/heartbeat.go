package clusterlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// heartbeatInterval is the heartbeat interval, well below the 60 s after which a lock is stale.
	heartbeatInterval = 10 * time.Second
	// maxSilence is how long a majority may be silent: a manager that is disconnected
	// stops before another manager may take the lock. With Request.Restart it may be
	// silent longer. If another manager has then taken the lock on a host that was only
	// disconnected, that host refuses this manager's lower fencing number, and its API
	// server is the one that this manager would use.
	maxSilence = 45 * time.Second
)

// ErrLost means that another manager may work on the cluster now.
var ErrLost = errors.New("the cluster lock is lost")

// heartbeats records the responses of the holders to heartbeats.
type heartbeats struct {
	mu sync.Mutex
	// heard is the time when the latest accepted heartbeat was sent to each holder.
	heard []time.Time
	// taken reports whether a holder has the lock of another manager.
	taken []bool
}

func (p *heartbeats) record(i int, sent time.Time, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil: // no response: the time is not renewed
	case ok:
		p.heard[i], p.taken[i] = sent, false
	default:
		p.taken[i] = true
	}
}

// KeepAlive renews the lock until the returned function is called, which waits for it to end.
// If the majority is lost, or silent for too long, KeepAlive stops the operation. A host that
// does not respond does not delay the others.
func (l *Lock) KeepAlive(ctx context.Context, stop context.CancelCauseFunc) func() {
	ctx, cancel := context.WithCancel(ctx)
	p := &heartbeats{heard: make([]time.Time, len(l.holders)), taken: make([]bool, len(l.holders))}
	var wg sync.WaitGroup
	repeat := func(do func()) {
		wg.Go(func() {
			if err := runEveryInterval(ctx, func() error { do(); return l.checkMajority(p) }); err != nil {
				stop(err)
			}
		})
	}
	for i, h := range l.holders {
		p.heard[i] = time.Now()
		repeat(func() {
			ctx, cancel := context.WithTimeout(ctx, maxSilence)
			defer cancel()
			sent := time.Now()
			ok, err := h.Conn.Beat(ctx, l.lock)
			p.record(i, sent, ok, err)
		})
	}
	repeat(func() {}) // the majority is also checked while all holders are waited for
	return func() { cancel(); wg.Wait() }
}

// runEveryInterval calls do at every heartbeat, until it fails or ctx ends.
func runEveryInterval(ctx context.Context, do func() error) error {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// checkMajority returns an error if the lock is lost on a majority of the holders, or of the
// staying holders if some leave.
func (l *Lock) checkMajority(p *heartbeats) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	stay, kept, heard := 0, 0, 0
	for i, h := range l.holders {
		if h.Leaves {
			continue
		}
		stay++
		if p.taken[i] {
			continue
		}
		kept++
		if time.Since(p.heard[i]) < max(maxSilence, l.silence) {
			heard++
		}
	}
	need := l.need
	if stay < len(l.holders) {
		need = stay/2 + 1
	}
	switch {
	case kept < need:
		return fmt.Errorf("%w: another manager has taken the lock", ErrLost)
	case heard < need:
		return fmt.Errorf("%w: too few control planes have responded for %.0f s, and another manager may take the "+
			"lock; resume when they respond again",
			ErrLost, max(maxSilence, l.silence).Seconds())
	}
	return nil
}
