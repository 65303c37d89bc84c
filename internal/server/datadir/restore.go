package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/server/privatefile"
)

// A restoreRecord is the content of restore.json.
type restoreRecord struct {
	Started time.Time `json:"started"`
	// Previous is the path of the data directory before the restore; it may be empty.
	Previous string `json:"previous,omitempty"`
}

// isValid reports whether this package wrote the record, and so the content of the directory.
func (r restoreRecord) isValid() bool { return !r.Started.IsZero() }

// readRestore returns an empty record if it cannot be read.
func readRestore(dir string) restoreRecord {
	var r restoreRecord
	data, err := privatefile.Read(filepath.Join(dir, restoreFile), privatefile.Secret)
	if err != nil || json.Unmarshal(data, &r) != nil {
		return restoreRecord{}
	}
	return r
}

// Create makes a new data directory for a restore, with the id and the time of creation of
// the server in the backup. The path must be missing or empty, or left by Replace. The
// caller fills the directory and calls Commit; until then Open refuses the directory.
func Create(path string, info Info) (*Dir, error) { return maker{}.createDir(path, info) }

func (m maker) createDir(path string, info Info) (*Dir, error) {
	d, err := m.lockDir(path)
	if err == nil {
		if err = d.beginRestore(info); err != nil {
			err = errors.Join(err, d.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	return d, nil
}

// beginRestore marks a locked directory as incomplete.
func (d *Dir) beginRestore(info Info) error {
	if info.Format > Format {
		return newerError(d.path, info.Format, info.Program)
	}
	info.Format = Format
	if err := info.validate(); err != nil {
		return err
	}
	have, err := inspectContent(d.path)
	if err != nil {
		return err
	}
	switch {
	case have.kind == foreign:
		return foreignError(d.path, have.name)
	case have.kind == incomplete && have.hasData:
		return incompleteError(d.path)
	case have.kind == incomplete: // left by Replace
	case have.kind != empty:
		return existsError(d.path)
	default:
		if err := d.maker.writeRestore(d.path, restoreRecord{Started: time.Now().UTC()}); err != nil {
			return err
		}
	}
	d.info, d.restoring = info, true
	return d.makeMembers()
}

func (m maker) writeRestore(dir string, r restoreRecord) error {
	if err := writeJSON(filepath.Join(dir, restoreFile), r); err != nil {
		return explainWrite(dir, err)
	}
	return m.finishStep(restoreFile)
}

// Commit completes a directory of Create. It writes all files to disk and then server.json.
func (d *Dir) Commit() error {
	if err := d.commitRestore(); err != nil {
		return fmt.Errorf("completing the data directory: %w", err)
	}
	return nil
}

func (d *Dir) commitRestore() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil || !d.restoring {
		return errors.New("it is not open for a restore")
	}
	if err := atomicfile.SyncTree(d.path); err != nil {
		return explainWrite(d.path, err)
	}
	if err := d.maker.finishStep("sync"); err != nil {
		return err
	}
	d.info.Started = true // its keys are not created again
	if err := d.writeInfo(); err != nil {
		return err
	}
	if err := removeFile(d.Path(restoreFile)); err != nil {
		return explainWrite(d.path, err)
	}
	d.restoring = false
	return d.maker.finishStep("commit")
}

// Replace renames an existing data directory to PATH.before-TIME and returns this name. It
// leaves an incomplete directory at the path, which only Create accepts. If the path is
// missing or empty, Replace changes nothing and returns "". It removes the data of an
// earlier restore that did not finish, and returns the name that this restore has kept.
func Replace(path string) (kept string, err error) { return maker{}.replaceDir(path, time.Now()) }

func (m maker) replaceDir(path string, now time.Time) (kept string, err error) {
	kept, err = m.keepDir(path, now)
	if err != nil {
		return "", fmt.Errorf("replacing the data directory: %w", err)
	}
	return kept, nil
}

func (m maker) keepDir(path string, now time.Time) (string, error) {
	d, have, err := m.lockExisting(path)
	if d == nil || err != nil {
		return "", err
	}
	defer func() { _ = d.Close() }() // nothing is lost
	switch have.kind {
	case empty:
		return "", nil
	case foreign:
		return "", foreignError(d.path, have.name)
	}
	if r := readRestore(d.path); have.kind == incomplete && r.isValid() {
		err := checkKept(d.path, r.Previous)
		if errors.Is(err, fs.ErrNotExist) { // it was renamed or removed since
			r.Previous, err = "", nil
		}
		if err != nil {
			return "", err
		}
		return r.Previous, explainWrite(d.path, removeContent(d.path))
	}
	return m.moveAside(d.path, now)
}

// lockExisting locks an existing directory, whatever its content; damaged ones are replaced
// too. It returns nil if the path is missing.
func (m maker) lockExisting(path string) (*Dir, content, error) {
	path, err := checkPlace(path)
	if err != nil {
		return nil, content{}, err
	}
	if err := checkDir(path); errors.Is(err, fs.ErrNotExist) {
		return nil, content{}, nil
	} else if err != nil {
		return nil, content{}, err
	}
	have, err := inspectContent(path)
	if err == nil && have.kind == foreign {
		err = foreignError(path, have.name)
	}
	if err != nil {
		return nil, content{}, err
	}
	lock, err := acquireLock(path)
	if err != nil {
		return nil, content{}, err
	}
	d := &Dir{path: path, lock: lock, maker: m}
	if err := d.writeHolder(""); err != nil {
		return nil, content{}, errors.Join(err, d.Close())
	}
	if have, err = inspectContent(path); err != nil {
		return nil, content{}, errors.Join(err, d.Close())
	}
	return d, have, nil
}

// keptInfix is between the path of a data directory and the time in the name of a kept one.
const keptInfix = ".before-"

// moveAside puts an incomplete directory in the place of a data directory, whose new name
// it returns. The two are swapped in one step, so that no server starts without its data
// in between.
func (m maker) moveAside(path string, now time.Time) (kept string, err error) {
	name := path + keptInfix + now.UTC().Format("20060102T150405Z")
	kept = name
	for i := 2; ; i++ {
		if err = os.Mkdir(kept, dirMode); !errors.Is(err, fs.ErrExist) {
			break
		}
		kept = fmt.Sprintf("%s-%d", name, i)
	}
	if err != nil {
		return "", explainWrite(path, err)
	}
	if err := m.swapWithNew(path, kept, restoreRecord{Started: now.UTC(), Previous: kept}); err != nil {
		return "", err
	}
	return kept, nil
}

// swapWithNew swaps a data directory and a new directory, which gets restore.json.
// After an error, the data directory has its name again.
func (m maker) swapWithNew(path, fresh string, r restoreRecord) error {
	err := m.writeRestore(fresh, r)
	if err != nil {
		return errors.Join(err, removeIfUnused(fresh))
	}
	err = m.swapDirs(path, fresh)
	if isUnsupported(err) {
		return m.renameForNew(path, fresh, r)
	}
	if errors.Is(err, unix.EBUSY) {
		return errors.Join(mountedError(path), removeIfUnused(fresh))
	}
	if err != nil {
		return errors.Join(explainWrite(path, err), removeIfUnused(fresh))
	}
	if err := fsync.SyncDir(filepath.Dir(path)); err != nil {
		return errors.Join(err, m.swapDirs(path, fresh), removeIfUnused(fresh))
	}
	return m.finishStep("swap")
}

// renameForNew is swapWithNew in two steps, for file systems that cannot swap.
func (m maker) renameForNew(path, fresh string, r restoreRecord) error {
	err := removeFile(filepath.Join(fresh, restoreFile))
	if err == nil {
		err = renameOverEmpty(path, fresh)
	}
	if errors.Is(err, unix.EBUSY) {
		err = mountedError(path)
	}
	if err != nil {
		return errors.Join(explainWrite(path, err), removeIfUnused(fresh))
	}
	if err = os.Mkdir(path, dirMode); err == nil {
		if err = m.writeRestore(path, r); err != nil {
			err = errors.Join(err, removeIfUnused(path))
		}
	}
	if err != nil {
		return errors.Join(explainWrite(path, err), os.Rename(fresh, path))
	}
	return errors.Join(fsync.SyncDir(filepath.Dir(path)), m.finishStep("rename"))
}

// renameOverEmpty renames a directory, also to the path of an empty directory, which
// os.Rename refuses.
func renameOverEmpty(from, to string) error {
	if err := unix.Rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// removeIfUnused removes a directory that has at most restore.json.
func removeIfUnused(dir string) error {
	if err := removeFile(filepath.Join(dir, restoreFile)); err != nil {
		return err
	}
	return os.Remove(dir)
}

// swapDirs swaps two directories in one step.
func (m maker) swapDirs(a, b string) error {
	if m.swap != nil {
		return m.swap(a, b)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "swap", Old: a, New: b, Err: err}
	}
	return nil
}

// isUnsupported reports whether a file system cannot swap two directories.
func isUnsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EXDEV)
}

