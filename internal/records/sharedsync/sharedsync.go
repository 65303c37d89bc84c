// Package sharedsync makes added items durable with one write for all callers that wait at the same
// time.
package sharedsync

import (
	"errors"
	"sync"
	"time"
)

// Delay is the time after which items are durable, even if no caller waits for them.
const Delay = 200 * time.Millisecond

// ErrClosed is returned by Add after Close.
var ErrClosed = errors.New("it is closed")

// A Writer makes items durable. Its methods may be called from several goroutines.
type Writer struct {
	begin   func() (write func() error)
	explain func(error) error
	pace    func()

	mu      sync.Mutex
	written *sync.Cond // a write has ended; its lock is mu

	added, durable int64 // numbers of items
	writing        bool  // a caller writes
	later          *time.Timer
	closed         bool

	fail   error // of the first failed item or write
	broken bool  // a write has failed
	told   bool  // a caller has received fail
}

// New returns a writer. begin is called while no item is added. It returns the function that makes
// all items durable that were added before; this function is called without a lock. explain adds the
// context to an error of an item or a write.
func New(begin func() (write func() error), explain func(error) error) *Writer {
	w := &Writer{begin: begin, explain: explain}
	w.written = sync.NewCond(&w.mu)
	return w
}

// SetPace sets a function that is called before each write, without a lock. It can wait, so that one write has the items
// of more callers. It must be called before the first item.
func (w *Writer) SetPace(pace func()) { w.pace = pace }

// Add calls add, which adds an item, while no other method uses the items. After an error every
// further Add fails.
func (w *Writer) Add(add func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.explain(ErrClosed)
	}
	if w.fail == nil {
		w.setError(add())
	}
	if w.fail != nil {
		w.told = true
		return w.fail
	}
	w.added++
	if w.later == nil {
		w.later = time.AfterFunc(Delay, func() { _ = w.sync() }) // Add and Close report the error
	}
	return nil
}

// setError saves the first error. The caller holds mu.
func (w *Writer) setError(err error) {
	if err != nil && w.fail == nil {
		w.fail = w.explain(err)
	}
}

// CallLocked calls f while no item is added.
func (w *Writer) CallLocked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// CountDurable returns the number of durable items.
func (w *Writer) CountDurable() (n int64) {
	w.CallLocked(func() { n = w.durable })
	return n
}

// Sync returns when all items that were added before are durable.
func (w *Writer) Sync() error {
	err := w.sync()
	if err != nil {
		w.CallLocked(func() { w.told = true })
	}
	return err
}

// sync is Sync for a caller that may drop the error. Items before a failed one are written.
func (w *Writer) sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for want := w.added; !w.broken && w.durable < want; {
		if w.writing {
			w.written.Wait()
		} else {
			w.writeAdded()
		}
	}
	return w.fail
}

// writeAdded writes. The caller holds mu, which is free during the write.
func (w *Writer) writeAdded() {
	w.writing = true
	if w.pace != nil {
		w.mu.Unlock()
		w.pace()
		w.mu.Lock()
	}
	w.stopTimer()
	upTo, write := w.added, w.begin()
	w.mu.Unlock()
	err := write()
	w.mu.Lock()
	w.writing = false
	if err == nil {
		w.durable = upTo
	} else {
		w.broken = true
		w.setError(err)
	}
	w.written.Broadcast()
}

func (w *Writer) stopTimer() {
	if w.later != nil {
		w.later.Stop()
		w.later = nil
	}
}

// Close makes all items durable, and waits for the end of every write. It does not repeat an error that
// Add or Sync has returned.
func (w *Writer) Close() error {
	w.CallLocked(func() { w.closed = true })
	err := w.sync()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writing {
		w.written.Wait()
	}
	w.stopTimer()
	if w.told {
		return nil
	}
	return err
}
