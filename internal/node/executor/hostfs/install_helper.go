//go:build linux

package hostfs

import (
	"bytes"
	"context"
	"fmt"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// InstallHelperOp executes op.InstallHelper.
type InstallHelperOp struct{ Op op.InstallHelper }

func (x *InstallHelperOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *InstallHelperOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.Target()}}, true
}

// program is the running helper, also if its file was removed.
const program = "/proc/self/exe"

// Check compares contents, not names: the helper of another version has different
// content.
func (x *InstallHelperOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	have, err := h.ReadFile(o.Path)
	if err != nil {
		return host.CheckResult{}, err
	}
	want, err := atomicfile.ReadFile(program, bounded.Config)
	switch {
	case err != nil:
		return host.CheckResult{}, fmt.Errorf("reading the helper's program: %w", err)
	case len(have) == 0:
		return host.CheckResult{Change: "create"}, nil
	case !bytes.Equal(have, want):
		return host.CheckResult{Change: "replace another version"}, nil
	}
	now, err := atomicfile.ReadMeta(h.DiskPath(o.Path))
	if err == nil && now.Mode.Perm()&0o111 == 0 {
		return host.CheckResult{Change: "make it executable"}, nil
	}
	return host.CheckResult{}, err
}

// Apply replaces the program atomically: a running one keeps its file.
func (x *InstallHelperOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	raw, err := atomicfile.ReadFile(program, bounded.Config)
	if err != nil {
		return fmt.Errorf("reading the helper's program: %w", err)
	}
	return WriteFile(h, o.Path, raw, atomicfile.Meta{Mode: 0o755})
}
