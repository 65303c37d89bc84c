//go:build linux

package executor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// fileOp executes op.File.
type fileOp struct{ o op.File }

func (x *fileOp) Check(ctx context.Context, s *session) (verdict, error) {
	v, err := s.checkFile(x.o)
	return s.unless(ctx, x.o.UnlessServes, v, err)
}

func (x *fileOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	if err := s.pass(ctx, x.o.Gate); err != nil {
		return err
	}
	return s.applyFile(x.o)
}

func (x *fileOp) Paths() []string {
	return []string{x.o.Target()}
}

func (x *fileOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindPath, x.o.Target()}}, true
}

// readFileOp executes op.ReadFile.
type readFileOp struct{ o op.ReadFile }

func (x *readFileOp) Paths() []string {
	return []string{x.o.Target()}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// wanted returns the mode and owner of an operation. An owner that is not known yet (a
// user of an earlier operation) is returned by name.
func (s *session) wanted(mode, fallback fs.FileMode, owner, group string) (m atomicfile.Meta, unknown string, err error) {
	m.Mode = mode.Perm()
	if m.Mode == 0 {
		m.Mode = fallback
	}
	if m.UID, err = s.userID(owner); err == nil {
		m.GID, err = s.groupID(group)
	}
	var no unknownName
	if errors.As(err, &no) {
		return m, no.Error(), nil
	}
	return m, "", err
}

// differs describes how mode and owner differ from the wanted ones.
func differs(now, want atomicfile.Meta, unknown string) []string {
	var out []string
	if now.Mode.Perm() != want.Mode {
		out = append(out, fmt.Sprintf("mode %04o → %04o", now.Mode.Perm(), want.Mode))
	}
	switch {
	case unknown != "":
		out = append(out, unknown+" yet")
	case now.UID != want.UID || now.GID != want.GID:
		out = append(out, fmt.Sprintf("owner %d:%d → %d:%d", now.UID, now.GID, want.UID, want.GID))
	}
	return out
}

// unless returns the result of a check, without changes if Serves responds.
func (s *session) unless(ctx context.Context, answers *op.Wait, v verdict, err error) (verdict, error) {
	if err == nil && v.change != "" && answers != nil && s.serves(ctx, *answers) {
		return verdict{}, nil
	}
	return v, err
}

func (s *session) checkFile(o op.File) (verdict, error) {
	want, unknown, err := s.wanted(o.Mode, 0o644, o.Owner, o.Group)
	if err != nil {
		return verdict{}, err
	}
	return s.compareFile(o, want, unknown)
}

// compareFile describes how a file differs from the wanted content, mode and owner.
func (s *session) compareFile(o op.File, want atomicfile.Meta, unknown string) (verdict, error) {
	v := verdict{wrote: map[string]string{o.Path: ledger.FileState(digest(o.Content))}}
	p := s.path(o.Path)
	info, err := os.Lstat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.change, v.diff = "create", fileDiff("/dev/null", o, nil)
		return v, nil
	case err != nil:
		return v, err
	case info.IsDir():
		return v, invalid("%s is a directory", o.Path)
	case !info.Mode().IsRegular():
		v.change = "replace something that is not a regular file"
		return v, nil
	}
	now, err := atomicfile.ReadMeta(p)
	if err != nil {
		return v, err
	}
	changes := differs(now, want, unknown)
	if info.Size() != int64(len(o.Content)) {
		changes = append([]string{"content"}, changes...)
	}
	old, err := atomicfile.ReadFile(p, bounded.Config)
	if err != nil {
		return v, err
	}
	if info.Size() == int64(len(o.Content)) && !bytes.Equal(old, o.Content) {
		changes = append([]string{"content"}, changes...)
	}
	v.change, v.diff = strings.Join(changes, ", "), fileDiff(o.Path, o, old)
	return v, nil
}

func fileDiff(from string, o op.File, old []byte) string {
	if o.Secret {
		return ""
	}
	return unified(from, o.Path, old, o.Content)
}

func (s *session) applyFile(o op.File) error {
	want, unknown, err := s.wanted(o.Mode, 0o644, o.Owner, o.Group)
	if err != nil {
		return err
	}
	if unknown != "" {
		return invalid("%s", unknown)
	}
	return s.write(o.Path, o.Content, want)
}

// write sets content, mode and owner of a path; the replaced state is in the ledger, and
// other attributes are kept. From now on the operation decides the content, and not a
// program.
func (s *session) write(path string, content []byte, m atomicfile.Meta) error {
	if err := s.forget(path); err != nil {
		return err
	}
	return s.put(path, content, m)
}

func (s *session) put(path string, content []byte, m atomicfile.Meta) error {
	if err := s.ledger.SavePath(path); err != nil {
		return err
	}
	if err := s.parents(path); err != nil {
		return err
	}
	if err := s.ledger.Intend(path, ledger.FileState(digest(content))); err != nil {
		return err
	}
	return s.replace(path, content, m)
}

// replace writes a file that is in the ledger.
func (s *session) replace(path string, content []byte, m atomicfile.Meta) error {
	p := s.path(path)
	if now, err := atomicfile.ReadMeta(p); err == nil {
		m.XAttrs = now.XAttrs
	}
	return s.disk.Replace(p, bytes.NewReader(content), m)
}

// edit writes with unchanged mode and owner; a new file belongs to root, with mode 0644.
func (s *session) edit(path string, content []byte) error {
	m := atomicfile.Meta{Mode: 0o644}
	now, err := atomicfile.ReadMeta(s.path(path))
	if err == nil {
		m = atomicfile.Meta{Mode: now.Mode, UID: now.UID, GID: now.GID}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.write(path, content, m)
}

// parents creates the missing parents of a path; SavePath has recorded them.
func (s *session) parents(path string) error {
	return s.disk.MkdirAll(filepath.Dir(s.path(path)), atomicfile.Meta{Mode: 0o755})
}

// read reads a file of the host; a missing one is empty.
func (s *session) read(path string) ([]byte, error) {
	raw, err := atomicfile.ReadFile(s.path(path), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// maxRead is the size limit of ReadFile, in bytes.
const maxRead = 8 << 20

func (x *readFileOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	v := verdict{secret: o.Secret}
	info, err := os.Stat(s.path(o.Path))
	if errors.Is(err, fs.ErrNotExist) {
		v.missing = true
		return v, nil
	}
	if err != nil {
		return v, err
	}
	if info.Size() > maxRead {
		return v, invalid("%s has %d bytes, which is too large for a reply", o.Path, info.Size())
	}
	v.output, err = atomicfile.ReadFile(s.path(o.Path), bounded.Config)
	return v, err
}
