//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"slipway.dev/slipway/internal/node/op"
)

// planAgain says that a unit which was restarted is yet to be seen to serve, by
// what answered before.
func (s *session) planAgain(o op.Unit, p *unitPlan) error {
	if len(o.Again) == 0 {
		return nil
	}
	rec, err := s.unitRecord(o.Name)
	if len(awaited(o.Again, rec.Awaits)) > 0 {
		p.add(&p.await, "wait until it serves again")
	}
	return err
}

// awaited are those of waits that are named.
func awaited(waits []op.Wait, names []string) (out []op.Wait) {
	for _, w := range waits {
		if slices.Contains(names, w.Target()) {
			out = append(out, w)
		}
	}
	return out
}

// answering is what must answer again after a change: what did before an earlier
// one and was not seen to since, and what does now, if that is asked.
func (s *session) answering(ctx context.Context, waits []op.Wait, before []string, asked bool) ([]string, error) {
	var names []string
	for _, w := range waits {
		if err := checkOne(w); err != nil {
			return nil, err
		}
		now := w
		now.Since, now.SinceSeconds = "", 0 // it has answered, however long the unit has run
		if slices.Contains(before, w.Target()) || asked && s.probe(ctx, now) == nil {
			names = append(names, w.Target())
		}
	}
	return names, ctx.Err()
}

// serveAgain waits for what answered before a unit was restarted.
func (s *session) serveAgain(ctx context.Context, o op.Unit) error {
	if len(o.Again) == 0 {
		return nil
	}
	rec, err := s.unitRecord(o.Name)
	if err != nil {
		return err
	}
	for _, w := range awaited(o.Again, rec.Awaits) {
		if err := s.applyWait(ctx, w); err != nil {
			var late *op.Error
			if ctx.Err() != nil || !errors.As(err, &late) {
				return err
			}
			return s.unhealthy(ctx, o, late)
		}
	}
	if len(rec.Awaits) == 0 {
		return nil
	}
	rec.Awaits = nil
	return s.keep(s.state("units", o.Name+".json"), rec)
}

// unhealthy is the failure of a unit that has been started and does not serve, in
// its own words where it has any.
func (s *session) unhealthy(ctx context.Context, o op.Unit, late *op.Error) error {
	failed := &op.Error{Reason: op.ReasonUnhealthy, Message: fmt.Sprintf("%s was restarted, but %s", o.Name, late.Message)}
	err := s.withJournal(ctx, o.Name, failed)
	var told *op.Error
	if errors.As(err, &told) && told.Detail != "" {
		told.Message += "; " + o.Name + " says: " + lastWords(told.Detail)
	}
	return err
}

// stopForgetting stops a unit and removes the files that it must not find when it starts.
func (s *session) stopForgetting(ctx context.Context, o op.Unit) error {
	if err := s.systemctl(ctx, "stop", "--", o.Name); err != nil {
		return err
	}
	for _, path := range o.Forgets {
		if err := s.disk.Remove(s.path(path)); err != nil {
			return err
		}
	}
	return nil
}
