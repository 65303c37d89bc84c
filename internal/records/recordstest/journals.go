package recordstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
)

// syncDelay is the time after which events are durable without a Sync.
const syncDelay = 200 * time.Millisecond

type journals struct{ *Process }

// A journal is an open journal. Its events wait in the process until they are durable.
type journal struct {
	p  *Process
	id string

	// guarded by p.m.mu
	seq     int64
	waiting []byte
	later   *time.Timer // nil if no event waits
	fail    error
	closed  bool
}

func (p journals) Open(ctx context.Context, id string) (records.Journal, error) {
	j := &journal{p: p.Process, id: id}
	err := p.useFor(ctx, func(m *Memory) error {
		if _, err := m.operation(id); err != nil {
			return err
		}
		events, end, err := decodeEvents(m.journals[id])
		for _, e := range events {
			j.seq = max(j.seq, e.Seq)
		}
		m.journals[id] = m.journals[id][:end]
		return err
	}, id)
	if err != nil {
		return nil, fmt.Errorf("opening the journal of operation %q: %w", id, err)
	}
	return j, nil
}

// decodeEvents returns the events of a journal and the number of bytes at which the last one
// ends. Other bytes after it are left by a crash. Before an event, they mean that the journal
// is damaged.
func decodeEvents(text []byte) (events []event.Event, end int, err error) {
	pos, broken := 0, false
	for line := range bytes.Lines(text) {
		pos += len(line)
		var e event.Event
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &e) != nil {
			broken = true
			continue
		}
		if broken {
			return nil, 0, damaged("the journal", errors.New("events in the middle are missing"))
		}
		events, end = append(events, e), pos
	}
	return events, end, nil
}

func (j *journal) LastSeq() int64 {
	j.p.m.mu.Lock()
	defer j.p.m.mu.Unlock()
	return j.seq
}

func (j *journal) Append(e event.Event) error {
	return j.p.use(func(*Memory) error {
		if j.closed {
			return errors.New("the journal is closed")
		}
		if j.fail != nil {
			return j.fail
		}
		if e.Seq == 0 {
			e.Seq = j.seq + 1
		}
		line, err := json.Marshal(e)
		if err != nil {
			j.fail = fmt.Errorf("writing the journal: %w", err)
			return j.fail
		}
		j.seq = max(j.seq, e.Seq)
		j.waiting = append(append(j.waiting, line...), '\n')
		if j.later == nil {
			j.later = time.AfterFunc(syncDelay, func() { _ = j.Sync() }) // fails only if the process was killed
		}
		return nil
	})
}

// Sync makes the events durable. After a failed Append it returns that error, too.
func (j *journal) Sync() error {
	return j.p.use(func(m *Memory) error {
		j.flush(m)
		return j.fail
	})
}

func (j *journal) Close() error {
	return j.p.use(func(m *Memory) error {
		j.flush(m)
		j.closed = true
		return nil
	})
}

func (j *journal) flush(m *Memory) {
	if j.later == nil {
		return
	}
	j.later.Stop()
	m.journals[j.id] = append(m.journals[j.id], j.waiting...)
	j.waiting, j.later = nil, nil
	m.announce()
}

func (p journals) ReadEvents(ctx context.Context, id string, fn func(event.Event) error) error {
	events, _, _, err := p.readFrom(ctx, id, 0)
	for _, e := range events {
		if err := fn(e); err != nil {
			return fmt.Errorf("reading the journal of operation %s: %w", id, err)
		}
	}
	return err
}

// readFrom returns the durable events after the first n, whether a process runs the operation,
// and a channel that is closed at the next change. All are of the same moment.
func (p journals) readFrom(ctx context.Context, id string, n int) (events []event.Event, runs bool, changed chan struct{}, err error) {
	err = p.useFor(ctx, func(m *Memory) error {
		o, err := m.operation(id)
		if err != nil {
			return err
		}
		if events, _, err = decodeEvents(m.journals[id]); err == nil {
			events = events[n:]
		}
		h := m.holder(o.Spec.ClusterRef.Name)
		runs, changed = h != nil && (h.Operation == id || h.Operation == ""), m.changed
		return err
	}, id)
	return events, runs, changed, err
}

func (p journals) FollowEvents(ctx context.Context, id string, fn func(event.Event) error) error {
	for n := 0; ; {
		events, runs, changed, err := p.readFrom(ctx, id, n)
		if err != nil {
			return err
		}
		finished := false
		for _, e := range events {
			if err := fn(e); err != nil {
				return err
			}
			finished = e.Type == event.OperationFinished
		}
		n += len(events)
		switch {
		case finished:
			return nil
		case !runs:
			return fmt.Errorf("following operation %s: %w", id, records.ErrNoEnd)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
