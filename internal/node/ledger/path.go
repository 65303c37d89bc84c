//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// Absent is the state of a missing path.
const Absent = "absent"

// FileState identifies a file by its content, for comparison.
func FileState(sha256 string) string { return "file " + sha256 }

// LinkState identifies a symbolic link by its target.
func LinkState(to string) string { return "link " + to }

// DirState identifies a directory by its mode and owner.
func DirState(m atomicfile.Meta) string {
	return fmt.Sprintf("dir %04o %d %d", m.Mode.Perm(), m.UID, m.GID)
}

// The types of the original file at a path.
const (
	typeFile = "file"
	typeLink = "link"
	typeDir  = "dir"
	// typeTree is a directory that was moved into the ledger with its content.
	typeTree = "tree"
)

// was is the original state of a path: the data of a KindPath entry.
type was struct {
	Type   string            `json:"type"` // absent, file, link, dir, tree
	Mode   fs.FileMode       `json:"mode,omitempty"`
	UID    int               `json:"uid,omitempty"`
	GID    int               `json:"gid,omitempty"`
	XAttrs map[string][]byte `json:"xattrs,omitempty"`
	MTime  int64             `json:"mtime,omitempty"` // nanoseconds since 1970
	To     exact.Text        `json:"to,omitempty"`
	SHA256 string            `json:"sha256,omitempty"`
	// Object is the file or tree in the ledger with the content.
	Object string `json:"object,omitempty"`
	// EmptyOn is the volume of a directory that existed, empty and exclusive: new content
	// in it is removed if it is still on that volume.
	EmptyOn string `json:"emptyOn,omitempty"`
}

func (w was) metaOf() atomicfile.Meta {
	return atomicfile.Meta{Mode: w.Mode, UID: w.UID, GID: w.GID, XAttrs: w.XAttrs, MTime: time.Unix(0, w.MTime)}
}

func (w was) stateText() string {
	switch w.Type {
	case typeFile:
		return FileState(w.SHA256)
	case typeLink:
		return LinkState(string(w.To))
	case typeDir, typeTree:
		return DirState(w.metaOf())
	}
	return Absent
}

// PathState returns the current state of a path on disk, in the form of FileState and the
// like. It changes nothing.
func PathState(path string) (string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return Absent, nil
	}
	if err != nil {
		return "", err
	}
	switch {
	case info.Mode().IsRegular():
		sum, err := atomicfile.SHA256(path)
		return FileState(sum), err
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		return LinkState(to), err
	case info.IsDir():
		m, err := atomicfile.ReadMeta(path)
		return DirState(m), err
	}
	return "special " + info.Mode().Type().String(), nil
}

func (l *Ledger) onDisk(path string) string { return filepath.Join(l.root, path) }

// SavePath records the state of a path, unless it is already recorded, and its missing
// parents.
func (l *Ledger) SavePath(path string) error { return l.savePath(path, false) }

func (l *Ledger) savePath(path string, exclusive bool) error {
	if l.FindEntry(KindPath, path) != nil {
		return nil
	}
	if err := l.SaveParents(path); err != nil {
		return err
	}
	w, err := l.readState(path)
	if err == nil && exclusive {
		w.EmptyOn, err = emptyOn(l.onDisk(path))
	}
	if err != nil {
		return fmt.Errorf("saving %s in the ledger: %w", path, err)
	}
	return l.SaveEntry(KindPath, path, w)
}

// SaveOwn is SavePath for an exclusive directory: all new content below it belongs to
// Slipway, unless it had content before.
func (l *Ledger) SaveOwn(path string) error {
	if err := l.savePath(path, true); err != nil {
		return err
	}
	if l.FindEntry(KindPath, path).Exclusive {
		return nil
	}
	return l.appendLine(line{Wrote: &wrote{Path: exact.Text(path), Exclusive: true}})
}

// SaveParents records the missing parents of a path, so that they are removed when they
// are empty again.
func (l *Ledger) SaveParents(path string) error {
	parent := filepath.Dir(path)
	if parent == path {
		return nil
	}
	if _, err := os.Stat(l.onDisk(parent)); !errors.Is(err, fs.ErrNotExist) {
		return nil // it exists, or the change itself will fail on it
	}
	return l.SavePath(parent)
}