// RestorePrevious ends a restore that has failed: it removes the incomplete directory and
// renames the directory that Replace has kept. Without a kept name, it only removes the
// content. The caller closes the Dir of Create before. A complete directory is refused.
func RestorePrevious(path, kept string) error { return maker{}.restorePrevious(path, kept) }

func (m maker) restorePrevious(path, kept string) error {
	if err := m.undoReplace(path, kept); err != nil {
		return fmt.Errorf("restoring the previous data directory: %w", err)
	}
	return nil
}

func (m maker) undoReplace(path, kept string) error {
	d, have, err := m.lockExisting(path)
	if err != nil {
		return err
	}
	if d == nil {
		return renameKept(path, kept)
	}
	defer func() { _ = d.Close() }() // nothing is lost
	switch {
	case have.kind == foreign:
		return foreignError(d.path, have.name)
	case have.kind != empty && !(have.restoring && readRestore(d.path).isValid()):
		return existsError(d.path)
	}
	if err := checkKept(d.path, kept); errors.Is(err, fs.ErrNotExist) {
		return missingError(kept, "does not exist")
	} else if err != nil {
		return err
	}
	if kept == "" {
		if err := removeContent(d.path); err != nil {
			return explainWrite(d.path, err)
		}
		return explainWrite(d.path, removeFile(d.Path(restoreFile)))
	}
	err = m.swapDirs(d.path, kept)
	if isUnsupported(err) {
		if err = removePartial(d.path); err == nil {
			err = os.Rename(kept, d.path)
		}
		return explainWrite(d.path, errors.Join(err, fsync.SyncDir(filepath.Dir(d.path))))
	}
	if err == nil {
		err = fsync.SyncDir(filepath.Dir(d.path))
	}
	if err == nil {
		err = m.finishStep("swap")
	}
	if err != nil {
		return explainWrite(d.path, err)
	}
	return explainWrite(d.path, removePartial(kept))
}

