package operationlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// Limits of texts in a summary, in bytes.
const (
	maxSummaryText = 2 << 10
	// maxOutput limits the end of the output of a step. There is room for a mark before it.
	maxOutput = maxSummaryText - 64
)

// omissionMark begins the note of a summary that omits events.
const omissionMark = "This journal is a summary: "

// Summarize returns the summary of a journal. It has failures first, then the steps that determined
// the duration, then changes. It has no progress, and of the output of a step on a host only the
// end. If it omits events, a note in it has their number.
//
// A resume reads from the journal which steps have succeeded. So the caller makes no summary of an
// operation that can be resumed, or that belongs to an unfinished attempt.
func Summarize(op *v1alpha1.Operation, parts []v1alpha1.OperationLog) (v1alpha1.OperationLog, error) {
	order, err := arrange(op, parts, 0)
	var gap *GapError
	switch {
	case errors.As(err, &gap):
		return v1alpha1.OperationLog{}, gap.explain()
	case err == nil && len(order) == 0:
		err = errors.New("the journal of operation " + op.Name + " has no events")
	}
	s := &summary{open: map[string]*run{}, ends: map[string]stepEnd{}}
	for _, p := range order {
		s.events += p.Spec.OmittedEvents
		if err == nil {
			_, err = p.read(0, s.add)
		}
	}
	if err != nil {
		return v1alpha1.OperationLog{}, err
	}
	s.endRuns()
	s.rankCriticalPath()
	return s.encode(op, endOf(order, 0))
}

// A rank orders the pieces of a summary: the first ranks are omitted last.
type rank int

const (
	rankOperation rank = iota // start and end of an attempt
	rankFailure               // steps that failed, and ignored failures
	rankFailureOutput
	rankCriticalPath // steps that determined the duration of the last attempt
	rankChange       // steps that changed a host, or may have changed it
	rankNote
	rankStep // other steps
	rankOutput
)

// A summary collects the events of a journal.
type summary struct {
	events  int64 // of the journal
	attempt int
	open    map[string]*run // by "task@host"
	pieces  []*piece
	size    int // of all pieces
	// ends has the latest end of each step of the last attempt, by "task@host". last is the latest of all.
	ends map[string]stepEnd
	last string
}

// A piece is one or more events that are omitted together.
type piece struct {
	rank    rank
	attempt int
	lines   []line
}

type line struct {
	seq  int64
	time time.Time
	text []byte
}

// A run is a step on a host that has not ended.
type run struct {
	start, retry *event.Event // the latest
	output       *event.Event // the latest, with the end of all output
	cut          int          // bytes of output that were dropped
}

// A stepEnd is the end of a step, and the step before it.
type stepEnd struct {
	after string
	piece *piece
}

// add adds the next event.
func (s *summary) add(e event.Event) error {
	if e.Type == event.Note && strings.HasPrefix(e.Message, omissionMark) {
		return nil // of an earlier summary
	}
	s.events++
	key := e.Task + "@" + e.Host
	if s.open[key] == nil && slices.Contains([]event.Type{event.StepStarted, event.StepRetry, event.StepOutput, event.StepFinished}, e.Type) {
		s.open[key] = &run{}
	}
	switch r := s.open[key]; e.Type {
	case event.StepProgress:
	case event.StepStarted:
		if r.start != nil {
			s.endRun(key, nil)
		}
		s.open[key] = &run{start: &e}
	case event.StepRetry:
		r.retry = &e
	case event.StepOutput:
		r.addOutput(e)
	case event.StepFinished:
		s.endRun(key, &e)
	case event.OperationStarted:
		s.endRuns()
		s.attempt++
		s.last = ""
		clear(s.ends)
		s.addPiece(rankOperation, &e)
	case event.OperationFinished:
		s.addPiece(rankOperation, &e)
	default:
		s.addPiece(rankNote, &e)
	}
	if s.size > 2*maxLines {
		s.prune()
	}
	return nil
}

// addOutput keeps the end of the output.
func (r *run) addOutput(e event.Event) {
	if r.output != nil {
		e.Message = r.output.Message + e.Message
	}
	if drop := len(e.Message) - maxOutput; drop > 0 {
		if i := strings.IndexByte(e.Message[drop-1:], '\n'); i >= 0 && i < maxOutput/2 {
			drop += i // the end begins with a complete line
		}
		e.Message = strings.ToValidUTF8(e.Message[drop:], "")
		r.cut += drop
	}
	r.output = &e
}

// endRuns ends the steps that an interruption has left.
func (s *summary) endRuns() {
	for key := range s.open {
		s.endRun(key, nil)
	}
}

