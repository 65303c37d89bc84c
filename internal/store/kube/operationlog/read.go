package operationlog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// ReadEvents calls fn for each event of an operation, in order, and stops at the first error of
// fn. parts are all objects of the journal, in any order. If a summary is the only part with the
// early events, it takes the place of the parts that it replaces.
func ReadEvents(op *v1alpha1.Operation, parts []v1alpha1.OperationLog, fn func(event.Event) error) error {
	_, err := readAll(op, parts, fn)
	return err
}

// VerifyJournal reads all parts of a journal, and returns the number of its last event, 0 for an empty
// one.
func VerifyJournal(op *v1alpha1.Operation, parts []v1alpha1.OperationLog) (last int64, err error) {
	return readAll(op, parts, func(event.Event) error { return nil })
}

// readAll is ReadNewer from the beginning, for a journal that will not change.
func readAll(op *v1alpha1.Operation, parts []v1alpha1.OperationLog, fn func(event.Event) error) (last int64, err error) {
	last, err = ReadNewer(op, parts, 0, fn)
	var gap *GapError
	if errors.As(err, &gap) {
		err = gap.explain()
	}
	return last, err
}

// ReadNewer is ReadEvents for a reader that has all events up to number after. It returns the new
// position of the reader. Parts that have only earlier events may be missing. If parts are missing
// before later events, it returns a *GapError after the events before the gap.
func ReadNewer(op *v1alpha1.Operation, parts []v1alpha1.OperationLog, after int64, fn func(event.Event) error) (int64, error) {
	order, err := arrange(op, parts, after)
	for _, p := range order {
		if after, err := p.read(after, fn); err != nil {
			return after, err
		}
		after = p.Spec.LastEvent
	}
	return after, err
}

// A placed part is read for its events after a number.
type placed struct {
	*v1alpha1.OperationLog
	after int64
}

// read calls fn for each of these events. If that fails, it returns the number of the last event
// for which fn succeeded, or position.
func (p placed) read(position int64, fn func(event.Event) error) (int64, error) {
	lines, err := linesOf(p.OperationLog)
	if err != nil {
		return position, err
	}
	err = forEachEvent(p.OperationLog, lines, func(e event.Event) error {
		if e.Seq <= p.after {
			return nil
		}
		err := fn(e)
		if err == nil {
			position = e.Seq
		}
		return err
	})
	return position, err
}

// arrange returns the parts with the events after a number, in order. With a *GapError it returns
// the parts before the gap.
func arrange(op *v1alpha1.Operation, parts []v1alpha1.OperationLog, after int64) ([]placed, error) {
	tiles, summaries, err := sortParts(op, parts)
	if err != nil {
		return nil, err
	}
	order, err := joinTiles(tiles, after)
	var gap *GapError
	if err != nil && !errors.As(err, &gap) {
		return nil, err
	}
	if len(summaries) == 0 || summaries[0].Spec.LastEvent <= endOf(order, after) {
		return order, err
	}
	rest, err := joinTiles(tiles, summaries[0].Spec.LastEvent)
	return append([]placed{{summaries[0], after}}, rest...), err
}

// endOf returns the number of the last event of parts, or after if there are none.
func endOf(order []placed, after int64) int64 {
	if len(order) == 0 {
		return after
	}
	return order[len(order)-1].Spec.LastEvent
}

// sortParts checks the ranges of all parts. It returns the segments and chunks sorted by range, a
// chunk before the segments that it covers, and the summaries, the latest one first. Of equal parts
// it returns one.
func sortParts(op *v1alpha1.Operation, parts []v1alpha1.OperationLog) (tiles, summaries []*v1alpha1.OperationLog, err error) {
	all := make([]*v1alpha1.OperationLog, len(parts))
	for i := range parts {
		all[i] = &parts[i]
		if err := checkRange(op, all[i]); err != nil {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b *v1alpha1.OperationLog) int {
		return cmp.Or(cmp.Compare(a.Spec.FirstEvent, b.Spec.FirstEvent), cmp.Compare(b.Spec.LastEvent, a.Spec.LastEvent),
			cmp.Compare(a.Spec.Type, b.Spec.Type))
	})
	for i, p := range all {
		switch {
		case i > 0 && hasSameRange(p, all[i-1]):
			if p.Spec.Digest != all[i-1].Spec.Digest {
				return nil, nil, conflictError(all[i-1], p, "have the same range, but different events")
			}
		case p.Spec.Type == v1alpha1.OperationLogSummary:
			summaries = append(summaries, p) // all begin with event 1
		default:
			tiles = append(tiles, p)
		}
	}
	return dropOutdated(tiles), summaries, nil
}

// dropOutdated drops the segments that begin inside of a chunk but end after it. A process has written
// them that had lost the operation: the segments of the chunk had other ranges, and were deleted.
func dropOutdated(tiles []*v1alpha1.OperationLog) (out []*v1alpha1.OperationLog) {
	var chunk *v1alpha1.OperationLog // the latest one; a chunk is before the segments that it covers
	for _, p := range tiles {
		if p.Spec.Type == v1alpha1.OperationLogChunk {
			chunk = p
		} else if chunk != nil && p.Spec.FirstEvent <= chunk.Spec.LastEvent && p.Spec.LastEvent > chunk.Spec.LastEvent {
			continue
		}
		out = append(out, p)
	}
	return out
}

