//go:build linux

package hostfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// FileOp executes op.File.
type FileOp struct{ Op op.File }

func (x *FileOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	v, err := CheckFile(h, x.Op)
	return health.UnlessServes(ctx, h, x.Op.UnlessServes, v, err)
}

func (x *FileOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	if err := health.AwaitGate(ctx, h, x.Op.Gate); err != nil {
		return err
	}
	return ApplyFile(h, x.Op)
}

func (x *FileOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *FileOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.Target()}}, true
}

// ReadFileOp executes op.ReadFile.
type ReadFileOp struct{ Op op.ReadFile }

func (x *ReadFileOp) Paths() []string {
	return []string{x.Op.Target()}
}

// wantedMeta returns the mode and owner of an operation. An owner that is not known yet (a
// user of an earlier operation) is returned by name.
func wantedMeta(h *host.Host, mode, fallback fs.FileMode, owner, group string) (m atomicfile.Meta, unknown string, err error) {
	m.Mode = mode.Perm()
	if m.Mode == 0 {
		m.Mode = fallback
	}
	if m.UID, err = userID(h, owner); err == nil {
		m.GID, err = groupID(h, group)
	}
	var no unknownName
	if errors.As(err, &no) {
		return m, no.Error(), nil
	}
	return m, "", err
}

// MetaDifferences describes how mode and owner differ from the wanted ones.
func MetaDifferences(now, want atomicfile.Meta, unknown string) []string {
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

// CheckFile compares a file with its wanted content and attributes.
func CheckFile(h *host.Host, o op.File) (host.CheckResult, error) {
	want, unknown, err := wantedMeta(h, o.Mode, 0o644, o.Owner, o.Group)
	if err != nil {
		return host.CheckResult{}, err
	}
	return CompareFile(h, o, want, unknown)
}

// CompareFile describes how a file differs from the wanted content, mode and owner.
func CompareFile(h *host.Host, o op.File, want atomicfile.Meta, unknown string) (host.CheckResult, error) {
	v := host.CheckResult{Wrote: map[string]string{o.Path: ledger.FileState(host.Digest(o.Content))}}
	p := h.DiskPath(o.Path)
	info, err := os.Lstat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Change, v.Diff = "create", fileDiff("/dev/null", o, nil)
		return v, nil
	case err != nil:
		return v, err
	case info.IsDir():
		return v, host.Invalid("%s is a directory", o.Path)
	case !info.Mode().IsRegular():
		v.Change = "replace something that is not a regular file"
		return v, nil
	}
	now, err := atomicfile.ReadMeta(p)
	if err != nil {
		return v, err
	}
	changes := MetaDifferences(now, want, unknown)
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
	v.Change, v.Diff = strings.Join(changes, ", "), fileDiff(o.Path, o, old)
	return v, nil
}

func fileDiff(from string, o op.File, old []byte) string {
	if o.Secret {
		return ""
	}
	return UnifiedDiff(from, o.Path, old, o.Content)
}

// ApplyFile writes a file.
func ApplyFile(h *host.Host, o op.File) error {
	want, unknown, err := wantedMeta(h, o.Mode, 0o644, o.Owner, o.Group)
	if err != nil {
		return err
	}
	if unknown != "" {
		return host.Invalid("%s", unknown)
	}
	return WriteFile(h, o.Path, o.Content, want)
}

// WriteFile sets content, mode and owner of a path; the replaced state is in the ledger,
// and other attributes are kept. From now on the operation decides the content, and not a
// program.
func WriteFile(h *host.Host, path string, content []byte, m atomicfile.Meta) error {
	if err := ForgetBaseline(h, path); err != nil {
		return err
	}
	return putFile(h, path, content, m)
}

func putFile(h *host.Host, path string, content []byte, m atomicfile.Meta) error {
	if err := h.Ledger.SavePath(path); err != nil {
		return err
	}
	if err := SaveParents(h, path); err != nil {
		return err
	}
	if err := h.Ledger.RecordIntent(path, ledger.FileState(host.Digest(content))); err != nil {
		return err
	}
	return replaceFile(h, path, content, m)
}

// replaceFile writes a file that is in the ledger.
func replaceFile(h *host.Host, path string, content []byte, m atomicfile.Meta) error {
	p := h.DiskPath(path)
	if now, err := atomicfile.ReadMeta(p); err == nil {
		m.XAttrs = now.XAttrs
	}
	return h.Disk.ReplaceFile(p, bytes.NewReader(content), m)
}

// EditFile writes with unchanged mode and owner; a new file belongs to root, with mode
// 0644.
func EditFile(h *host.Host, path string, content []byte) error {
	m := atomicfile.Meta{Mode: 0o644}
	now, err := atomicfile.ReadMeta(h.DiskPath(path))
	if err == nil {
		m = atomicfile.Meta{Mode: now.Mode, UID: now.UID, GID: now.GID}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return WriteFile(h, path, content, m)
}

// SaveParents creates the missing parents of a path; SavePath has recorded them.
func SaveParents(h *host.Host, path string) error {
	return h.Disk.MkdirAll(filepath.Dir(h.DiskPath(path)), atomicfile.Meta{Mode: 0o755})
}

func (x *ReadFileOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	v := host.CheckResult{Secret: o.Secret}
	info, err := os.Stat(h.DiskPath(o.Path))
	if errors.Is(err, fs.ErrNotExist) {
		v.Missing = true
		return v, nil
	}
	if err != nil {
		return v, err
	}
	if !info.Mode().IsRegular() { // the end of a device may never come
		return v, host.Invalid("%s is not a regular file", o.Path)
	}
	v.Output, err = atomicfile.ReadFile(h.DiskPath(o.Path), host.MaxRead)
	return v, err
}
