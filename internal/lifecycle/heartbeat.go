package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// beatEvery is well below the 60 s after which a lock counts as stale.
	beatEvery = 10 * time.Second
	// unheardFor is how long a majority may say nothing: whoever is cut off has
	// stopped before others may take the lock.
	unheardFor = 45 * time.Second
)

// errLockLost is an operation on whose cluster another manager may work now.
var errLockLost = errors.New("the cluster lock is lost")

// pulse is what holders have answered to heartbeats.
type pulse struct {
	mu sync.Mutex
	// heard is when the latest heartbeat was sent that each has taken.
	heard []time.Time
	// taken says that it has the lock of another.
	taken []bool
}

func (p *pulse) note(i int, sent time.Time, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil: // it says nothing: its record ages
	case ok:
		p.heard[i], p.taken[i] = sent, false
	default:
		p.taken[i] = true
	}
}

// beat renews the lock until the returned function is called, which waits for
// the end of it. If the majority is lost, or silent for too long, the operation is
// stopped. A host that does not answer keeps no other waiting.
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
	each(func() {}) // all of them may be waited for
	return func() { cancel(); wg.Wait() }
}

// eachBeat does something at every heartbeat, until it fails or ctx ends.
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

// judge says why the lock is lost, if it is: to a majority of the holders, or of
// those that stay, when some leave.
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
		return fmt.Errorf("%w: another manager has taken it", errLockLost)
	case heard < need:
		return fmt.Errorf("%w: too few control planes have answered for %.0f s, and another manager may take it; resume when they do", errLockLost, unheardFor.Seconds())
	}
	return nil
}
