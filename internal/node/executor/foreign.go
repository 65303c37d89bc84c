//go:build linux

package executor

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// foreign is a file of other software with some lines of Slipway, in its state before the
// first of them: enough to recognize it after they are removed.
type foreign struct {
	Path    string `json:"path"`
	Existed bool   `json:"existed"`
	SHA256  string `json:"sha256,omitempty"`
	MTime   int64  `json:"mtime,omitempty"` // nanoseconds since 1970
	// NoNewline reports whether its last line had no line break.
	NoNewline bool `json:"noNewline,omitempty"`
}

func (s *session) foreign(path string) (foreign, error) {
	raw, err := atomicfile.ReadFile(s.path(path), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return foreign{Path: path}, nil
	}
	if err != nil {
		return foreign{}, err
	}
	info, err := os.Stat(s.path(path))
	if err != nil {
		return foreign{}, err
	}
	return foreign{
		Path: path, Existed: true, SHA256: digest(raw), MTime: info.ModTime().UnixNano(),
		NoNewline: len(raw) > 0 && raw[len(raw)-1] != '\n',
	}, nil
}

// rewrite writes new content to a file of other software, and keeps its other attributes.
// A link is followed: the file behind it is changed.
func (s *session) rewrite(path string, content []byte) error {
	p, err := s.behind(path)
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
	return s.disk.Replace(p, bytes.NewReader(content), m)
}

// restoreForeign writes the content without Slipway's lines. A file that did not exist
// and is then empty is removed; one with its original content gets its old time.
func (s *session) restoreForeign(f foreign, now, kept []byte) error {
	p, err := s.behind(f.Path)
	if err != nil {
		return err
	}
	if err := s.disk.Remove(atomicfile.Temp(p)); err != nil { // of an interrupted write
		return err
	}
	if _, err := os.Stat(p); errors.Is(err, fs.ErrNotExist) {
		return nil // other software removed it
	}
	if f.NoNewline && len(kept) > 0 && digest(kept[:len(kept)-1]) == f.SHA256 {
		kept = kept[:len(kept)-1]
	}
	if !f.Existed && len(kept) == 0 {
		return s.disk.Remove(p)
	}
	if !bytes.Equal(now, kept) {
		if err := s.rewrite(f.Path, kept); err != nil {
			return err
		}
	}
	if f.Existed && digest(kept) == f.SHA256 {
		t := time.Unix(0, f.MTime)
		return os.Chtimes(p, t, t)
	}
	return nil
}
