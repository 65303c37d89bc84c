//go:build linux

package hostfs

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
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// UnpackOp executes op.Unpack.
type UnpackOp struct{ Op op.Unpack }

func (x *UnpackOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	v, err := checkUnpack(h, x.Op)
	return health.UnlessServes(ctx, h, x.Op.UnlessServes, v, err)
}

func (x *UnpackOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	if err := health.AwaitGate(ctx, h, x.Op.Gate); err != nil {
		return err
	}
	return applyUnpack(ctx, h, x.Op)
}

func (x *UnpackOp) Paths() []string {
	return []string{x.Op.Dir}
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

func unpackedPath(h *host.Host, o op.Unpack) string {
	return h.StatePath("unpacked", host.Digest([]byte(o.Target()))+".json")
}

func readUnpacked(h *host.Host, o op.Unpack) (unpacked, error) {
	var rec unpacked
	raw, err := atomicfile.ReadFile(unpackedPath(h, o), bounded.Record)
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

func checkUnpack(h *host.Host, o op.Unpack) (host.CheckResult, error) {
	if err := CheckBlobName(o.Blob); err != nil {
		return host.CheckResult{}, err
	}
	rec, err := readUnpacked(h, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	v := host.CheckResult{Wrote: map[string]string{}}
	for _, m := range o.Members {
		v.Wrote[filepath.Join(o.Dir, m)] = "" // not known before
	}
	if rec.Digest == "" {
		v.Change = "unpack " + BlobText(o.Size)
		return v, nil
	}
	if rec.Digest != o.Digest || rec.Strip != o.Strip || !slices.Equal(rec.Members, o.Members) {
		v.Change = "unpack another version, " + BlobText(o.Size)
		return v, nil
	}
	var wrong []string
	v.Wrote = map[string]string{}
	for _, m := range rec.Files {
		ok, err := isIntact(h, m)
		if err != nil {
			return host.CheckResult{}, err
		}
		if !ok {
			wrong = append(wrong, m.Path)
			v.Wrote[m.Path] = m.State
		}
	}
	if len(wrong) > 0 {
		v.Output = []byte(strings.Join(wrong, "\x00"))
		v.Change = fmt.Sprintf("unpack again: %s is missing or has changed", host.Summarize(wrong))
	}
	return v, nil
}

// isIntact reports whether a file is unchanged since it was unpacked.
func isIntact(h *host.Host, m unpackedMember) (bool, error) {
	p := h.DiskPath(m.Path)
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
		if !mayKeepMember(info, m) {
			return false, nil
		}
		if info.Size() == m.Size && info.ModTime().UnixNano() == m.MTime && host.StatOf(info).Ino == m.Inode {
			return true, nil
		}
	}
	state, err := ledger.PathState(p)
	return state == m.State, err
}

// mayKeepMember reports whether a file has the wanted mode, and belongs to root.
func mayKeepMember(info fs.FileInfo, m unpackedMember) bool {
	st := host.StatOf(info)
	return uint32(info.Mode().Perm()) == m.Mode && st.Uid == 0 && st.Gid == 0
}

func applyUnpack(ctx context.Context, h *host.Host, o op.Unpack) error {
	blob, err := GetBlob(ctx, h, o.Blob, 0, o.Size)
	if err != nil {
		return err
	}
	f, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := decompress(f)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.Name, err)
	}
	rec := unpacked{Digest: o.Digest, Strip: o.Strip, Members: o.Members}
	if err := unpackAll(ctx, h, o, tar.NewReader(content), &rec); err != nil {
		return err
	}
	for _, want := range o.Members {
		if !slices.ContainsFunc(rec.Files, func(m unpackedMember) bool { return m.Path == filepath.Join(o.Dir, want) }) {
			return host.Invalid("%s has no file %s", o.Name, o.Strip+want)
		}
	}
	if err := h.WriteRecord(unpackedPath(h, o), rec); err != nil {
		return err
	}
	return ReleaseBlob(h, o.Blob)
}

// decompress returns a stream without its gzip compression, if it has any.
func decompress(r io.Reader) (io.Reader, error) {
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

func unpackAll(ctx context.Context, h *host.Host, o op.Unpack, members *tar.Reader, rec *unpacked) error {
	if err := makeDir(h, o.Dir, 0o755); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", o.Name, err)
		}
		name, ok, err := memberName(o, header.Name)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		m, err := unpackMember(h, o, name, header, members)
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", header.Name, err)
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
		return "", false, host.Invalid("file %q of %s would be outside %s", name, o.Name, o.Dir)
	}
	return name, len(o.Members) == 0 || slices.Contains(o.Members, name), nil
}

