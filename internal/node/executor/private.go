//go:build linux

package executor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// privateOp executes op.Private.
type privateOp struct{ o op.Private }

func (x *privateOp) Paths() []string {
	return x.o.Paths
}

// open returns the files that users other than root can read or change.
func (s *session) open(o op.Private) (files, changes []string, err error) {
	for _, pattern := range o.Paths {
		matches, err := filepath.Glob(s.path(pattern))
		if err != nil {
			return nil, nil, invalid("pattern %q: %v", pattern, err)
		}
		for _, m := range matches {
			info, err := os.Lstat(m)
			if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
				continue // the target of a link is checked separately
			}
			if err != nil {
				return nil, nil, err
			}
			now := atomicfile.Meta{Mode: info.Mode(), UID: int(statOf(info).Uid), GID: int(statOf(info).Gid)}
			want := atomicfile.Meta{Mode: now.Mode.Perm() &^ 0o077}
			if how := differs(now, want, ""); len(how) > 0 {
				path := s.onHost(m)
				files = append(files, path)
				for _, h := range how {
					changes = append(changes, path+": "+h)
				}
			}
		}
	}
	return files, changes, nil
}

func (x *privateOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	_, changes, err := s.open(o)
	return verdict{change: some(changes)}, err
}

func (x *privateOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
	files, _, err := s.open(o)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !s.ledger.WasAbsent(f) {
			if err := s.ledger.SavePath(f); err != nil {
				return err
			}
		}
		p := s.path(f)
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
