package privatedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A base is a directory in which a private directory can be made.
type base struct {
	path   string
	memory bool // it is used only if it is in memory and has room
}

func defaultBases() []base {
	var out []base
	for _, path := range memoryDirs() {
		out = append(out, base{path: path, memory: true})
	}
	return append(out, base{path: os.TempDir()})
}

// openParent opens a base in which no other user can replace entries of this user.
func (b base) openParent() (*os.Root, error) {
	if !filepath.IsAbs(b.path) {
		return nil, errors.New("not an absolute path")
	}
	real, err := resolveSafe(b.path)
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(real)
}

// maxLinks limits the links of one path, as in the kernel.
const maxLinks = 40

// resolveSafe returns a path of a directory without its links. It refuses a path if a user other
// than root and the current user can replace one of its directories or links.
func resolveSafe(path string) (string, error) {
	at, rest := "/", splitPath(path)
	for links := 0; ; {
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if err := checkStep(at, info); err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(at)
			if err != nil {
				return "", err
			}
			if links++; links > maxLinks {
				return "", syscall.ELOOP
			}
			at, rest = filepath.Dir(at), append(splitPath(target), rest...)
			if filepath.IsAbs(target) {
				at = "/"
			}
		}
		if len(rest) == 0 {
			return at, nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// splitPath returns the names of a path.
func splitPath(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// checkStep refuses a directory or link of a path.
func checkStep(at string, info fs.FileInfo) error {
	if uid := uidOf(info); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d", at, uid)
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0: // its mode has no meaning
	case !mode.IsDir():
		return fmt.Errorf("%s is not a directory", at)
	case mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0:
		return fmt.Errorf("other users can replace files in %s (mode %04o without the sticky bit)", at, mode.Perm())
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
