//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"slipway.dev/slipway/internal/node/op"
)

// planAgain plans to check a restarted unit with everything that responded before.
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

// awaited returns the named ones of waits.
func awaited(waits []op.Wait, names []string) (out []op.Wait) {
	for _, w := range waits {
		if slices.Contains(names, w.Target()) {
			out = append(out, w)
		}
	}
	return out
}

// answering returns what must respond again after a change: what responded before an
// earlier change and has not responded since, and what responds now, if asked is true.
func (s *session) answering(ctx context.Context, waits []op.Wait, before []string, asked bool) ([]string, error) {
	var names []string
	for _, w := range waits {
		if err := checkOne(w); err != nil {
			return nil, err
		}
		now := w
		now.Since, now.SinceSeconds = "", 0 // it has responded, however long the unit has been running
		if slices.Contains(before, w.Target()) || asked && s.probe(ctx, now) == nil {
			names = append(names, w.Target())
		}
	}
	return names, ctx.Err()
}

// serveAgain waits for what responded before the restart of a unit.
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

// unhealthy returns the error for a started unit that does not serve, with its own output
// if it has any.
func (s *session) unhealthy(ctx context.Context, o op.Unit, late *op.Error) error {
	failed := &op.Error{Reason: op.ReasonUnhealthy, Message: fmt.Sprintf("%s was restarted, but %s", o.Name, late.Message)}
	err := s.withJournal(ctx, o.Name, failed)
	var told *op.Error
	if errors.As(err, &told) && told.Detail != "" {
		told.Message += "; " + o.Name + " says: " + lastWords(told.Detail)
	}
	return err
}

// stopForgetting stops a unit and removes the files that it must not have at its start.
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
