//go:build linux

package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// HealthGateOp executes op.HealthGate.
type HealthGateOp struct{ Op op.HealthGate }

func (*HealthGateOp) LedgerEntries() ([]host.Subject, bool) {
	return nil, true
}

// servedBefore has what responded before a step changed something, and has not responded
// since.
type servedBefore struct {
	Awaits []string `json:"awaits"`
}

func servedBeforePath(h *host.Host, o op.HealthGate) string {
	return h.StatePath("serving", o.Name+".json")
}

func readServedBefore(h *host.Host, o op.HealthGate) (rec servedBefore, err error) {
	raw, err := atomicfile.ReadFile(servedBeforePath(h, o), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err != nil {
		return rec, fmt.Errorf("reading the record of serving components: %w", err)
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return rec, fmt.Errorf("reading the record of serving components: %w", err)
	}
	return rec, nil
}

// NoteServing records what responds before the first operation of a list changes
// something on which it depends.
func NoteServing(ctx context.Context, h *host.Host) error {
	if h.Noted {
		return nil
	}
	for _, o := range h.Batch.Ops[h.Index+1:] {
		o, ok := o.(op.HealthGate)
		if !ok {
			continue
		}
		rec, err := readServedBefore(h, o)
		if err != nil {
			return err
		}
		if rec.Awaits, err = respondingWaits(ctx, h, o.Waits, rec.Awaits, true); err != nil {
			return err
		}
		if err := h.WriteRecord(servedBeforePath(h, o), rec); err != nil {
			return err
		}
	}
	h.Noted = true
	return nil
}

func (x *HealthGateOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if o.Name == "" || filepath.Base(o.Name) != o.Name || o.SettleSeconds < 0 {
		return host.CheckResult{}, host.Invalid("the name %q or the settle time of %d seconds is not valid", o.Name, o.SettleSeconds)
	}
	rec, err := readServedBefore(h, o)
	if err != nil || len(awaitedWaits(o.Waits, rec.Awaits)) == 0 {
		return host.CheckResult{}, err
	}
	return host.CheckResult{Change: "wait until it serves as before"}, nil
}

// Apply waits for what responded before the changes.
func (x *HealthGateOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	rec, err := readServedBefore(h, o)
	if err != nil {
		return err
	}
	settled := time.NewTimer(time.Duration(o.SettleSeconds) * time.Second)
	defer settled.Stop()
	select {
	case <-settled.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, w := range awaitedWaits(o.Waits, rec.Awaits) {
		if err := health.AwaitCondition(ctx, h, w); err != nil {
			var late *op.Error
			if ctx.Err() != nil || !errors.As(err, &late) {
				return err
			}
			return &op.Error{Reason: op.ReasonUnhealthy, Message: "this host has new settings, but " + late.Message, Detail: late.Detail}
		}
	}
	return h.WriteRecord(servedBeforePath(h, o), servedBefore{})
}
