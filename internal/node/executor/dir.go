//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// absentOp executes op.Absent.
type absentOp struct{ o op.Absent }

func (x *absentOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	return s.applyAbsent(x.o)
}

func (x *absentOp) Paths() []string {
	return []string{x.o.Target()}
}

func (x *absentOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, x.o.Target()}}, true
}

// dirOp executes op.Dir.
type dirOp struct{ o op.Dir }

func (x *dirOp) Paths() []string {
	return []string{x.o.Target()}
}

func (x *dirOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, x.o.Target()}}, true
}

// linkOp executes op.Link.
type linkOp struct{ o op.Link }

func (x *linkOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	return s.applyLink(x.o)
}

func (x *linkOp) Paths() []string {
	return []string{x.o.Target()}
}

func (x *linkOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, x.o.Target()}}, true
}

func (x *dirOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	want, unknown, err := s.wanted(o.Mode, 0o755, o.Owner, o.Group)
	if err != nil {
		return verdict{}, err
	}
	path, err := s.followed(o.Path)
	if err != nil {
		return verdict{}, err
	}
	p := s.path(path)
	info, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return verdict{change: "create"}, nil
	}
	if err != nil {
		return verdict{}, err
	}
	if !info.IsDir() {
		return verdict{}, invalid("%s exists and is not a directory", o.Path)
	}
	now, err := atomicfile.ReadMeta(p)
	if err != nil {
		return verdict{}, err
	}
	change := differs(now, want, unknown)
	if o.Exclusive {
		note, err := s.unnoted(path)
		if err != nil {
			return verdict{}, err
		}
		if note != "" {
			change = append(change, note)
		}
	}
	return verdict{change: strings.Join(change, ", ")}, nil
}

// unnoted returns what must be recorded in the ledger about a directory before it gets
// new content, which would otherwise remain for ever: that it is empty, or its content.
func (s *session) unnoted(path string) (string, error) {
	empty, err := ledger.Vacant(s.path(path))
	if err != nil {
		return "", err
	}
	l, err := ledger.Open(s.State, s.Root, s.disk, ledger.Owner{})
	switch {
	case err != nil || l.Get(ledger.KindPath, path) != nil:
		return "", err
	case empty:
		return "record that it is empty", nil
	}
	return "record its content", nil
}

// followed returns the directory that a link leads to, or the path itself: a host can
// have its data elsewhere. The link is kept, and the ledger has the changes by their real
// name.
func (s *session) followed(path string) (string, error) {
	p := s.path(path)
	if info, err := os.Lstat(p); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil // a problem with it is reported where it is used
	}
	real, err := filepath.EvalSymlinks(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", invalid("%s is a symbolic link to a missing file", path)
	}
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", path, err)
	}
	root := strings.TrimSuffix(filepath.Clean(s.Root), "/")
	below, ok := strings.CutPrefix(real, root+"/")
	if !ok {
		return "", invalid("%s leads outside the file system of this host, to %s", path, real)
	}
	return "/" + below, nil
}

func (x *dirOp) Apply(_ context.Context, s *session, _ *op.Result) error {
	o := x.o
	want, unknown, err := s.wanted(o.Mode, 0o755, o.Owner, o.Group)
	if err != nil {
		return err
	}
	if unknown != "" {
		return invalid("%s", unknown)
	}
	path, err := s.followed(o.Path)
	if err != nil {
		return err
	}
	save := s.ledger.SavePath
	if o.Exclusive {
		save = s.ledger.SaveOwn
		if err := s.saveContent(path, o.Shared); err != nil {
			return err
		}
	}
	if err := save(path); err != nil {
		return err
	}
	if err := s.ledger.Intend(path, ledger.DirState(want)); err != nil {
		return err
	}
	if err := s.parents(path); err != nil {
		return err
	}
	return s.disk.Mkdir(s.path(path), want)
}

// saveContent records the content of other software in a directory that Slipway is about
// to use.
func (s *session) saveContent(path string, shared []string) error {
	if s.ledger.Get(ledger.KindPath, path) != nil {
		return nil // its current content may belong to Slipway
	}
	dirs := []string{path}
	for _, name := range shared {
		dirs = append(dirs, filepath.Join(path, name))
	}
	for _, dir := range dirs {
		info, err := os.Lstat(s.path(dir))
		if err != nil || !info.IsDir() {
			continue // new content there belongs to the directory above
		}
		if empty, err := ledger.Vacant(s.path(dir)); err != nil || empty && dir == path {
			return err
		}
		if err := s.ledger.SaveContent(dir); err != nil {
			return err
		}
	}
	return nil
}

func (x *linkOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	now, err := ledger.State(s.path(o.Path))
	if err != nil {
		return verdict{}, err
	}
	v := verdict{wrote: map[string]string{o.Path: ledger.LinkState(o.To)}}
	kind, is, _ := strings.Cut(now, " ")
	switch {
	case now == ledger.LinkState(o.To):
	case now == ledger.Absent:
		v.change = "create"
	case kind == "link":
		v.change = "to " + o.To + " instead of " + is
	case kind == "dir":
		return v, invalid("%s is a directory", o.Path)
	default:
		v.change = "replace a file"
	}
	return v, nil
}

func (s *session) applyLink(o op.Link) error { return s.link(o.Path, o.To) }

func (s *session) link(path, to string) error {
	if err := s.ledger.SavePath(path); err != nil {
		return err
	}
	if err := s.parents(path); err != nil {
		return err
	}
	if err := s.ledger.Intend(path, ledger.LinkState(to)); err != nil {
		return err
	}
	return s.disk.Link(s.path(path), to, atomicfile.Meta{})
}

func (x *absentOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	v := verdict{wrote: map[string]string{o.Path: ledger.Absent}}
	info, err := os.Lstat(s.path(o.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	if v.change = "remove"; !info.IsDir() {
		return v, nil
	}
	entries, err := atomicfile.ReadDir(s.path(o.Path))
	if err != nil || len(entries) == 0 {
		return v, err
	}
	if !o.Recursive {
		return v, invalid("%s is a directory with content", o.Path)
	}
	if mounts, err := ledger.MountedBelow(s.path(o.Path)); err != nil || len(mounts) > 0 {
		return v, errors.Join(err, invalid("%s contains mounts: %s", o.Path, strings.Join(mounts, ", ")))
	}
	v.change = "remove with its content"
	return v, nil
}

func (s *session) applyAbsent(o op.Absent) error {
	if err := s.forget(o.Path); err != nil {
		return err
	}
	p := s.path(o.Path)
	if entries, err := os.ReadDir(p); err == nil && len(entries) > 0 {
		return s.ledger.MoveTree(o.Path)
	}
	if err := s.ledger.SavePath(o.Path); err != nil {
		return err
	}
	if err := s.ledger.Intend(o.Path, ledger.Absent); err != nil {
		return err
	}
	return s.disk.Remove(p)
}
