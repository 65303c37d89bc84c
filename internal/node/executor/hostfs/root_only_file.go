//go:build linux

package hostfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// RootOnlyOp executes op.RootOnly.
type RootOnlyOp struct{ Op op.RootOnly }

func (x *RootOnlyOp) Paths() []string {
	return x.Op.Paths
}

// filesToRestrict returns the files that users other than root can read or change.
func filesToRestrict(h *host.Host, o op.RootOnly) (files, changes []string, err error) {
	for _, pattern := range o.Paths {
		matches, err := filepath.Glob(h.DiskPath(pattern))
		if err != nil {
			return nil, nil, host.Invalid("pattern %q: %v", pattern, err)
		}
		for _, m := range matches {
			info, err := os.Lstat(m)
			if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
				continue // the target of a link is checked separately
			}
			if err != nil {
				return nil, nil, err
			}
			now := atomicfile.Meta{Mode: info.Mode(), UID: int(host.StatOf(info).Uid), GID: int(host.StatOf(info).Gid)}
			want := atomicfile.Meta{Mode: now.Mode.Perm() &^ 0o077}
			if how := MetaDifferences(now, want, ""); len(how) > 0 {
				path := h.HostPath(m)
				files = append(files, path)
				for _, change := range how {
					changes = append(changes, path+": "+change)
				}
			}
		}
	}
	return files, changes, nil
}

func (x *RootOnlyOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	_, changes, err := filesToRestrict(h, o)
	return host.CheckResult{Change: host.Summarize(changes)}, err
}

func (x *RootOnlyOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	files, _, err := filesToRestrict(h, o)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !h.Ledger.WasAbsent(f) {
			if err := h.Ledger.SavePath(f); err != nil {
				return err
			}
		}
		p := h.DiskPath(f)
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		// The owner first: the owner could change the mode back.
		if err := os.Lchown(p, 0, 0); err != nil {
			return err
		}
		if err := os.Chmod(p, info.Mode().Perm()&^0o077); err != nil {
			return err
		}
	}
	return nil
}
