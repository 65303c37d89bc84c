//go:build linux

package executor

import (
	"bytes"
	"context"
	"fmt"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// selfOp executes op.Self.
type selfOp struct{ o op.Self }

func (x *selfOp) Paths() []string {
	return []string{x.o.Target()}
}

func (x *selfOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, x.o.Target()}}, true
}

// program is the running helper, also if its file was removed.
const program = "/proc/self/exe"

// Check compares contents, not names: the helper of another version has different
// content.
func (x *selfOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	have, err := s.read(o.Path)
	if err != nil {
		return verdict{}, err
	}
	want, err := atomicfile.ReadFile(program, bounded.Config)
	switch {
	case err != nil:
		return verdict{}, fmt.Errorf("reading the helper's program: %w", err)
	case len(have) == 0:
		return verdict{change: "create"}, nil
	case !bytes.Equal(have, want):
		return verdict{change: "replace another version"}, nil
	}
	now, err := atomicfile.ReadMeta(s.path(o.Path))
	if err == nil && now.Mode.Perm()&0o111 == 0 {
		return verdict{change: "make it executable"}, nil
	}
	return verdict{}, err
}

// Apply replaces the program atomically: a running one keeps its file.
func (x *selfOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
	raw, err := atomicfile.ReadFile(program, bounded.Config)
	if err != nil {
		return fmt.Errorf("reading the helper's program: %w", err)
	}
	return s.write(o.Path, raw, atomicfile.Meta{Mode: 0o755})
}
