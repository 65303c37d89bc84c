// Package pack writes gzip'd tars whose bytes depend on their content alone:
// sorted members, no times, no owners.
package pack

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"slipway.dev/slipway/internal/safefile"
)

// A Member is one file, link or directory in a tar. Parents need not be named.
type Member struct {
	// Name is its path without leading slash: "usr/local/bin/kubelet".
	Name string
	// Path is a file on disk to take the content from; otherwise Content is
	// the content. Link makes it a symbolic link, Dir a directory.
	Path    string
	Content []byte
	Link    string
	Dir     bool
	Mode    fs.FileMode // permission bits; 0 means 0755
	// Sticky sets the sticky bit, for /tmp. Setuid makes a program run as its owner, which is root.
	Sticky, Setuid bool
}

// A File is a gzip'd tar on disk.
type File struct {
	Path   string `json:"-"`
	Digest string `json:"digest"` // "sha256:…" of the file
	DiffID string `json:"diffID"` // "sha256:…" of the tar in it
	Size   int64  `json:"size"`   // of the file, in bytes
	// Members are the names of files and links, not of directories.
	Members []string `json:"members"`
}

// Write writes members to a compressed tar at dst. It replaces dst only when the new file
// is complete.
func Write(ctx context.Context, dst string, members []Member) (File, error) {
	tmp, err := safefile.CreateTemp(filepath.Dir(dst), ".pack-*")
	if err != nil {
		return File{}, err
	}
	defer func() { _ = safefile.Remove(tmp.Name()) }() // it has another name by then
	defer tmp.Close()
	f, err := writeArchive(ctx, tmp, members)
	if err != nil {
		return File{}, fmt.Errorf("packing %s: %w", filepath.Base(dst), err)
	}
	if err := errors.Join(tmp.Chmod(0o644), safefile.Commit(tmp, dst)); err != nil {
		return File{}, fmt.Errorf("packing %s: %w", filepath.Base(dst), err)
	}
	f.Path = dst
	return f, nil
}

// counter counts and hashes what passes.
type counter struct {
	hash.Hash
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}

func (c *counter) digestText() string { return "sha256:" + hex.EncodeToString(c.Sum(nil)) }

func writeArchive(ctx context.Context, w io.Writer, members []Member) (File, error) {
	members, err := addDirectories(members)
	if err != nil {
		return File{}, err
	}
	packed, plain := &counter{Hash: sha256.New()}, &counter{Hash: sha256.New()}
	zw, err := gzip.NewWriterLevel(io.MultiWriter(w, packed), gzip.DefaultCompression)
	if err != nil {
		return File{}, err
	}
	tw := tar.NewWriter(io.MultiWriter(zw, plain))
	f := File{}
	for _, m := range members {
		if err := ctx.Err(); err != nil {
			return File{}, err
		}
		if err := addMember(tw, m); err != nil {
			return File{}, fmt.Errorf("%s: %w", m.Name, err)
		}
		if !m.Dir {
			f.Members = append(f.Members, m.Name)
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		return File{}, err
	}
	f.Digest, f.DiffID, f.Size = packed.digestText(), plain.digestText(), packed.n
	return f, nil
}

// addDirectories sorts members and adds their parent directories.
func addDirectories(members []Member) ([]Member, error) {
	byName := map[string]Member{}
	for _, m := range members {
		m.Name = strings.Trim(m.Name, "/")
		if !fs.ValidPath(m.Name) || m.Name == "." {
			return nil, fmt.Errorf("%q is not a valid file name in an archive", m.Name)
		}
		if old, ok := byName[m.Name]; ok && !(old.Dir && m.Dir) {
			return nil, fmt.Errorf("%s is in the archive more than once", m.Name)
		}
		byName[m.Name] = m
	}
	for _, m := range members {
		for dir := path.Dir(strings.Trim(m.Name, "/")); dir != "."; dir = path.Dir(dir) {
			if p, ok := byName[dir]; !ok {
				byName[dir] = Member{Name: dir, Dir: true}
			} else if !p.Dir {
				return nil, fmt.Errorf("%s is both a file and a directory", dir)
			}
		}
	}
	out := make([]Member, 0, len(byName))
	for _, m := range byName {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func addMember(tw *tar.Writer, m Member) error {
	h := &tar.Header{Name: m.Name, Mode: int64(cmp.Or(m.Mode.Perm(), 0o755)), Format: tar.FormatPAX}
	if m.Sticky {
		h.Mode |= 0o1000
	}
	if m.Setuid {
		h.Mode |= 0o4000
	}
	switch {
	case m.Dir:
		h.Typeflag, h.Name = tar.TypeDir, m.Name+"/"
		return tw.WriteHeader(h)
	case m.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, m.Link, 0o777
		return tw.WriteHeader(h)
	}
	h.Typeflag = tar.TypeReg
	if m.Path == "" {
		h.Size = int64(len(m.Content))
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err := tw.Write(m.Content)
		return err
	}
	f, err := safefile.Open(m.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	h.Size = fi.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}
