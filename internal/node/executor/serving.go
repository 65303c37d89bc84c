//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/op"
)

// servingOp executes op.Serving.
type servingOp struct{ o op.Serving }

func (*servingOp) LedgerEntries() ([]subject, bool) {
	return nil, true
}

// servedBefore has what responded before a step changed something, and has not responded
// since.
type servedBefore struct {
	Awaits []string `json:"awaits"`
}

func (s *session) servingFile(o op.Serving) string { return s.state("serving", o.Name+".json") }

func (s *session) served(o op.Serving) (rec servedBefore, err error) {
	raw, err := atomicfile.ReadFile(s.servingFile(o), bounded.Record)
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

// noteServing records what responds before the first operation of a list changes
// something on which it depends.
func (s *session) noteServing(ctx context.Context) error {
	if s.noted {
		return nil
	}
	for _, o := range s.batch.Ops[s.index+1:] {
		o, ok := o.(op.Serving)
		if !ok {
			continue
		}
		rec, err := s.served(o)
		if err != nil {
			return err
		}
		if rec.Awaits, err = s.answering(ctx, o.Waits, rec.Awaits, true); err != nil {
			return err
		}
		if err := s.keep(s.servingFile(o), rec); err != nil {
			return err
		}
	}
	s.noted = true
	return nil
}

func (x *servingOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	if o.Name == "" || filepath.Base(o.Name) != o.Name || o.SettleSeconds < 0 {
		return verdict{}, invalid("the name %q or the settle time of %d seconds is not valid", o.Name, o.SettleSeconds)
	}
	rec, err := s.served(o)
	if err != nil || len(awaited(o.Waits, rec.Awaits)) == 0 {
		return verdict{}, err
	}
	return verdict{change: "wait until it serves as before"}, nil
}

// Apply waits for what responded before the changes.
func (x *servingOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	rec, err := s.served(o)
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
	for _, w := range awaited(o.Waits, rec.Awaits) {
		if err := s.applyWait(ctx, w); err != nil {
			var late *op.Error
			if ctx.Err() != nil || !errors.As(err, &late) {
				return err
			}
			return &op.Error{Reason: op.ReasonUnhealthy, Message: "this host has new settings, but " + late.Message, Detail: late.Detail}
		}
	}
	return s.keep(s.servingFile(o), servedBefore{})
}
