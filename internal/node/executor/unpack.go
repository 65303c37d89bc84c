//go:build linux

package executor

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// unpackOp executes op.Unpack.
type unpackOp struct{ o op.Unpack }

func (x *unpackOp) Check(ctx context.Context, s *session) (verdict, error) {
	v, err := s.checkUnpack(x.o)
	return s.unless(ctx, x.o.UnlessServes, v, err)
}

func (x *unpackOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	if err := s.pass(ctx, x.o.Gate); err != nil {
		return err
	}
	return s.applyUnpack(ctx, x.o)
}

func (x *unpackOp) Paths() []string {
	return []string{x.o.Dir}
}

// unpacked is the record of an Unpack: enough to check quickly that the files still
// exist.
type unpacked struct {
	Digest  string           `json:"digest"`
	Strip   string           `json:"strip,omitempty"`
	Members []string         `json:"members,omitempty"`
	Files   []unpackedMember `json:"files"`
}

// unpackedMember is one file. Its size, time and inode at the time of writing avoid
// reading it again.
type unpackedMember struct {
	Path  string `json:"path"`
	State string `json:"state"` // in the form of the ledger's states; "" for a directory
	Mode  uint32 `json:"mode,omitempty"`
	Size  int64  `json:"size,omitempty"`
	MTime int64  `json:"mtime,omitempty"` // nanoseconds since 1970
	Inode uint64 `json:"inode,omitempty"`
}

func (s *session) unpackedPath(o op.Unpack) string {
	return s.state("unpacked", digest([]byte(o.Target()))+".json")
}

func (s *session) unpacked(o op.Unpack) (unpacked, error) {
	var rec unpacked
	raw, err := atomicfile.ReadFile(s.unpackedPath(o), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return rec, fmt.Errorf("reading what %s unpacked: %w", o.Target(), err)
	}
	return rec, nil
}

func (s *session) checkUnpack(o op.Unpack) (verdict, error) {
	if err := checkBlobName(o.Blob); err != nil {
		return verdict{}, err
	}
	rec, err := s.unpacked(o)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{wrote: map[string]string{}}
	for _, m := range o.Members {
		v.wrote[filepath.Join(o.Dir, m)] = "" // not known before
	}
	if rec.Digest == "" {
		v.change = "unpack " + blobText(o.Size)
		return v, nil
	}
	if rec.Digest != o.Digest || rec.Strip != o.Strip || !slices.Equal(rec.Members, o.Members) {
		v.change = "unpack another version, " + blobText(o.Size)
		return v, nil
	}
	var wrong []string
	v.wrote = map[string]string{}
	for _, m := range rec.Files {
		ok, err := s.intact(m)
		if err != nil {
			return verdict{}, err
		}
		if !ok {
			wrong = append(wrong, m.Path)
			v.wrote[m.Path] = m.State
		}
	}
	if len(wrong) > 0 {
		v.change = fmt.Sprintf("unpack again: %s is missing or has changed", some(wrong))
	}
	return v, nil
}

// some names a few of many.
func some(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// intact reports whether a file is unchanged since it was unpacked.
func (s *session) intact(m unpackedMember) (bool, error) {
	p := s.path(m.Path)
	info, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if m.State == "" {
		info, err = os.Stat(p)
		return err == nil && info.IsDir(), nil
	}
	if info.Mode().IsRegular() {
		if !mayStay(info, m) {
			return false, nil
		}
		if info.Size() == m.Size && info.ModTime().UnixNano() == m.MTime && statOf(info).Ino == m.Inode {
			return true, nil
		}
	}
	state, err := ledger.State(p)
	return state == m.State, err
}

// mayStay reports whether a file has the wanted mode, and belongs to root.
func mayStay(info fs.FileInfo, m unpackedMember) bool {
	st := statOf(info)
	return uint32(info.Mode().Perm()) == m.Mode && st.Uid == 0 && st.Gid == 0
}

func (s *session) applyUnpack(ctx context.Context, o op.Unpack) error {
	blob, err := s.blob(ctx, o.Blob, 0, o.Size)
	if err != nil {
		return err
	}
	f, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := plain(f)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.Name, err)
	}
	rec := unpacked{Digest: o.Digest, Strip: o.Strip, Members: o.Members}
	if err := s.unpackAll(ctx, o, tar.NewReader(content), &rec); err != nil {
		return err
	}
	for _, want := range o.Members {
		if !slices.ContainsFunc(rec.Files, func(m unpackedMember) bool { return m.Path == filepath.Join(o.Dir, want) }) {
			return invalid("%s has no file %s", o.Name, o.Strip+want)
		}
	}
	if err := s.keep(s.unpackedPath(o), rec); err != nil {
		return err
	}
	return s.letGo(o.Blob)
}

// plain returns a stream without its gzip compression, if it has any.
func plain(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		return gzip.NewReader(b)
	}
	return b, nil
}

