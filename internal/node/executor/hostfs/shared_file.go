//go:build linux

package hostfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
)

// SharedFile is a file of other software with some lines of Slipway, in its state before
// the first of them: enough to recognize it after they are removed.
type SharedFile struct {
	Path    string `json:"path"`
	Existed bool   `json:"existed"`
	SHA256  string `json:"sha256,omitempty"`
	MTime   int64  `json:"mtime,omitempty"` // nanoseconds since 1970
	// NoNewline reports whether its last line had no line break.
	NoNewline bool `json:"noNewline,omitempty"`
}

// ReadSharedFile describes the current file of other software.
func ReadSharedFile(h *host.Host, path string) (SharedFile, error) {
	raw, err := atomicfile.ReadFile(h.DiskPath(path), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return SharedFile{Path: path}, nil
	}
	if err != nil {
		return SharedFile{}, err
	}
	info, err := os.Stat(h.DiskPath(path))
	if err != nil {
		return SharedFile{}, err
	}
	return SharedFile{
		Path: path, Existed: true, SHA256: host.Digest(raw), MTime: info.ModTime().UnixNano(),
		NoNewline: len(raw) > 0 && raw[len(raw)-1] != '\n',
	}, nil
}

// RewriteSharedFile writes new content to a file of other software, and keeps its other
// attributes. A link is followed: the file behind it is changed.
func RewriteSharedFile(h *host.Host, path string, content []byte) error {
	p, err := resolveLink(h, path)
	if err != nil {
		return err
	}
	m, err := atomicfile.ReadMeta(p)
	if errors.Is(err, fs.ErrNotExist) {
		m, err = atomicfile.Meta{Mode: 0o644}, nil
	}
	if err != nil {
		return err
	}
	m.MTime = time.Time{}
	return h.Disk.ReplaceFile(p, bytes.NewReader(content), m)
}

// RestoreSharedFile writes the content without Slipway's lines. A file that did not exist
// and is then empty is removed; one with its original content gets its old time.
func RestoreSharedFile(h *host.Host, f SharedFile, now, kept []byte) error {
	p, err := resolveLink(h, f.Path)
	if err != nil {
		return err
	}
	if err := h.Disk.RemovePath(atomicfile.TempPath(p)); err != nil { // of an interrupted write
		return err
	}
	if _, err := os.Stat(p); errors.Is(err, fs.ErrNotExist) {
		return nil // other software removed it
	}
	if f.NoNewline && len(kept) > 0 && host.Digest(kept[:len(kept)-1]) == f.SHA256 {
		kept = kept[:len(kept)-1]
	}
	if !f.Existed && len(kept) == 0 {
		return h.Disk.RemovePath(p)
	}
	if !bytes.Equal(now, kept) {
		if err := RewriteSharedFile(h, f.Path, kept); err != nil {
			return err
		}
	}
	if f.Existed && host.Digest(kept) == f.SHA256 {
		t := time.Unix(0, f.MTime)
		return os.Chtimes(p, t, t)
	}
	return nil
}
