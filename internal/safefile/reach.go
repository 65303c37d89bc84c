// Package safefile is package os for paths in directories of other users.
//
// Root that follows a user's links can be led to any file of the machine, also
// by a link that is put in place between two steps. So as root, each function
// opens the directories of a path one after the other. A link of a user is
// followed only to a directory of that user; any other is a *ForeignError. The
// last step uses the open directory and one name, and follows nothing.
//
// Other users are held back by the kernel: for them, links lead where they lead.
package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A ForeignError reports a file or directory that root does not use on behalf of a user:
// it belongs to another user, or a link leads to it.
type ForeignError struct{ Path, Reason string }

func (e *ForeignError) Error() string { return e.Path + " " + e.Reason }

// maxLinks limits the links of one path, as in the kernel.
const maxLinks = 40

// Reach follows a path, with all links, as far as there are directories. It opens the
// last directory and returns the remaining names: at least one, of which only the last
// may exist. The caller closes the directory.
func Reach(path string) (dir *os.Root, rest []string, err error) {
	return reachPath(path, true)
}

func reachPath(path string, follow bool) (*os.Root, []string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, err
	}
	if os.Geteuid() != 0 {
		return reachAsUser(abs, follow)
	}
	w := walk{path: abs}
	err = w.restartAt(abs)
	for done := false; !done && err == nil; {
		done, err = w.stepInto(follow)
	}
	if err == nil {
		err = w.checkArrival()
	}
	if err != nil {
		return nil, nil, withPath(path, errors.Join(err, w.closeDirs()))
	}
	return w.at, w.rest, nil
}

// reachAsUser is reach for a user whose access the kernel checks.
func reachAsUser(path string, follow bool) (*os.Root, []string, error) {
	for i := 0; follow; i++ {
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if i == maxLinks {
			return nil, nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	var rest []string
	for {
		rest = append([]string{filepath.Base(path)}, rest...)
		path = filepath.Dir(path)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, nil, err
		case !info.IsDir(): // os.OpenRoot would wait for the other end of a pipe
			return nil, nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
		}
		dir, err := os.OpenRoot(path)
		return dir, rest, err
	}
}

// A walk is the state of root on the way along a path.
type walk struct {
	path  string   // as it was requested
	at    *os.Root // the current directory
	done  []string // its names, none of which is a link
	rest  []string // the remaining names
	links []link   // followed links whose ends are not reached yet
	count int      // of links
}

// A link is a symbolic link that a user created.
type link struct {
	path string
	uid  int // the user
	rest int // how many names remain at its end
}

func (w *walk) closeDirs() error {
	if w.at == nil {
		return nil
	}
	return w.at.Close()
}

// restartAt begins again with another path.
func (w *walk) restartAt(path string) error {
	root, err := os.OpenRoot("/")
	if err := errors.Join(err, w.closeDirs()); err != nil {
		return err
	}
	w.at, w.done = root, nil
	w.rest = strings.Split(strings.Trim(path, "/"), "/")
	if w.rest[0] == "" {
		w.rest[0] = "." // the path is the root
	}
	return nil
}

// stepInto follows one name and reports whether the end is reached.
func (w *walk) stepInto(follow bool) (done bool, err error) {
	name, last := w.rest[0], len(w.rest) == 1
	info, err := w.at.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), last && err == nil && !(follow && isLink(info)):
		return true, nil
	case err != nil:
		return false, err
	case isLink(info):
		return false, w.followLink(name, info)
	case !info.IsDir():
		return false, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	next, opened, err := enterDir(w.at, name, info)
	if err != nil {
		return false, err
	}
	err = w.at.Close()
	w.at, w.done, w.rest = next, append(w.done, name), w.rest[1:]
	w.links = slices.DeleteFunc(w.links, func(l link) bool {
		if l.rest == len(w.rest) && err == nil {
			err = l.checkTarget(opened)
		}
		return l.rest == len(w.rest)
	})
	return false, err
}

// enterDir opens a directory that was checked.
func enterDir(at *os.Root, name string, looked fs.FileInfo) (*os.Root, fs.FileInfo, error) {
	next, err := at.OpenRoot(name)
	if err != nil {
		return nil, nil, err
	}
	opened, err := next.Stat(".")
	if err == nil && !os.SameFile(looked, opened) {
		err = &ForeignError{next.Name(), "changed while it was opened"}
	}
	if err != nil {
		return nil, nil, errors.Join(err, next.Close())
	}
	return next, opened, nil
}

// followLink continues with the target of a link. A link of root in a directory of a user
// counts as the user's, who may have moved it there.
func (w *walk) followLink(name string, info fs.FileInfo) error {
	if w.count++; w.count > maxLinks {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
	}
	in, err := w.at.Stat(".")
	if err != nil {
		return err
	}
	uid := uidOf(info)
	if uid == 0 {
		uid = uidOf(in)
	}
	if uid != 0 {
		w.links = append(w.links, link{filepath.Join(w.at.Name(), name), uid, len(w.rest) - 1})
	}
	target, err := w.at.Readlink(name)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(target) {
		target = "/" + filepath.Join(append(slices.Clone(w.done), target)...)
	}
	return w.restartAt(filepath.Join(append([]string{target}, w.rest[1:]...)...))
}

// checkArrival checks the links that end at the end of the walk. The last name can be a
// directory of the user itself.
func (w *walk) checkArrival() error {
	if len(w.links) == 0 {
		return nil
	}
	in, err := w.at.Stat(".")
	if err != nil {
		return err
	}
	end, err := w.at.Lstat(w.rest[0])
	for _, l := range w.links {
		if err == nil && len(w.rest) == 1 && end.IsDir() && uidOf(end) == l.uid {
			continue
		}
		if err := l.checkTarget(in); err != nil {
			return err
		}
	}
	return nil
}

// checkTarget rejects a link that does not lead to a directory of its user.
func (l link) checkTarget(dir fs.FileInfo) error {
	if uidOf(dir) == l.uid {
		return nil
	}
	return &ForeignError{l.path, fmt.Sprintf("is a symbolic link of user %d to a directory of user %d", l.uid, uidOf(dir))}
}

func isLink(info fs.FileInfo) bool { return info.Mode()&fs.ModeSymlink != 0 }

// uidOf returns the owner of a file; -1 if it is not known.
func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// withPath adds the whole path to errors of an os.Root, which only know the name in it.
func withPath(path string, err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, new(*ForeignError)):
		return err
	case errors.As(err, &p):
		return &fs.PathError{Op: p.Op, Path: path, Err: p.Err}
	case errors.As(err, &l):
		return &fs.PathError{Op: l.Op, Path: path, Err: l.Err}
	}
	return err
}
