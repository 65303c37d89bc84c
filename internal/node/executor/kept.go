//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// keptOp executes op.Kept.
type keptOp struct{ o op.Kept }

func (x *keptOp) Paths() []string {
	return []string{x.o.Target()}
}

// keptDir has, below the state directory, files in the state in which programs left them.
const keptDir = "kept"

// A keptFile is a file in the state in which a program left it.
type keptFile struct {
	Path    string      `json:"path"`
	By      string      `json:"by"` // the program
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"`
	UID     int         `json:"uid"`
	GID     int         `json:"gid"`
}

func (k keptFile) meta() atomicfile.Meta {
	return atomicfile.Meta{Mode: k.Mode, UID: k.UID, GID: k.GID}
}

func (s *session) keptPath(path string) string {
	return s.state(keptDir, digest([]byte(path))+".json")
}

// kept returns the saved state of a file, nil if nothing was saved.
func (s *session) kept(path string) (*keptFile, error) {
	raw, err := atomicfile.ReadFile(s.keptPath(path), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	k := &keptFile{}
	if err == nil {
		err = json.Unmarshal(raw, k)
	}
	if err != nil {
		return nil, fmt.Errorf("reading how %s was left: %w", path, err)
	}
	return k, nil
}

// forget removes the saved state of a file before Slipway writes the file again, so that
// after a crash the old saved state is not restored over the new content.
func (s *session) forget(paths ...string) error {
	for _, p := range paths {
		if !exists(s.keptPath(p)) {
			continue
		}
		if err := s.disk.Remove(s.keptPath(p)); err != nil {
			return fmt.Errorf("removing the saved state of %s: %w", p, err)
		}
	}
	return nil
}

// forgetMade calls forget for everything that a program may write.
func (s *session) forgetMade(o op.Exec) error {
	files, err := s.made(o)
	if err != nil {
		return err
	}
	return s.forget(slices.Concat(files, o.Replaces, o.Keeps)...)
}

// remember saves the results of a successful program. A file that the program did not
// create is not saved.
func (s *session) remember(o op.Exec) error {
	for _, p := range o.Keeps {
		content, err := atomicfile.ReadFile(s.path(p), bounded.Config)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		m, err := atomicfile.ReadMeta(s.path(p))
		if err != nil {
			return err
		}
		k := keptFile{Path: p, By: filepath.Base(o.Argv[0]), Content: content, Mode: m.Mode.Perm(), UID: m.UID, GID: m.GID}
		if err := s.keep(s.keptPath(p), k); err != nil {
			return err
		}
	}
	return nil
}

func (x *keptOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	if _, will := s.predicted[o.Path]; will { // it is created again
		return verdict{}, nil
	}
	k, err := s.kept(o.Path)
	if k == nil || err != nil {
		return verdict{}, err
	}
	v, err := s.compareFile(op.File{Path: k.Path, Content: k.Content}, k.meta(), "")
	if v.change == "create" {
		v.change, v.diff = "it is missing", "" // the whole content would not be a useful diff
	}
	if v.change != "" {
		v.change = fmt.Sprintf("restore %s's version: %s", k.By, v.change)
	}
	return v, err
}

// Apply restores a file. The ledger does not need an entry for it: nothing existed
// there before the program.
func (x *keptOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	k, err := s.kept(o.Path)
	if k == nil || err != nil {
		return err
	}
	if o.Serves == nil || s.serves(ctx, *o.Serves) {
		if err := s.pass(ctx, o.Gate); err != nil {
			return err
		}
	}
	put := s.put
	if s.ledger.WasAbsent(o.Path) {
		put = s.replace
		err = s.parents(o.Path)
	}
	if err == nil {
		err = put(o.Path, k.Content, k.meta())
	}
	if err != nil {
		return err
	}
	return s.pass(ctx, o.Then)
}
