package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/fileowner"
)

// Under sudo, sandboxes and the base system are in directories of the caller, who can
// create links there. So these directories belong to root, a program that runs as root
// works in no others, and it opens each once and then accesses its files through the
// descriptor.

// openDir opens a directory, relative to another one unless at is unix.AT_FDCWD. The
// descriptor is open as long as the program runs. For root, the directory must not be
// writable by any other user.
func openDir(at int, dir, shown string) (int, error) {
	fd, err := unix.Openat(at, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: shown, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, errors.Join(&fs.PathError{Op: "stat", Path: shown, Err: err}, unix.Close(fd))
	}
	if os.Geteuid() == 0 && (st.Uid != 0 || st.Mode&0o022 != 0) {
		return -1,
			errors.Join(&fileowner.ForeignError{
				Path:   shown,
				Reason: fmt.Sprintf("belongs to user %d, or other users can write to it", st.Uid),
			}, unix.Close(fd))
	}
	return fd, nil
}

// openIn calls openDir for a directory in a root.
func openIn(root *os.Root, name string) (int, error) {
	dir, err := root.Open(".")
	if err != nil {
		return -1, err
	}
	defer dir.Close()
	return openDir(int(dir.Fd()), name, filepath.Join(root.Name(), name))
}

// pinnedPath returns the path of an open directory, also for child programs: it remains the
// same directory when another one gets its name.
func pinnedPath(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd) }

// filePath returns the path of a file of the sandbox.
func (s *Sandbox) filePath(elem ...string) string {
	return filepath.Join(append([]string{pinnedPath(s.fd)}, elem...)...)
}

// foreignDirError converts the error for a directory that root does not use.
func foreignDirError(err error, hint string) error {
	var f *fileowner.ForeignError
	if errors.As(err, &f) {
		return refuseWith(IDForeign, f.Error(), hint)
	}
	return err
}

// loadSandbox opens a sandbox by its directory, which must not be a link.
func loadSandbox(dir string) (*Sandbox, error) {
	fd, err := openDir(unix.AT_FDCWD, dir, dir)
	if err != nil {
		return nil, foreignDirError(err,
			"move it away; if an earlier version of Slipway created it, run: sudo chown root: "+dir+" "+filepath.Join(dir, specFile))
	}
	s := &Sandbox{dir: dir, fd: fd}
	if err := s.readState(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if s.program, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return s, nil
}

// readState reads the state file of a sandbox, which must be as create writes it.
func (s *Sandbox) readState() error {
	name := filepath.Base(s.dir)
	notOne := func(why string) error {
		return refuseWith(IDForeign, s.dir+" is not a sandbox: "+why, "move it away")
	}
	info, err := os.Lstat(s.filePath(specFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A creation that was killed in its first moments only has a name.
		if empty, err := s.isEmpty(); err != nil || !empty {
			return errors.Join(err, notOne("it has no "+specFile))
		}
		s.spec = spec{Version: specVersion, Name: name}
	case err != nil:
		return &fs.PathError{Op: "stat", Path: filepath.Join(s.dir, specFile), Err: errors.Unwrap(err)}
	case !info.Mode().IsRegular():
		return notOne(specFile + " is not a regular file")
	case os.Geteuid() == 0 && !fileowner.BelongsToRoot(s.filePath(specFile)):
		return notOne(specFile + " does not belong to root")
	default:
		if err := readJSON(s.filePath(specFile), &s.spec); err != nil {
			return fmt.Errorf("sandbox %s: %w", name, err)
		}
	}
	if s.spec.Name != name {
		return notOne(fmt.Sprintf("its state file belongs to a sandbox named %q", s.spec.Name))
	}
	if err := s.spec.checkSpec(); err != nil {
		return notOne(err.Error())
	}
	return nil
}

// isEmpty reports whether a sandbox has no files except temporary ones of a killed program.
func (s *Sandbox) isEmpty() (bool, error) {
	entries, err := os.ReadDir(s.filePath())
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tmpPrefix) {
			return false, err
		}
	}
	return err == nil, err
}

// removeFiles removes all files of the sandbox, and its directory last.
func (s *Sandbox) removeFiles() error {
	entries, err := os.ReadDir(s.filePath())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(s.filePath(e.Name())); err != nil {
			return err
		}
	}
	// By its name, which can belong to another directory now: only an empty one can be
	// removed.
	if err := unix.Rmdir(s.dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: s.dir, Err: err}
	}
	return nil
}

// unlinkHome removes the link to the sandbox in the state directory, if there is one.
func (s *Sandbox) unlinkHome(home string) error {
	root, err := os.OpenRoot(filepath.Join(home, "sandboxes"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Readlink(s.Name()); err != nil {
		return nil // not a link: the sandbox itself was there
	}
	return root.Remove(s.Name())
}

// baseDir opens the directory of a base system in the cache, and creates it if it is
// missing.
func baseDir(of *fileowner.Owner, cache, name string) (fd int, err error) {
	root, err := of.MakeRoot(cache, 0o755)
	if err != nil {
		return -1, fmt.Errorf("creating the cache: %w", foreignDirError(err, "use another directory with SLIPWAY_CACHE"))
	}
	defer root.Close()
	at, err := ownBase(root)
	if err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(at, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("creating the cache: %w", err)
	}
	fd, err = openDir(at, name, filepath.Join(cache, baseName, name))
	return fd, foreignDirError(err, "remove it")
}

// baseName is the directory of base systems in the cache.
const baseName = "sandbox"

// ownBase opens the directory of base systems. Earlier versions gave the directory, but
// not its content, to the caller: it is changed back to root.
func ownBase(cache *os.Root) (int, error) {
	if err := cache.Mkdir(baseName, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, fmt.Errorf("creating the cache: %w", err)
	}
	if err := cache.Lchown(baseName, 0, 0); err != nil {
		return -1, fmt.Errorf("creating the cache: %w", err)
	}
	fd, err := openIn(cache, baseName)
	return fd, foreignDirError(err, "remove it")
}