func unpackMember(h *host.Host, o op.Unpack, name string, header *tar.Header, content io.Reader) (unpackedMember, error) {
	dest := filepath.Join(o.Dir, name)
	if err := requireWithin(h, o.Dir, name); err != nil {
		return unpackedMember{}, err
	}
	mode := fs.FileMode(header.Mode).Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		return unpackedMember{Path: dest}, makeDir(h, dest, 0o755)
	case tar.TypeReg:
		return unpackFile(h, dest, mode, content)
	case tar.TypeSymlink:
		if filepath.IsAbs(header.Linkname) ||
			!filepath.IsLocal(filepath.Join(filepath.Dir(name), header.Linkname)) { //nolint:gosec // this is the test for it
			return unpackedMember{}, host.Invalid("it is a link to a path outside %s: %s", o.Dir, header.Linkname)
		}
		return unpackedMember{Path: dest, State: ledger.LinkState(header.Linkname)}, unpackLink(h, dest, header.Linkname)
	}
	return unpackedMember{}, host.Invalid("it is not a file, a directory or a link")
}

// requireWithin rejects a file with a parent below dir that is a link to a path outside
// of it.
func requireWithin(h *host.Host, dir, name string) error {
	parent := h.DiskPath(filepath.Join(dir, filepath.Dir(name)))
	root, err := filepath.EvalSymlinks(h.DiskPath(dir))
	if err != nil {
		return err
	}
	for !host.Exists(parent) {
		parent = filepath.Dir(parent)
	}
	real, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return err
	}
	if real != root && !strings.HasPrefix(real, strings.TrimSuffix(root, "/")+"/") {
		return host.Invalid("%s leads outside %s", filepath.Dir(name), dir)
	}
	return nil
}

// makeDir creates a directory; an existing one is not changed.
func makeDir(h *host.Host, dir string, mode fs.FileMode) error {
	if info, err := os.Stat(h.DiskPath(dir)); err == nil && info.IsDir() {
		return nil
	}
	if err := h.Ledger.SavePath(dir); err != nil {
		return err
	}
	return h.Disk.MkdirAll(h.DiskPath(dir), atomicfile.Meta{Mode: mode})
}

// unpackFile writes a file next to its path and renames it only if the existing content
// or mode differs: a running program keeps its inode.
func unpackFile(h *host.Host, dest string, mode fs.FileMode, content io.Reader) (unpackedMember, error) {
	m := unpackedMember{Path: dest, Mode: uint32(mode)}
	if err := h.Ledger.SavePath(dest); err != nil {
		return m, err
	}
	if err := SaveParents(h, dest); err != nil {
		return m, err
	}
	p := h.DiskPath(dest)
	staged, err := h.Disk.StageFile(p, content, atomicfile.Meta{Mode: mode})
	if err != nil {
		return m, err
	}
	m.State = ledger.FileState(staged.SHA256)
	if err := placeFile(h, dest, m, staged); err != nil {
		return m, err
	}
	info, err := os.Lstat(p)
	if err != nil {
		return m, err
	}
	m.Size, m.MTime, m.Inode = info.Size(), info.ModTime().UnixNano(), host.StatOf(info).Ino
	return m, nil
}

func placeFile(h *host.Host, dest string, m unpackedMember, staged *atomicfile.Staged) error {
	now, err := ledger.PathState(h.DiskPath(dest))
	if err != nil {
		return errors.Join(err, staged.Discard())
	}
	if strings.HasPrefix(now, "dir ") {
		return errors.Join(host.Invalid("a directory already exists at its path"), staged.Discard())
	}
	if now == m.State {
		if info, err := os.Lstat(h.DiskPath(dest)); err == nil && mayKeepMember(info, m) {
			return staged.Discard()
		}
	}
	if err := h.Ledger.RecordIntent(dest, m.State); err != nil {
		return errors.Join(err, staged.Discard())
	}
	return staged.Commit()
}

func unpackLink(h *host.Host, dest, to string) error {
	now, err := ledger.PathState(h.DiskPath(dest))
	if err != nil || now == ledger.LinkState(to) {
		return err
	}
	if strings.HasPrefix(now, "dir ") {
		return host.Invalid("a directory already exists at its path")
	}
	return WriteLink(h, dest, to)
}