// renameKept renames a kept directory to a path that is missing.
func renameKept(path, kept string) error {
	path, err := filepath.Abs(path)
	if err != nil || kept == "" {
		return err
	}
	if err := checkKept(path, kept); errors.Is(err, fs.ErrNotExist) {
		return missingError(kept, "does not exist")
	} else if err != nil {
		return err
	}
	return explainWrite(path, fsync.Rename(kept, path))
}

// checkKept refuses a name that Replace has not returned for a path; "" is accepted. An
// error for a missing directory matches fs.ErrNotExist.
func checkKept(path, kept string) error {
	if kept == "" {
		return nil
	}
	rest, found := strings.CutPrefix(kept, path+keptInfix)
	if !found || strings.Contains(rest, "/") {
		return fmt.Errorf("%s is not a name of an earlier data directory %s", kept, path)
	}
	return checkDir(kept)
}

// removeContent removes the content of an incomplete directory, except restore.json and
// the lock. It follows no link, and removes only names that this package uses.
func removeContent(dir string) error {
	// Without server.json the directory is incomplete again.
	if err := removeFile(filepath.Join(dir, infoFile)); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, name := range slices.Concat(required, optional, []string{holdFile}) {
		errs = append(errs, root.RemoveAll(name))
	}
	for _, name := range []string{infoFile, holdFile, restoreFile} {
		errs = append(errs, privatefile.RemoveStaged(filepath.Join(dir, name)))
	}
	return errors.Join(append(errs, fsync.SyncDirIn(root, "."))...)
}

// removePartial removes an incomplete directory. The data is removed before restore.json.
func removePartial(dir string) error {
	if err := removeContent(dir); err != nil {
		return err
	}
	for _, name := range []string{lockFile, restoreFile} {
		if err := removeFile(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil {
		return err
	}
	return fsync.SyncDir(filepath.Dir(dir))
}
