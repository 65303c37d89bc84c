package bundlesource

import (
	"time"

	"slipway.dev/slipway/internal/bundle"
	from "slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/event"
)

// progressEvery limits how often the same part of a build reports progress, because
// the journal contains all of it.
const progressEvery = time.Second

// building turns the progress of a build into events: notes for parts that are done or
// cached, progress for parts that are being built.
type building struct {
	now  func() time.Time
	tell func(event.Event)

	what string // the part that was reported last
	at   time.Time
}

func (b *building) reportProgress(p bundle.Progress) {
	switch p.Phase {
	case from.Note:
		b.tell(event.Event{Type: event.Note, Message: p.Message})
		return
	case from.Cached:
		b.tell(event.Event{Type: event.Note, Message: p.Component + " is in the cache"})
		return
	case from.Done:
		m := p.Component + " is ready"
		if took := p.Elapsed.Round(time.Second); took > 0 {
			m += ", after " + took.String()
		}
		b.tell(event.Event{Type: event.Note, Message: m})
		return
	}
	what, now := string(p.Phase)+" "+p.Component, b.now()
	if what == b.what && now.Sub(b.at) < progressEvery {
		return
	}
	b.what, b.at = what, now
	if p.Message != "" {
		what += ": " + p.Message
	}
	b.tell(event.Event{Type: event.StepProgress, Message: what, Done: p.Done, Total: p.Total, Unit: p.Unit})
}
