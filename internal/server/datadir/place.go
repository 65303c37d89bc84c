package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"slipway.dev/slipway/internal/diag"
)

const (
	// maxSocketPath is the longest path of a unix socket, in bytes.
	maxSocketPath = 107
	// longestSocket is the longest path of a socket in a data directory.
	longestSocket = "etcd/client.sock"
	// maxLinks limits the links of one path, as in the kernel.
	maxLinks = 40
)

// checkPlace returns the absolute path of a data directory. It refuses a path that is too
// long for sockets, or at which another user could place a directory.
func checkPlace(path string) (string, error) {
	if path == "" {
		return "", diag.Refuse(idMissing, "the path of the data directory is empty", "name a directory")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if n := len(filepath.Join(path, longestSocket)); n > maxSocketPath {
		return "", diag.Refuse(idPathTooLong,
			fmt.Sprintf("data directory %s: the path of its socket %s has %d bytes, but the limit is %d", path, longestSocket, n, maxSocketPath),
			fmt.Sprintf("name a directory whose path has at most %d bytes", maxSocketPath-len("/"+longestSocket)))
	}
	return path, explainWrite(path, checkParents(path))
}

// checkParents refuses a path if a user other than root and the current user can replace
// one of its directories or links. Missing directories are not an error.
func checkParents(path string) error {
	at, rest := "/", splitPath(filepath.Dir(path))
	for links := 0; ; {
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := checkParent(path, at, info); err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if links++; links > maxLinks {
				return &fs.PathError{Op: "open", Path: at, Err: syscall.ELOOP}
			}
			at, rest = filepath.Dir(at), append(splitPath(target), rest...)
			if filepath.IsAbs(target) {
				at = "/"
			}
		}
		if len(rest) == 0 {
			return nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// splitPath returns the names of a path.
func splitPath(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// checkParent refuses a directory or link on the way to a data directory.
func checkParent(path, at string, info fs.FileInfo) error {
	if uid := uidOf(info); uid != 0 && uid != os.Geteuid() {
		hint := "name a directory below directories of root or of your user"
		if os.Geteuid() == 0 {
			hint = hintUser(uid)
		}
		return diag.Refuse(idUnsafe,
			fmt.Sprintf("data directory %s: %s belongs to user %d, who could replace the data directory", path, at, uid), hint)
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0: // its mode has no meaning
	case !mode.IsDir():
		return diag.Refuse(idUnsafe, fmt.Sprintf("data directory %s: %s is not a directory", path, at), "name another directory")
	case mode&0o022 != 0 && mode&fs.ModeSticky == 0:
		return diag.Refuse(idUnsafe,
			fmt.Sprintf("data directory %s: other users can write to %s (mode %04o) and replace the data directory", path, at, mode.Perm()),
			"run: chmod go-w "+at)
	}
	return nil
}

// checkDir refuses a link, a file and a directory of another user. An error for a missing
// directory matches fs.ErrNotExist.
func checkDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	uid := os.Geteuid()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return diag.Refuse(idUnsafe, path+" is a symbolic link, but must be a directory",
			"name the target of the link, or replace the link with a directory")
	case !info.IsDir():
		return diag.Refuse(idUnsafe, path+" is not a directory", "move it away, or name another directory")
	case uidOf(info) != uid:
		return diag.Refuse(idUnsafe, fmt.Sprintf("%s belongs to user %d, but this program runs as user %d", path, uidOf(info), uid),
			hintUser(uidOf(info)))
	}
	return nil
}

// checkMode refuses a directory that other users can read or change.
func checkMode(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return diag.Refuse(idUnsafe, fmt.Sprintf("%s has mode %04o, which gives other users access", path, perm),
			fmt.Sprintf("run: chmod %04o %s", dirMode, path))
	}
	return nil
}

// uidOf returns the owner of a file; -1 if it is not known.
func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
