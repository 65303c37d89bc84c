// Package datadir checks, creates and locks the data directory of a management server.
//
// One user owns the directory, and no other user can write to it or to the directories
// above it. So no other user can replace a path between its check and its use, and this
// package uses paths. It follows no link at the directory or in it.
//
// The file server.json marks a complete directory and is written last. A restore writes
// restore.json first: a directory with restore.json and without server.json is incomplete,
// and Open refuses it.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/server/privatefile"
)

// The names in a data directory.
const (
	infoFile    = "server.json"
	holdFile    = "hold.json"
	lockFile    = "lock"
	restoreFile = "restore.json"

	temporaryDir = "tmp"
	// lostAndFound is in the root of many file systems.
	lostAndFound = "lost+found"
)

// required are the directories without which a server has lost its data.
var required = []string{"pki", "keys", "etcd"}

// optional are the directories that are created again if they are missing.
var optional = []string{ArchiveDir, "audit", "backups", CacheDir, SnapshotsDir, temporaryDir}

// ArchiveDir has finished operations, CacheDir the bundles of clusters, and SnapshotsDir the backup sets of their etcd.
const (
	ArchiveDir   = "archive"
	CacheDir     = "cache"
	SnapshotsDir = "snapshots"
)

const dirMode fs.FileMode = 0o700

// A Dir is a data directory whose lock this process holds.
type Dir struct {
	path  string
	info  Info
	maker maker

	mu        sync.Mutex
	lock      *os.File // nil once it is released
	restoring bool     // until Commit
}

// A maker changes data directories. Its zero value can be used.
type maker struct {
	// after, if not nil, is called with the name of each step that has reached the disk.
	// Tests return an error there, as if the process were killed.
	after func(step string) error
	// swap, if not nil, replaces the system call that swaps two directories.
	swap func(a, b string) error
}

func (m maker) finishStep(step string) error {
	if m.after == nil {
		return nil
	}
	return m.after(step)
}

// Open locks a data directory, and creates it if it is missing or empty. It removes the
// files in tmp/ that an earlier process left.
func Open(path string) (*Dir, error) { return maker{}.openDir(path) }

func (m maker) openDir(path string) (*Dir, error) {
	d, err := m.lockDir(path)
	if err == nil {
		if err = d.load(); err != nil {
			err = errors.Join(err, d.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the data directory: %w", err)
	}
	return d, nil
}

// lockDir locks a directory, and creates it if it is missing. It changes nothing in a
// directory of another program.
func (m maker) lockDir(path string) (*Dir, error) {
	path, err := checkPlace(path)
	if err != nil {
		return nil, err
	}
	if err := m.makeDir(path); err != nil {
		return nil, explainWrite(path, err)
	}
	have, err := inspectContent(path)
	if err != nil {
		return nil, err
	}
	if have.kind == foreign {
		return nil, foreignError(path, have.name)
	}
	if have.kind == empty { // systemd and mkdir create it with another mode
		err = os.Chmod(path, dirMode)
	} else {
		err = checkMode(path)
	}
	if err != nil {
		return nil, explainWrite(path, err)
	}
	lock, err := acquireLock(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, lock: lock, maker: m}
	if err := errors.Join(d.writeHolder(""), m.finishStep("lock")); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// makeDir creates a directory and its missing parents.
func (m maker) makeDir(path string) error {
	if err := checkDir(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParents(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := fsync.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return errors.Join(m.finishStep("directory"), checkDir(path))
}

func makeParents(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParents(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsync.SyncDir(filepath.Dir(dir))
}

// load checks the content of a locked directory, or fills an empty one.
func (d *Dir) load() error {
	have, err := inspectContent(d.path)
	if err != nil {
		return err
	}
	switch have.kind {
	case empty:
		return d.fill()
	case foreign:
		return foreignError(d.path, have.name)
	case incomplete:
		return incompleteError(d.path)
	case headless:
		return headlessError(d.path, have.name)
	}
	if d.info, err = readInfo(d.path); err != nil {
		return err
	}
	// A restore was killed after its last file was written.
	if err := removeFile(d.Path(restoreFile)); err != nil {
		return explainWrite(d.path, err)
	}
	if err := d.checkMembers(); err != nil {
		return err
	}
	for _, name := range []string{infoFile, holdFile, restoreFile} {
		if err := privatefile.RemoveStaged(d.Path(name)); err != nil {
			return explainWrite(d.path, err)
		}
	}
	return explainWrite(d.path, removeTemporary(d.Path(temporaryDir)))
}

// fill makes a new data directory in an empty directory.
func (d *Dir) fill() error {
	d.info = newInfo()
	if err := d.makeMembers(); err != nil {
		return err
	}
	return d.writeInfo()
}

// makeMembers creates the missing directories in the data directory.
func (d *Dir) makeMembers() error {
	for _, name := range slices.Concat(required, optional) {
		if err := os.Mkdir(d.Path(name), dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return explainWrite(d.path, err)
		}
		if err := d.maker.finishStep(name); err != nil {
			return err
		}
	}
	return explainWrite(d.path, fsync.SyncDir(d.path))
}

// checkMembers checks the directories in an existing data directory. It does not create a
// directory whose loss is a loss of data.
func (d *Dir) checkMembers() error {
	for _, name := range required {
		if _, err := os.Lstat(d.Path(name)); errors.Is(err, fs.ErrNotExist) {
			return memberMissingError(d.path, name)
		}
	}
	if err := d.makeMembers(); err != nil {
		return err
	}
	for _, name := range slices.Concat(required, optional) {
		if err := checkDir(d.Path(name)); err != nil {
			return err
		}
		if err := checkMode(d.Path(name)); err != nil {
			return err
		}
	}
	return nil
}

// removeTemporary removes the regular files of the current user in a directory.
func removeTemporary(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case info.Mode().IsRegular() && uidOf(info) == os.Geteuid():
			errs = append(errs, root.Remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// removeFile removes a file durably; a missing one is not an error.
func removeFile(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsync.SyncDir(filepath.Dir(path))
}

// Close releases the lock. A second call does nothing.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	err := releaseLock(d.lock)
	d.lock = nil
	return err
}

// Path returns the absolute path of the directory, or of a file in it.
func (d *Dir) Path(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// ServerID returns the id of the server. A restore keeps it.
func (d *Dir) ServerID() string { return d.info.ServerID }

// Created returns when the server was created. A restore keeps this time.
func (d *Dir) Created() time.Time { return d.info.Created }