func hasSameRange(a, b *v1alpha1.OperationLog) bool {
	return a.Spec.Type == b.Spec.Type && a.Spec.FirstEvent == b.Spec.FirstEvent && a.Spec.LastEvent == b.Spec.LastEvent
}

// checkRange checks everything about a part that needs no event.
func checkRange(op *v1alpha1.Operation, p *v1alpha1.OperationLog) error {
	s := &p.Spec
	switch {
	case s.OperationRef.UID != op.UID:
		return foreignError(op, p)
	case s.FirstEvent < 1 || s.LastEvent < s.FirstEvent || s.LastEvent > maxNumber:
		return damagedError(p, "it has an invalid range: events %d to %d", s.FirstEvent, s.LastEvent)
	case s.Events < 1 || s.OmittedEvents < 0:
		return damagedError(p, "it has an invalid number of events: %d, and %d omitted", s.Events, s.OmittedEvents)
	}
	switch s.Type {
	case v1alpha1.OperationLogSegment, v1alpha1.OperationLogChunk:
		if s.OmittedEvents > 0 {
			return damagedError(p, "only a summary can omit events")
		}
	case v1alpha1.OperationLogSummary:
		if s.FirstEvent != 1 {
			return damagedError(p, "a summary begins with event 1, not %d", s.FirstEvent)
		}
	default:
		return damagedError(p, "it has an unknown type: %q", s.Type)
	}
	return nil
}

// joinTiles returns the sorted parts with the events after a number. The first part can begin
// before that number.
func joinTiles(tiles []*v1alpha1.OperationLog, after int64) (order []placed, err error) {
	end := after
	for _, p := range tiles {
		first, last := p.Spec.FirstEvent, p.Spec.LastEvent
		switch {
		case last <= after:
		case first > end+1:
			return order, &GapError{Operation: p.Spec.OperationRef.Name, From: end + 1, To: first - 1, Before: p.Name}
		case first == end+1 || len(order) == 0:
			order = append(order, placed{p, end})
			end = last
		case !covers(order[len(order)-1].OperationLog, p):
			return nil, conflictError(order[len(order)-1].OperationLog, p, "overlap")
		}
	}
	return order, nil
}

// covers reports whether chunk replaces segment.
func covers(chunk, segment *v1alpha1.OperationLog) bool {
	return chunk.Spec.Type == v1alpha1.OperationLogChunk && segment.Spec.Type == v1alpha1.OperationLogSegment &&
		chunk.Spec.FirstEvent <= segment.Spec.FirstEvent && segment.Spec.LastEvent <= chunk.Spec.LastEvent
}

// linesOf returns the lines of a part. Their digest is correct.
func linesOf(p *v1alpha1.OperationLog) (lines []byte, err error) {
	switch p.Spec.Encoding {
	case v1alpha1.EncodingJSONLines:
		lines = p.Spec.Data
	case v1alpha1.EncodingJSONLinesZstd:
		if lines, err = decompress(p.Spec.Data); err != nil {
			return nil, damagedError(p, "%v", err)
		}
	default:
		return nil, damagedError(p, "it has an unknown encoding: %q", p.Spec.Encoding)
	}
	if len(lines) > maxLines {
		return nil, damagedError(p, "it has %d bytes of events; the limit is %d", len(lines), maxLines)
	}
	if got := digestOf(lines); got != p.Spec.Digest {
		return nil, damagedError(p, "its events have digest %s, not %s", got, p.Spec.Digest)
	}
	return lines, nil
}

// verify returns the lines of a part that is not damaged.
func verify(p *v1alpha1.OperationLog) ([]byte, error) {
	lines, err := linesOf(p)
	if err != nil {
		return nil, err
	}
	return lines, forEachEvent(p, lines, func(event.Event) error { return nil })
}

// forEachEvent calls fn for each event of a part, and stops at the first error of fn.
func forEachEvent(p *v1alpha1.OperationLog, lines []byte, fn func(event.Event) error) error {
	last, count := p.Spec.FirstEvent-1, int64(0)
	for line := range bytes.Lines(lines) {
		count++
		var e event.Event
		switch {
		case len(line) > maxEvent || line[len(line)-1] != '\n':
			return damagedError(p, "line %d is too long, or does not end", count)
		case json.Unmarshal(line, &e) != nil:
			return damagedError(p, "line %d is not an event", count)
		case e.Seq <= last || e.Seq > p.Spec.LastEvent:
			return damagedError(p, "event %d is not between events %d and %d", e.Seq, last, p.Spec.LastEvent+1)
		}
		last = e.Seq
		if err := fn(e); err != nil {
			return err
		}
	}
	switch {
	case count != p.Spec.Events:
		return damagedError(p, "it has %d events, not %d", count, p.Spec.Events)
	case p.Spec.Type != v1alpha1.OperationLogSummary && last != p.Spec.LastEvent:
		return damagedError(p, "it ends with event %d, not %d", last, p.Spec.LastEvent)
	}
	return nil
}
