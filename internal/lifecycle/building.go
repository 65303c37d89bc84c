package lifecycle

import (
	"time"

	"slipway.dev/slipway/internal/bundle"
	from "slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/event"
)

// progressEvery is how often the same piece of a build says how far it is: all
// of it is journaled.
const progressEvery = time.Second

// building turns the progress of a build into events: what is done, or taken
// from a cache, is noted; what goes on is progress.
type building struct {
	now  func() time.Time
	tell func(event.Event)

	what string // that was told last
	at   time.Time
}

func (b *building) hear(p bundle.Progress) {
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
