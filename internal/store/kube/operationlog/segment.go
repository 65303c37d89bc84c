package operationlog

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// An Encoder makes segments of the events of an operation. It is not safe for concurrent use.
type Encoder struct {
	op   *v1alpha1.Operation
	last int64 // number of the last event

	size  int                     // of all events since the last Flush
	full  []v1alpha1.OperationLog // complete segments
	lines []byte                  // of the segment that is not complete
	first int64                   // the beginning of its range
	count int64                   // of its events
}

// NewEncoder returns an encoder that continues a journal after the event with number last, 0 for a
// new journal.
func NewEncoder(op *v1alpha1.Operation, last int64) *Encoder {
	return &Encoder{op: op, last: last, first: last + 1}
}

// Add adds an event. An event without a number gets the next one. The middle of long texts is
// omitted from an event that is too large. An error means that the event was not added: its number
// is too small or too large, or its time cannot be encoded.
func (e *Encoder) Add(ev event.Event) error {
	if ev.Seq == 0 {
		ev.Seq = e.last + 1
	}
	if ev.Seq <= e.last || ev.Seq > maxNumber {
		return fmt.Errorf("event %d of operation %s cannot follow event %d", ev.Seq, e.op.Name, e.last)
	}
	line, err := encodeEvent(ev, maxEvent)
	if err != nil {
		return fmt.Errorf("encoding event %d of operation %s: %w", ev.Seq, e.op.Name, err)
	}
	if len(e.lines)+len(line) > SegmentSize {
		e.complete()
	}
	e.lines = append(e.lines, line...)
	e.size += len(line)
	e.last = ev.Seq
	e.count++
	return nil
}

// Last returns the number of the last event.
func (e *Encoder) Last() int64 { return e.last }

// Size returns the size of the events since the last call of Flush.
func (e *Encoder) Size() int { return e.size }

// Flush returns segments with all events since its last call, in order. They must be created in
// this order: no reader then sees an event without the events before it.
func (e *Encoder) Flush() []v1alpha1.OperationLog {
	e.complete()
	full := e.full
	e.full, e.size = nil, 0
	return full
}

// complete ends the current segment.
func (e *Encoder) complete() {
	if e.count == 0 {
		return
	}
	e.full = append(e.full, newPart(e.op, v1alpha1.OperationLogSpec{
		Type: v1alpha1.OperationLogSegment, FirstEvent: e.first, LastEvent: e.last, Events: e.count,
		Encoding: v1alpha1.EncodingJSONLines, Data: e.lines,
	}, e.lines))
	e.lines, e.first, e.count = nil, e.last+1, 0
}

// encodeEvent returns an event as a line of at most limit bytes.
func encodeEvent(e event.Event, limit int) ([]byte, error) {
	line, err := json.Marshal(e)
	for text := limit / 4; err == nil && len(line) >= limit; text /= 2 {
		line, err = json.Marshal(shortenEvent(e, text))
	}
	return append(line, '\n'), err
}

// changeCost is the approximate size of a change in JSON without its texts.
const changeCost = 64

// shortenEvent returns a copy of an event in which each text has about limit bytes at most, and
// the list of changes limit/changeCost entries.
func shortenEvent(e event.Event, limit int) event.Event {
	shortenTexts(limit, &e.Operation, &e.Cluster, &e.Kind, &e.Digest, &e.Module, &e.Task, &e.Title, &e.Host, &e.After, &e.Message, &e.Unit)
	if e.Failure != nil {
		f := *e.Failure
		shortenTexts(limit, &f.Reason, &f.Message, &f.Remedy, &f.Detail, &f.CausedBy)
		e.Failure = &f
	}
	kept := min(len(e.Changes), limit/changeCost)
	left := len(e.Changes) - kept
	e.Changes = slices.Clone(e.Changes[:kept])
	for i := range e.Changes {
		shortenTexts(limit, &e.Changes[i].Target, &e.Changes[i].Summary)
	}
	if left > 0 {
		e.Changes = append(e.Changes, event.Change{Summary: fmt.Sprintf("[... %d changes omitted ...]", left)})
	}
	return e
}

// shortenTexts omits the middle of texts that have more than limit bytes.
func shortenTexts(limit int, texts ...*string) {
	for _, text := range texts {
		if len(*text) <= limit {
			continue
		}
		head, tail := limit/2, len(*text)-limit/2
		for head > 0 && !utf8.RuneStart((*text)[head]) {
			head--
		}
		for tail < len(*text) && !utf8.RuneStart((*text)[tail]) {
			tail++
		}
		*text = fmt.Sprintf("%s[... %d bytes omitted ...]%s", (*text)[:head], tail-head, (*text)[tail:])
	}
}