// readState reads the state of a path and saves a file's content.
func (l *Ledger) readState(path string) (was, error) {
	p := l.onDisk(path)
	info, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return was{Type: Absent}, nil
	}
	if err != nil {
		return was{}, err
	}
	m, err := atomicfile.ReadMeta(p)
	if err != nil {
		return was{}, err
	}
	w := was{Mode: m.Mode, UID: m.UID, GID: m.GID, XAttrs: m.XAttrs, MTime: m.MTime.UnixNano()}
	switch {
	case info.Mode().IsRegular():
		w.Type, w.Object = typeFile, strconv.Itoa(l.nextNumber())
		w.SHA256, err = l.keepContent(p, w.Object)
	case info.Mode()&fs.ModeSymlink != 0:
		var to string
		to, err = os.Readlink(p)
		w.Type, w.To = typeLink, exact.Text(to)
	case info.IsDir():
		w.Type = typeDir
	default:
		err = fmt.Errorf("%s is a %s, which cannot be restored", path, info.Mode().Type())
	}
	return w, err
}

func (l *Ledger) objectPath(name string) string { return filepath.Join(l.dir, "objects", name) }

// keepContent copies a file's content into the ledger and returns its digest.
func (l *Ledger) keepContent(from, object string) (string, error) {
	if err := l.disk.MkdirAll(l.objectPath(""), atomicfile.Meta{Mode: 0o700}); err != nil {
		return "", err
	}
	src, err := atomicfile.Open(from)
	if err != nil {
		return "", err
	}
	defer src.Close()
	s, err := l.disk.StageFile(l.objectPath(object), src, atomicfile.Meta{Mode: 0o600})
	if err != nil {
		return "", err
	}
	return s.SHA256, s.Commit()
}

// MoveTree removes a directory with content by moving it into the ledger, so that owners,
// links and attributes are kept. If the path is already recorded, its current content
// belongs to Slipway and is removed.
func (l *Ledger) MoveTree(path string) error {
	e := l.FindEntry(KindPath, path)
	if e == nil {
		w, err := l.readState(path)
		if err != nil {
			return fmt.Errorf("saving %s in the ledger: %w", path, err)
		}
		w.Type, w.Object = typeTree, strconv.Itoa(l.nextNumber())
		if err := l.SaveEntry(KindPath, path, w); err != nil {
			return err
		}
		e = l.FindEntry(KindPath, path)
	}
	var w was
	if err := e.DecodeData(&w); err != nil {
		return err
	}
	if err := l.RecordIntent(path, Absent); err != nil {
		return err
	}
	if w.Type == typeTree && !pathExists(l.objectPath(w.Object)) {
		return l.moveIn(path, l.objectPath(w.Object))
	}
	if err := l.disk.RemoveAll(l.onDisk(path)); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

func (l *Ledger) moveIn(path, object string) error {
	if err := l.disk.MkdirAll(l.objectPath(""), atomicfile.Meta{Mode: 0o700}); err != nil {
		return fmt.Errorf("saving %s in the ledger: %w", path, err)
	}
	if err := l.disk.MovePath(l.onDisk(path), object); err != nil {
		return fmt.Errorf("saving %s in the ledger: %w", path, err)
	}
	return nil
}

// WasAbsent reports whether path, or a parent of it, did not exist before Slipway, or was
// below an empty directory. It is false for paths that are not in the ledger.
func (l *Ledger) WasAbsent(path string) bool {
	for p := path; ; p = filepath.Dir(p) {
		if e := l.FindEntry(KindPath, p); e != nil {
			var w was
			if e.DecodeData(&w) != nil {
				return false
			}
			if p != path && w.EmptyOn != "" {
				now, err := volumeID(l.onDisk(p))
				return err == nil && now == w.EmptyOn
			}
			return w.Type == Absent
		}
		if l.isGlobbed(p) {
			return true
		}
		if p == filepath.Dir(p) {
			return false
		}
	}
}

// MadeDir reports whether there is a directory at a path that did not exist.
func (l *Ledger) MadeDir(e *Entry) bool {
	var w was
	if e.Kind != KindPath || e.DecodeData(&w) != nil || w.Type != Absent {
		return false
	}
	info, err := os.Lstat(l.onDisk(e.Key))
	return err == nil && info.IsDir()
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
