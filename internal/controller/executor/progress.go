package executor

import (
	"context"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/status"
)

// progressInterval is the time between two writes of the status of a running operation.
const progressInterval = 2 * time.Second

// A progress shows the progress of a running operation in its status.
type progress struct {
	run *run

	mu      sync.Mutex
	reducer status.Reducer
	changed bool

	end     sync.Once
	ended   chan struct{}
	running sync.WaitGroup
}

// newProgress returns a sink that writes the status until it is stopped.
func (n *run) newProgress() *progress { return &progress{run: n, ended: make(chan struct{})} }

// Emit processes an event. Package lifecycle saves the status after the last event, so the writes have ended
// then.
func (p *progress) Emit(e event.Event) {
	p.mu.Lock()
	p.reducer.Emit(e)
	p.changed = true
	p.mu.Unlock()
	switch e.Type {
	case event.OperationStarted:
		p.running.Go(p.writeRegularly)
	case event.OperationFinished:
		p.stopWrites()
	}
}

// stopWrites ends the writes, and waits until the last one has ended.
func (p *progress) stopWrites() {
	p.end.Do(func() { close(p.ended) })
	p.running.Wait()
}

// writeRegularly writes the status from time to time.
func (p *progress) writeRegularly() {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			return
		case <-tick.C:
		}
		if err := p.saveStatus(context.WithoutCancel(p.run.ctx)); err != nil {
			p.run.Log.Warn("the progress of an operation was not saved", "operation", p.run.key, "error", err)
		}
	}
}

// saveStatus saves the status of a running operation if it has changed.
func (p *progress) saveStatus(ctx context.Context) error {
	p.mu.Lock()
	is, changed := p.reducer.Status(), p.changed
	p.changed = false
	p.mu.Unlock()
	if !changed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, progressInterval)
	defer cancel()
	return p.run.update(ctx, func(now *v1alpha1.Operation) bool {
		was := now.Status
		if was.State != v1alpha1.OperationRunning {
			return false
		}
		now.Status = *is.DeepCopy()
		now.Status.State, now.Status.Plan, now.Status.Parameters = was.State, was.Plan, was.Parameters
		now.Status.Attempt, now.Status.StartTime = was.Attempt, was.StartTime
		return true
	})
}
