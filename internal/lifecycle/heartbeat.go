package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// beatEvery is the heartbeat interval, well below the 60 s after which a lock is stale.
	beatEvery = 10 * time.Second
	// unheardFor is how long a majority may be silent: a manager that is disconnected
	// stops before another manager may take the lock.
	unheardFor = 45 * time.Second
)

// errLockLost means that another manager may work on the cluster now.
var errLockLost = errors.New("the cluster lock is lost")

// pulse records the responses of the holders to heartbeats.
type pulse struct {
	mu sync.Mutex
	// heard is the time when the latest accepted heartbeat was sent to each holder.
	heard []time.Time
	// taken reports whether a holder has the lock of another manager.
	taken []bool
}

func (p *pulse) note(i int, sent time.Time, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil: // no response: heard is not renewed
	case ok:
		p.heard[i], p.taken[i] = sent, false
	default:
		p.taken[i] = true
	}
}

// beat renews the lock until the returned function is called, which waits for it to end.
// If the majority is lost, or silent for too long, beat stops the operation. A host that
// does not respond does not delay the others.
func (l *hostLock) beat(ctx context.Context, stop context.CancelCauseFunc) func() {
	ctx, cancel := context.WithCancel(ctx)
	p := &pulse{heard: make([]time.Time, len(l.holders)), taken: make([]bool, len(l.holders))}
	var wg sync.WaitGroup
	each := func(do func()) {
		wg.Go(func() {
			if err := eachBeat(ctx, func() error { do(); return l.judge(p) }); err != nil {
				stop(err)
			}
		})
	}
	for i, h := range l.holders {
		p.heard[i] = time.Now()
		each(func() {
			ctx, cancel := context.WithTimeout(ctx, unheardFor)
			defer cancel()
			sent := time.Now()
			ok, err := h.conn.Beat(ctx, l.lock)
			p.note(i, sent, ok, err)
		})
	}
	each(func() {}) // judge also runs while all holders are waited for
	return func() { cancel(); wg.Wait() }
}

// eachBeat calls do at every heartbeat, until it fails or ctx ends.
func eachBeat(ctx context.Context, do func() error) error {
	tick := time.NewTicker(beatEvery)
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

// judge returns an error if the lock is lost on a majority of the holders, or of the
// staying holders if some leave.
func (l *hostLock) judge(p *pulse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	stay, kept, heard := 0, 0, 0
	for i, h := range l.holders {
		if h.leaves {
			continue
		}
		stay++
		if p.taken[i] {
			continue
		}
		kept++
		if time.Since(p.heard[i]) < unheardFor {
			heard++
		}
	}
	need := l.need
	if stay < len(l.holders) {
		need = stay/2 + 1
	}
	switch {
	case kept < need:
		return fmt.Errorf("%w: another manager has taken the lock", errLockLost)
	case heard < need:
		return fmt.Errorf("%w: too few control planes have responded for %.0f s, and another manager may take the "+
			"lock; resume when they respond again",
			errLockLost, unheardFor.Seconds())
	}
	return nil
}
