// Package privatefile reads and replaces the keys and certificates in the data directory of
// a server. A file is replaced atomically and durably, and has mode 0600.
package privatefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// idUnsafe is a diagnostic of this package; see docs/guide/errors.md.
const idUnsafe = "server-file-unsafe"

// maxSize limits the size of a file; the largest, a kubeconfig, has about 6 KiB.
const maxSize = 1 << 20

// mode is the mode of a written file.
const mode fs.FileMode = 0o600

// A Content is the kind of content of a file, which decides which modes are safe.
type Content fs.FileMode

// The kinds of content.
const (
	// Secret content can be read only by the owner of the file.
	Secret Content = 0o077
	// Public content, such as a certificate, can be changed only by the owner of the file.
	Public Content = 0o022
)

// Read returns the content of a file. An error for a missing file matches fs.ErrNotExist.
// Read refuses a link, a file of another user, and a mode that gives others access.
func Read(path string, c Content) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, diag.Refuse(idUnsafe, path+" is a symbolic link", "replace the link with a regular file")
	case err != nil:
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkAccess(path, info, c); err != nil {
		return nil, err
	}
	data, err := bounded.ReadAll(f, maxSize)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data, nil
}

// checkAccess refuses a file that users other than the current user may have written or read.
func checkAccess(path string, info fs.FileInfo, c Content) error {
	if !info.Mode().IsRegular() {
		return diag.Refuse(idUnsafe, path+" is not a regular file", "move it away")
	}
	uid := os.Geteuid()
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != uid {
		return diag.Refuse(idUnsafe, fmt.Sprintf("%s belongs to user %d, but the server runs as user %d", path, st.Uid, uid),
			fmt.Sprintf("check where the file is from, then run: chown %d %s", uid, path))
	}
	if perm := info.Mode().Perm(); perm&fs.FileMode(c) != 0 {
		return diag.Refuse(idUnsafe, fmt.Sprintf("%s has mode %04o, which gives other users access", path, perm),
			fmt.Sprintf("run: chmod %04o %s", mode, path))
	}
	return nil
}

// A Writer replaces files. Its zero value can be used.
type Writer struct {
	// After, if not nil, is called with the name of each step that has reached the disk:
	// tests stop the program there.
	After func(step string)
}

// A Staged file is on disk under a temporary name.
type Staged interface {
	// Commit renames the file to its path.
	Commit() error
	// Discard removes the file.
	Discard() error
}

// Stage writes content to the temporary name of path. A later call for the same path
// overwrites a file that a crash left there.
func (w Writer) Stage(path string, content []byte) (Staged, error) {
	meta := atomicfile.Meta{Mode: mode, UID: os.Geteuid(), GID: os.Getegid()}
	return atomicfile.Disk{After: w.After}.StageFile(path, bytes.NewReader(content), meta)
}

// Replace writes a whole file. After a crash, the file has the old content or the new.
func (w Writer) Replace(path string, content []byte) error {
	staged, err := w.Stage(path, content)
	if err != nil {
		return err
	}
	return staged.Commit()
}

// StagedPath returns the temporary name that Stage uses for path.
func StagedPath(path string) string { return atomicfile.TempPath(path) }

// CommitStaged renames a file that a crash left under the temporary name of path. The caller
// has checked that its content is complete.
func CommitStaged(path string) error { return fsync.Rename(StagedPath(path), path) }

// RemoveStaged removes a file that a crash left under the temporary name of path.
func RemoveStaged(path string) error { return atomicfile.Disk{}.RemovePath(StagedPath(path)) }
