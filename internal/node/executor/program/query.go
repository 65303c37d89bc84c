//go:build linux

package program

import (
	"bytes"
	"context"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// QueryOp executes op.Query.
type QueryOp struct{ Op op.Query }

func (x *QueryOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	return askProgram(ctx, h, x.Op)
}

// askProgram runs a read-only program.
func askProgram(ctx context.Context, h *host.Host, o op.Query) (host.CheckResult, error) {
	if len(o.Argv) == 0 {
		return host.CheckResult{}, host.Invalid("%s has no program to run", o.Name)
	}
	if _, err := h.FindProgram(o.Argv[0]); err != nil {
		return host.CheckResult{Missing: true}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	out := &host.HeadWriter{Limit: maxOutput}
	if err := h.Run(bounded, host.Command{Argv: o.Argv, Stdin: bytes.NewReader(o.Stdin), Stdout: out}); err != nil {
		return host.CheckResult{Missing: true}, ctx.Err()
	}
	return host.CheckResult{Output: out.Buf}, nil
}
