package view

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway.dev/slipway/internal/event"
)

// patience is how long a reader may take nothing at all, once nobody wants to
// wait any more.
const patience = 2 * time.Second

// mostQueued is how many events wait for a reader who does not read: hours of
// a small operation, and the better part of one on a thousand hosts.
const mostQueued = 100_000

// A Queue shows events and text by a view, in order and from goroutines of its
// own: an operation does not wait for who reads about it. Its methods do not
// block, but for Drain.
type Queue struct {
	view         View
	now          func() time.Time
	events, text *lane // one and the same if the view has one stream
	limit        int

	mu    sync.Mutex
	track *track
	left  int // events left out since the last that was taken
}

var _ event.Sink = (*Queue)(nil)

// NewQueue begins to show by v, which it closes at its end. now stamps events
// that no journal has.
func NewQueue(v View, now func() time.Time) *Queue {
	q := &Queue{view: v, now: now, events: newLane(), limit: mostQueued, track: newTrack(nil)}
	q.text = q.events
	if _, apart := v.(*Record); apart { // data is one stream, talk another
		q.text = newLane()
	}
	return q
}

// Emit has an event shown. A reader who is too far behind misses the next
// ones, and is told so; how an operation began and ended is never left out.
func (q *Queue) Emit(e event.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e = (&Options{Now: q.now}).timed(e)
	q.track.see(e)
	edge := e.Type == event.OperationStarted || e.Type == event.OperationFinished
	if !edge && q.events.length() >= q.limit {
		q.left++
		return
	}
	if n := q.left; n > 0 {
		q.left = 0
		lost := event.Event{Time: e.Time, Type: event.Note, Operation: e.Operation, Cluster: e.Cluster}
		lost.Message = fmt.Sprintf("%d events are left out here: they were read too slowly; all: slipway operations logs %s", n, e.Operation)
		q.events.add(func() { q.view.Emit(lost) })
	}
	q.events.add(func() { q.view.Emit(e) })
}

// Write has text shown that is no event.
func (q *Queue) Write(b []byte) (int, error) {
	text := append([]byte(nil), b...)
	q.text.add(func() { _, _ = q.view.Write(text) }) // who reads nothing any more misses nothing
	return len(b), nil
}

// Running answers the steps that are under way, for people: "joining node w1".
func (q *Queue) Running() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.track.names()
}

// Drain waits until all is shown, and closes the view. When ctx is done it
// waits for as long as somebody reads. It answers whether all that is data was
// read, and all that is talk; the rest is lost.
func (q *Queue) Drain(ctx context.Context) (data, talk bool) {
	q.events.close()
	q.text.close()
	data, talk = true, q.text.wait(ctx)
	if q.events != q.text {
		data = q.events.wait(ctx)
	}
	if data && talk {
		q.view.Close()
	}
	return data, talk
}

// A lane does things one after the other.
type lane struct {
	done chan struct{} // closed when all is done and nothing more will come

	mu     sync.Mutex
	wake   *sync.Cond
	todo   []func()
	count  int // of what was done
	closed bool
}

func newLane() *lane {
	l := &lane{done: make(chan struct{})}
	l.wake = sync.NewCond(&l.mu)
	go l.run()
	return l
}

// run ends when the lane is closed and empty. In the middle of a write that
// nobody reads it ends with the program: that cannot be called off.
func (l *lane) run() {
	defer close(l.done)
	for {
		do := l.next()
		if do == nil {
			return
		}
		do()
	}
}

func (l *lane) next() func() {
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

func (l *lane) add(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.todo = append(l.todo, do)
		l.wake.Signal()
	}
}

func (l *lane) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.todo)
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake.Signal()
}

// wait answers whether all was done. When ctx is done it gives up on one who
// takes nothing for a while.
func (l *lane) wait(ctx context.Context) bool {
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
		t := time.NewTimer(patience)
		select {
		case <-l.done:
			t.Stop()
			return true
		case <-t.C:
		}
	}
}
