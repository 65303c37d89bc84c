//go:build linux

package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

// planRestartChecks plans to check a restarted unit with everything that responded before.
func planRestartChecks(h *host.Host, o op.Unit, p *unitPlan) error {
	if len(o.Again) == 0 {
		return nil
	}
	rec, err := systemctl.ReadUnitRecord(h, o.Name)
	if len(awaitedWaits(o.Again, rec.Awaits)) > 0 {
		p.add(&p.await, "wait until it serves again")
	}
	return err
}

// awaitedWaits returns the named ones of waits.
func awaitedWaits(waits []op.Wait, names []string) (out []op.Wait) {
	for _, w := range waits {
		if slices.Contains(names, w.Target()) {
			out = append(out, w)
		}
	}
	return out
}

// respondingWaits returns what must respond again after a change: what responded before an
// earlier change and has not responded since, and what responds now, if asked is true.
func respondingWaits(ctx context.Context, h *host.Host, waits []op.Wait, before []string, asked bool) ([]string, error) {
	var names []string
	for _, w := range waits {
		if err := health.RequireOneCondition(w); err != nil {
			return nil, err
		}
		now := w
		now.Since, now.SinceSeconds = "", 0 // it has responded, however long the unit has been running
		if slices.Contains(before, w.Target()) || asked && health.ProbeCondition(ctx, h, now) == nil {
			names = append(names, w.Target())
		}
	}
	return names, ctx.Err()
}

// awaitRestarted waits for what responded before the restart of a unit.
func awaitRestarted(ctx context.Context, h *host.Host, o op.Unit) error {
	if len(o.Again) == 0 {
		return nil
	}
	rec, err := systemctl.ReadUnitRecord(h, o.Name)
	if err != nil {
		return err
	}
	for _, w := range awaitedWaits(o.Again, rec.Awaits) {
		if err := health.AwaitCondition(ctx, h, w); err != nil {
			var late *op.Error
			if ctx.Err() != nil || !errors.As(err, &late) {
				return err
			}
			return unhealthyReason(ctx, h, o, late)
		}
	}
	if len(rec.Awaits) == 0 {
		return nil
	}
	rec.Awaits = nil
	return h.WriteRecord(h.StatePath("units", o.Name+".json"), rec)
}

// unhealthyReason returns the error for a started unit that does not serve, with its own
// output if it has any.
func unhealthyReason(ctx context.Context, h *host.Host, o op.Unit, late *op.Error) error {
	failed := &op.Error{Reason: op.ReasonUnhealthy, Message: fmt.Sprintf("%s was restarted, but %s", o.Name, late.Message)}
	err := systemctl.WithJournal(ctx, h, o.Name, failed)
	var told *op.Error
	if errors.As(err, &told) && told.Detail != "" {
		told.Message += "; " + o.Name + " says: " + health.LastLines(told.Detail)
	}
	return err
}

// stopAndForget stops a unit and removes the files that it must not have at its start.
func stopAndForget(ctx context.Context, h *host.Host, o op.Unit) error {
	if err := systemctl.RunSystemctl(ctx, h, "stop", "--", o.Name); err != nil {
		return err
	}
	for _, path := range o.Forgets {
		if err := h.Disk.RemovePath(h.DiskPath(path)); err != nil {
			return err
		}
	}
	return nil
}
