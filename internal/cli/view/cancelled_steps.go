package view

import (
	"fmt"

	"slipway.dev/slipway/internal/event"
)

// cancelledSteps are steps that were cancelled and are not shown yet. One signal cancels all
// steps that have not begun: a line for each would hide the reason.
type cancelledSteps struct {
	last  event.Event
	was   runningStep
	count int
	hosts map[string]bool
}

// add adds a cancelled step, and reports whether the event is one.
func (c *cancelledSteps) add(e event.Event, was runningStep) bool {
	if e.Type != event.StepFinished || e.Outcome != event.Cancelled {
		return false
	}
	if c.hosts == nil {
		c.hosts = map[string]bool{}
	}
	c.last, c.was = e, was
	c.count++
	c.hosts[e.Host] = true
	return true
}

// take removes the steps, and returns an event for all of them. ok is false if there are
// none.
func (c *cancelledSteps) take() (e event.Event, was runningStep, ok bool) {
	taken := *c
	*c = cancelledSteps{}
	e, was = taken.last, taken.was
	if taken.count > 1 {
		e = event.Event{
			Type: event.StepFinished, Time: e.Time, Host: e.Host, Outcome: event.Cancelled,
			Title: fmt.Sprintf("%d steps", taken.count),
		}
		was = runningStep{start: e.Time}
	}
	if n := len(taken.hosts); n > 1 {
		e.Host = fmt.Sprintf("%d hosts", n)
	}
	return e, was, taken.count > 0
}
