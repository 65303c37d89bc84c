//go:build linux

package hostfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// AbsentOp executes op.Absent.
type AbsentOp struct{ Op op.Absent }

func (x *AbsentOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	return ApplyAbsent(h, x.Op)
}

func (x *AbsentOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *AbsentOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.Target()}}, true
}

// DirOp executes op.Dir.
type DirOp struct{ Op op.Dir }

func (x *DirOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *DirOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.Target()}}, true
}

// LinkOp executes op.Link.
type LinkOp struct{ Op op.Link }

func (x *LinkOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	return applyLink(h, x.Op)
}

func (x *LinkOp) Paths() []string {
	return []string{x.Op.Target()}
}

func (x *LinkOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindPath, Key: x.Op.Target()}}, true
}

func (x *DirOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	want, unknown, err := wantedMeta(h, o.Mode, 0o755, o.Owner, o.Group)
	if err != nil {
		return host.CheckResult{}, err
	}
	path, err := ResolveDir(h, o.Path)
	if err != nil {
		return host.CheckResult{}, err
	}
	p := h.DiskPath(path)
	info, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return host.CheckResult{Change: "create"}, nil
	}
	if err != nil {
		return host.CheckResult{}, err
	}
	if !info.IsDir() {
		return host.CheckResult{}, host.Invalid("%s exists and is not a directory", o.Path)
	}
	now, err := atomicfile.ReadMeta(p)
	if err != nil {
		return host.CheckResult{}, err
	}
	change := MetaDifferences(now, want, unknown)
	if o.Exclusive {
		note, err := unrecordedDirs(h, path)
		if err != nil {
			return host.CheckResult{}, err
		}
		if note != "" {
			change = append(change, note)
		}
	}
	return host.CheckResult{Change: strings.Join(change, ", ")}, nil
}

// unrecordedDirs returns what must be recorded in the ledger about a directory before it
// gets new content, which would otherwise remain for ever: that it is empty, or its
// content.
func unrecordedDirs(h *host.Host, path string) (string, error) {
	empty, err := ledger.IsVacant(h.DiskPath(path))
	if err != nil {
		return "", err
	}
	l, err := ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{})
	switch {
	case err != nil || l.FindEntry(ledger.KindPath, path) != nil:
		return "", err
	case empty:
		return "record that it is empty", nil
	}
	return "record its content", nil
}

// ResolveDir returns the directory that a link leads to, or the path itself: a host can
// have its data elsewhere. The link is kept, and the ledger has the changes by their real
// name.
func ResolveDir(h *host.Host, path string) (string, error) {
	p := h.DiskPath(path)
	if info, err := os.Lstat(p); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil // a problem with it is reported where it is used
	}
	real, err := filepath.EvalSymlinks(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", host.Invalid("%s is a symbolic link to a missing file", path)
	}
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", path, err)
	}
	root := strings.TrimSuffix(filepath.Clean(h.Root), "/")
	below, ok := strings.CutPrefix(real, root+"/")
	if !ok {
		return "", host.Invalid("%s leads outside the file system of this host, to %s", path, real)
	}
	return "/" + below, nil
}

func (x *DirOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	want, unknown, err := wantedMeta(h, o.Mode, 0o755, o.Owner, o.Group)
	if err != nil {
		return err
	}
	if unknown != "" {
		return host.Invalid("%s", unknown)
	}
	path, err := ResolveDir(h, o.Path)
	if err != nil {
		return err
	}
	save := h.Ledger.SavePath
	if o.Exclusive {
		save = h.Ledger.SaveOwn
		if err := saveDirContent(h, path, o.Shared); err != nil {
			return err
		}
	}
	if err := save(path); err != nil {
		return err
	}
	if err := h.Ledger.RecordIntent(path, ledger.DirState(want)); err != nil {
		return err
	}
	if err := SaveParents(h, path); err != nil {
		return err
	}
	return h.Disk.MakeDir(h.DiskPath(path), want)
}

// saveDirContent records the content of other software in a directory that Slipway is
// about to use.
func saveDirContent(h *host.Host, path string, shared []string) error {
	if h.Ledger.FindEntry(ledger.KindPath, path) != nil {
		return nil // its current content may belong to Slipway
	}
	dirs := []string{path}
	for _, name := range shared {
		dirs = append(dirs, filepath.Join(path, name))
	}
	for _, dir := range dirs {
		info, err := os.Lstat(h.DiskPath(dir))
		if err != nil || !info.IsDir() {
			continue // new content there belongs to the directory above
		}
		if empty, err := ledger.IsVacant(h.DiskPath(dir)); err != nil || empty && dir == path {
			return err
		}
		if err := h.Ledger.SaveContent(dir); err != nil {
			return err
		}
	}
	return nil
}

func (x *LinkOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	now, err := ledger.PathState(h.DiskPath(o.Path))
	if err != nil {
		return host.CheckResult{}, err
	}
	v := host.CheckResult{Wrote: map[string]string{o.Path: ledger.LinkState(o.To)}}
	kind, is, _ := strings.Cut(now, " ")
	switch {
	case now == ledger.LinkState(o.To):
	case now == ledger.Absent:
		v.Change = "create"
	case kind == "link":
		v.Change = "to " + o.To + " instead of " + is
	case kind == "dir":
		return v, host.Invalid("%s is a directory", o.Path)
	default:
		v.Change = "replace a file"
	}
	return v, nil
}

func applyLink(h *host.Host, o op.Link) error { return WriteLink(h, o.Path, o.To) }

// WriteLink creates or replaces a symbolic link.
func WriteLink(h *host.Host, path, to string) error {
	if err := h.Ledger.SavePath(path); err != nil {
		return err
	}
	if err := SaveParents(h, path); err != nil {
		return err
	}
	if err := h.Ledger.RecordIntent(path, ledger.LinkState(to)); err != nil {
		return err
	}
	return h.Disk.ReplaceLink(h.DiskPath(path), to, atomicfile.Meta{})
}

func (x *AbsentOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	v := host.CheckResult{Wrote: map[string]string{o.Path: ledger.Absent}}
	info, err := os.Lstat(h.DiskPath(o.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	if v.Change = "remove"; !info.IsDir() {
		return v, nil
	}
	entries, err := atomicfile.ReadDir(h.DiskPath(o.Path))
	if err != nil || len(entries) == 0 {
		return v, err
	}
	if !o.Recursive {
		return v, host.Invalid("%s is a directory with content", o.Path)
	}
	if mounts, err := ledger.MountedBelow(h.DiskPath(o.Path)); err != nil || len(mounts) > 0 {
		return v, errors.Join(err, host.Invalid("%s contains mounts: %s", o.Path, strings.Join(mounts, ", ")))
	}
	v.Change = "remove the directory and its contents"
	return v, nil
}

// ApplyAbsent removes a path and saves what existed there in the ledger.
func ApplyAbsent(h *host.Host, o op.Absent) error {
	if err := ForgetBaseline(h, o.Path); err != nil {
		return err
	}
	p := h.DiskPath(o.Path)
	if entries, err := os.ReadDir(p); err == nil && len(entries) > 0 {
		return h.Ledger.MoveTree(o.Path)
	}
	if err := h.Ledger.SavePath(o.Path); err != nil {
		return err
	}
	if err := h.Ledger.RecordIntent(o.Path, ledger.Absent); err != nil {
		return err
	}
	return h.Disk.RemovePath(p)
}
