package view

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway.dev/slipway/internal/event"
)

// drainPatience limits how long Drain waits for a reader that reads nothing, after its
// context is done.
const drainPatience = 2 * time.Second

// maxQueuedEvents limits the events that wait for a slow reader: enough for hours of
// a small operation, and for most of an operation on a thousand hosts.
const maxQueuedEvents = 100_000

// A Queue passes events and text to a view, in order and from separate goroutines,
// so that an operation does not wait for the reader of its output. Its methods
// do not block, except Drain.
type Queue struct {
	view         View
	now          func() time.Time
	events, text *funcQueue // the same lane if the view has one stream
	limit        int

	mu      sync.Mutex
	state   *progressState
	dropped int // events dropped since the last queued event
}

var _ event.Sink = (*Queue)(nil)

// NewQueue returns a queue that shows through v and closes v at its end. It uses
// now for the time of events that are not in a journal.
func NewQueue(v View, now func() time.Time) *Queue {
	q := &Queue{view: v, now: now, events: newFuncQueue(), limit: maxQueuedEvents, state: newProgressState(nil)}
	q.text = q.events
	if _, apart := v.(*EventView); apart { // data and messages are separate streams
		q.text = newFuncQueue()
	}
	return q
}

// Emit queues an event. If the reader is too far behind, Emit drops the event and
// later reports how many were dropped. It never drops the start or the end of an
// operation.
func (q *Queue) Emit(e event.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e = (&Options{Now: q.now}).setMissingTime(e)
	q.state.recordEvent(e)
	edge := e.Type == event.OperationStarted || e.Type == event.OperationFinished
	if !edge && q.events.countWaiting() >= q.limit {
		q.dropped++
		return
	}
	if n := q.dropped; n > 0 {
		q.dropped = 0
		lost := event.Event{Time: e.Time, Type: event.Note, Operation: e.Operation, Cluster: e.Cluster}
		lost.Message = fmt.Sprintf("%d events omitted because the output was read too slowly; to see all: slipway operations logs %s",
			n, e.Operation)
		q.events.push(func() { q.view.Emit(lost) })
	}
	q.events.push(func() { q.view.Emit(e) })
}

// Write queues text that is not an event.
func (q *Queue) Write(b []byte) (int, error) {
	text := append([]byte(nil), b...)
	q.text.push(func() { _, _ = q.view.Write(text) }) // a reader that has left needs no error
	return len(b), nil
}

// RunningSteps returns the running steps for people: "join node on w1".
func (q *Queue) RunningSteps() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.describeRunningSteps()
}

// Drain waits until everything is shown and closes the view. After ctx is done it
// waits only while the reader keeps reading. It reports whether all data and all
// messages were read; the rest is lost.
func (q *Queue) Drain(ctx context.Context) (data, talk bool) {
	q.events.stopPushing()
	q.text.stopPushing()
	data, talk = true, q.text.waitUntilDone(ctx)
	if q.events != q.text {
		data = q.events.waitUntilDone(ctx)
	}
	if data && talk {
		q.view.Close()
	}
	return data, talk
}

// A funcQueue runs functions one after the other.
type funcQueue struct {
	done chan struct{} // closed when the lane is closed and all functions have run

	mu     sync.Mutex
	wake   *sync.Cond
	todo   []func()
	count  int // of functions that have run
	closed bool
}

func newFuncQueue() *funcQueue {
	l := &funcQueue{done: make(chan struct{})}
	l.wake = sync.NewCond(&l.mu)
	go l.runAll()
	return l
}

// runAll ends when the lane is closed and empty. If a write blocks because its reader
// does not read, run ends with the program: a write cannot be cancelled.
func (l *funcQueue) runAll() {
	defer close(l.done)
	for {
		do := l.takeNext()
		if do == nil {
			return
		}
		do()
	}
}

func (l *funcQueue) takeNext() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	for len(l.todo) == 0 && !l.closed {
		l.wake.Wait()
	}
	if len(l.todo) == 0 {
		return nil
	}
	do := l.todo[0]
	l.todo[0] = nil
	l.todo = l.todo[1:]
	return do
}

func (l *funcQueue) push(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.todo = append(l.todo, do)
		l.wake.Signal()
	}
}

func (l *funcQueue) countWaiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.todo)
}

func (l *funcQueue) stopPushing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake.Signal()
}

// waitUntilDone reports whether all functions have run. After ctx is done, it gives up if
// none ends within patience.
func (l *funcQueue) waitUntilDone(ctx context.Context) bool {
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
	}
	for before := -1; ; {
		l.mu.Lock()
		now := l.count
		l.mu.Unlock()
		if now == before {
			return false
		}
		before = now
		t := time.NewTimer(drainPatience)
		select {
		case <-l.done:
			t.Stop()
			return true
		case <-t.C:
		}
	}
}