func (s *session) unpackAll(ctx context.Context, o op.Unpack, members *tar.Reader, rec *unpacked) error {
	if err := s.makeDir(o.Dir, 0o755); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", o.Name, err)
		}
		name, ok, err := memberName(o, h.Name)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		m, err := s.unpackMember(o, name, h, members)
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", h.Name, err)
		}
		rec.Files = append(rec.Files, m)
	}
}

// memberName returns the path of a file below the directory; false means that it is
// skipped.
func memberName(o op.Unpack, name string) (string, bool, error) {
	name = strings.TrimPrefix(name, "./")
	name, ok := strings.CutPrefix(name, o.Strip)
	if name = path.Clean(name); !ok || name == "." {
		return "", false, nil
	}
	if !filepath.IsLocal(name) {
		return "", false, invalid("file %q of %s would be outside %s", name, o.Name, o.Dir)
	}
	return name, len(o.Members) == 0 || slices.Contains(o.Members, name), nil
}

func (s *session) unpackMember(o op.Unpack, name string, h *tar.Header, content io.Reader) (unpackedMember, error) {
	dest := filepath.Join(o.Dir, name)
	if err := s.within(o.Dir, name); err != nil {
		return unpackedMember{}, err
	}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		return unpackedMember{Path: dest}, s.makeDir(dest, 0o755)
	case tar.TypeReg:
		return s.unpackFile(dest, mode, content)
	case tar.TypeSymlink:
		if filepath.IsAbs(h.Linkname) ||
			!filepath.IsLocal(filepath.Join(filepath.Dir(name), h.Linkname)) { //nolint:gosec // this is the test for it
			return unpackedMember{}, invalid("it is a link to a path outside %s: %s", o.Dir, h.Linkname)
		}
		return unpackedMember{Path: dest, State: ledger.LinkState(h.Linkname)}, s.unpackLink(dest, h.Linkname)
	}
	return unpackedMember{}, invalid("it is not a file, a directory or a link")
}

// within rejects a file with a parent below dir that is a link to a path outside of it.
func (s *session) within(dir, name string) error {
	parent := s.path(filepath.Join(dir, filepath.Dir(name)))
	root, err := filepath.EvalSymlinks(s.path(dir))
	if err != nil {
		return err
	}
	for !exists(parent) {
		parent = filepath.Dir(parent)
	}
	real, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return err
	}
	if real != root && !strings.HasPrefix(real, strings.TrimSuffix(root, "/")+"/") {
		return invalid("%s leads outside %s", filepath.Dir(name), dir)
	}
	return nil
}

// makeDir creates a directory; an existing one is not changed.
func (s *session) makeDir(dir string, mode fs.FileMode) error {
	if info, err := os.Stat(s.path(dir)); err == nil && info.IsDir() {
		return nil
	}
	if err := s.ledger.SavePath(dir); err != nil {
		return err
	}
	return s.disk.MkdirAll(s.path(dir), atomicfile.Meta{Mode: mode})
}

// unpackFile writes a file next to its path and renames it only if the existing content
// or mode differs: a running program keeps its inode.
func (s *session) unpackFile(dest string, mode fs.FileMode, content io.Reader) (unpackedMember, error) {
	m := unpackedMember{Path: dest, Mode: uint32(mode)}
	if err := s.ledger.SavePath(dest); err != nil {
		return m, err
	}
	if err := s.parents(dest); err != nil {
		return m, err
	}
	p := s.path(dest)
	staged, err := s.disk.Stage(p, content, atomicfile.Meta{Mode: mode})
	if err != nil {
		return m, err
	}
	m.State = ledger.FileState(staged.SHA256)
	if err := s.place(dest, m, staged); err != nil {
		return m, err
	}
	info, err := os.Lstat(p)
	if err != nil {
		return m, err
	}
	m.Size, m.MTime, m.Inode = info.Size(), info.ModTime().UnixNano(), statOf(info).Ino
	return m, nil
}

func (s *session) place(dest string, m unpackedMember, staged *atomicfile.Staged) error {
	now, err := ledger.State(s.path(dest))
	if err != nil {
		return errors.Join(err, staged.Discard())
	}
	if strings.HasPrefix(now, "dir ") {
		return errors.Join(invalid("a directory already exists at its path"), staged.Discard())
	}
	if now == m.State {
		if info, err := os.Lstat(s.path(dest)); err == nil && mayStay(info, m) {
			return staged.Discard()
		}
	}
	if err := s.ledger.Intend(dest, m.State); err != nil {
		return errors.Join(err, staged.Discard())
	}
	return staged.Commit()
}

func (s *session) unpackLink(dest, to string) error {
	now, err := ledger.State(s.path(dest))
	if err != nil || now == ledger.LinkState(to) {
		return err
	}
	if strings.HasPrefix(now, "dir ") {
		return invalid("a directory already exists at its path")
	}
	return s.link(dest, to)
}
