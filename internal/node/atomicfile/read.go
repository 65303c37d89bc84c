//go:build linux

package atomicfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
)

// Open opens a file for reading, without changing its access time if the kernel allows
// it. It does not wait for a pipe.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOATIME|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	return f, err
}

// ReadFile reads a file of at most limit bytes, like Open.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := bounded.ReadAll(f, limit)
	if over := (*bounded.LimitError)(nil); errors.As(err, &over) {
		err = &fs.PathError{Op: "read", Path: path, Err: over}
	}
	return data, err
}

// ReadDir lists a directory, like Open.
func ReadDir(path string) ([]fs.DirEntry, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// SHA256 returns the digest of a file's content, hexadecimal.
func SHA256(path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// ReadMeta reads the metadata of a file or directory. It does not follow a link; for a
// link it returns only the owner.
func ReadMeta(path string) (Meta, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Meta{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return Meta{}, err
	}
	m := Meta{
		Mode: info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky),
		UID:  int(st.Uid), GID: int(st.Gid), MTime: info.ModTime(),
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return m, nil
	}
	m.XAttrs, err = readXAttrs(path)
	return m, err
}

func readXAttrs(path string) (map[string][]byte, error) {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "listxattr", Path: path, Err: err}
	}
	out := map[string][]byte{}
	value := make([]byte, 64<<10) // the kernel's limit for one attribute
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		n, err := unix.Lgetxattr(path, string(name), value)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "getxattr", Path: path, Err: err}
		}
		out[string(name)] = bytes.Clone(value[:n])
	}
	return out, nil
}
