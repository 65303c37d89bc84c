//go:build linux

package executor

import (
	"bytes"
	"context"

	"slipway.dev/slipway/internal/node/op"
)

// askOp executes op.Ask.
type askOp struct{ o op.Ask }

func (x *askOp) Check(ctx context.Context, s *session) (verdict, error) {
	return s.ask(ctx, x.o)
}

// ask runs a read-only program.
func (s *session) ask(ctx context.Context, o op.Ask) (verdict, error) {
	if len(o.Argv) == 0 {
		return verdict{}, invalid("%s has no program to run", o.Name)
	}
	if _, err := s.program(o.Argv[0]); err != nil {
		return verdict{missing: true}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	out := &headWriter{limit: maxOutput}
	if err := s.run(bounded, command{argv: o.Argv, stdin: bytes.NewReader(o.Stdin), stdout: out}); err != nil {
		return verdict{missing: true}, ctx.Err()
	}
	return verdict{output: out.buf}, nil
}