// endRun ends a step on a host. end is nil if it was interrupted.
func (s *summary) endRun(key string, end *event.Event) {
	r := s.open[key]
	delete(s.open, key)
	step, output := rankStep, rankOutput
	switch {
	case end == nil:
		step, output = rankChange, rankFailureOutput
	case end.Outcome == event.Failed || end.Outcome == event.Ignored:
		step, output = rankFailure, rankFailureOutput
	case end.Outcome == event.Changed:
		step = rankChange
	}
	if r.output != nil && r.cut > 0 {
		r.output.Message = fmt.Sprintf("[... %d bytes of output omitted ...]\n%s", r.cut, r.output.Message)
	}
	s.addPiece(output, r.retry, r.output)
	added := s.addPiece(step, r.start, end)
	if end != nil {
		s.ends[key], s.last = stepEnd{end.After, added}, key
	}
}

// addPiece adds events that belong together. An event can be nil.
func (s *summary) addPiece(r rank, events ...*event.Event) *piece {
	p := &piece{rank: r, attempt: s.attempt}
	for _, e := range events {
		if e == nil {
			continue
		}
		text, err := encodeEvent(shortenEvent(*e, maxSummaryText), maxEvent)
		if err != nil {
			continue // it was decoded from JSON
		}
		p.lines = append(p.lines, line{e.Seq, e.Time, text})
		s.size += len(text)
	}
	if len(p.lines) > 0 {
		slices.SortFunc(p.lines, compareLines)
		s.pieces = append(s.pieces, p)
	}
	return p
}

func compareLines(a, b line) int { return cmp.Compare(a.seq, b.seq) }

// sort sorts the pieces by importance: of the same rank, the latest attempt comes first.
func (s *summary) sort() {
	slices.SortFunc(s.pieces, func(a, b *piece) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.attempt, a.attempt), compareLines(a.lines[0], b.lines[0]))
	})
}

// prune drops the least important pieces, so that the memory for them has a limit.
func (s *summary) prune() {
	s.sort()
	s.size = 0
	for i, p := range s.pieces {
		for _, l := range p.lines {
			s.size += len(l.text)
		}
		if s.size > maxLines {
			clear(s.pieces[i:])
			s.pieces = s.pieces[:i]
			return
		}
	}
}

// rankCriticalPath raises the rank of the steps that determined the duration: each began when the
// one before it ended.
func (s *summary) rankCriticalPath() {
	for key := s.last; ; {
		end, known := s.ends[key]
		if !known {
			return
		}
		end.piece.rank = min(end.piece.rank, rankCriticalPath)
		delete(s.ends, key) // a damaged journal must not cause an endless loop
		key = end.after
	}
}

// encode returns the object with the most important pieces. last is the end of the journal.
func (s *summary) encode(op *v1alpha1.Operation, last int64) (v1alpha1.OperationLog, error) {
	compressor, err := newCompressor()
	if err != nil {
		return v1alpha1.OperationLog{}, err
	}
	s.prune()
	var lines []byte
	var spec v1alpha1.OperationLogSpec
	fits := func(n int) bool {
		kept, omitted := s.selectLines(op, n)
		joined := bytes.Join(kept, nil)
		data := compressor.EncodeAll(joined, nil)
		if len(data) > maxSummary || len(joined) > maxLines {
			return false
		}
		lines = joined
		spec = v1alpha1.OperationLogSpec{
			Type: v1alpha1.OperationLogSummary, FirstEvent: 1, LastEvent: last, Events: int64(len(kept)), OmittedEvents: omitted,
			Encoding: v1alpha1.EncodingJSONLinesZstd, Data: data,
		}
		return true
	}
	if longestFit(len(s.pieces), fits) == 0 {
		fits(0)
	}
	return newPart(op, spec, lines), nil
}

// selectLines returns the events of the first n pieces, in order, and the number of events that
// they omit. If there are any, a note reports it. It has a number that no event has.
func (s *summary) selectLines(op *v1alpha1.Operation, n int) (texts [][]byte, omitted int64) {
	var kept []line
	for _, p := range s.pieces[:n] {
		kept = append(kept, p.lines...)
	}
	slices.SortFunc(kept, compareLines)
	if omitted = s.events - int64(len(kept)); omitted > 0 {
		at := 0
		for at < len(kept) && kept[at].seq == int64(at+1) {
			at++
		}
		note := event.Event{
			Seq: int64(at + 1), Type: event.Note, Operation: op.Name, Cluster: op.Spec.ClusterRef.Name,
			Message: fmt.Sprintf("%s%d of %d events are omitted", omissionMark, omitted, s.events),
		}
		if len(kept) > 0 {
			note.Time = kept[max(0, at-1)].time
		}
		if text, err := encodeEvent(note, maxEvent); err == nil {
			kept = slices.Insert(kept, at, line{note.Seq, note.Time, text})
		}
	}
	for _, l := range kept {
		texts = append(texts, l.text)
	}
	return texts, omitted
}
