package serverbackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/Masterminds/semver/v3"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fsync"
)

// A Destination is a new data directory, which a server does not accept before Commit.
type Destination interface {
	Path(parts ...string) string
	// Commit completes the directory. With a reason, it puts the server on hold before.
	Commit(hold string) error
	// Discard removes the directory after a failure.
	Discard() error
}

// A Replaced directory is the previous data directory, under another name.
type Replaced interface {
	// Undo gives it its name again.
	Undo() error
}

// RestoreOptions configures a restore.
type RestoreOptions struct {
	File       string
	Identities []age.Identity
	// Trusted are the keys of which one must have signed the set. Unverified accepts any
	// set: the author of the file then decides all keys and all objects of the server.
	Trusted    []backup.PublicKey
	Unverified bool
	// KeysOnly restores the files of pki and keys without data: for a server with external
	// etcd.
	KeysOnly bool
	// Kubernetes is the version of the libraries of this program.
	Kubernetes string
	// Replace moves the existing data directory away. Nil refuses existing data, because
	// Create does.
	Replace func() (Replaced, error)
	// Create makes the new directory for the server of the set.
	Create func(*Header) (Destination, error)
	// RestoreEtcd makes the directory of etcd, which does not exist, from a snapshot.
	RestoreEtcd func(ctx context.Context, snapshot, etcdDir string) error
}

// Restore makes a data directory from a set. The whole set is verified before anything is
// changed. After a failure, the new directory is removed and the previous one has its name
// again.
func Restore(ctx context.Context, o RestoreOptions) (*Header, error) {
	f, size, err := openFile(o.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, err := readSet(contextReader{ctx.Err, f}, size, o.Identities, o.acceptSet, nil)
	if err != nil {
		return nil, explainSet(o.File, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if o.Replace == nil {
		return h, o.writeDirectory(ctx, f, size, h)
	}
	old, err := o.Replace()
	if err != nil {
		return nil, fmt.Errorf("replacing the data directory: %w", err)
	}
	return h, undoAfter(o.writeDirectory(ctx, f, size, h), old)
}

// undoAfter gives the previous data directory its name again after an error.
func undoAfter(err error, old Replaced) error {
	if err == nil {
		return nil
	}
	if failed := old.Undo(); failed != nil {
		return errors.Join(err, fmt.Errorf("giving the previous data directory its name again: %w", failed))
	}
	return err
}

// acceptSet returns an error for a set that must not or cannot be restored.
func (o RestoreOptions) acceptSet(h *Header) error {
	if !o.Unverified && !slices.ContainsFunc(o.Trusted, func(k backup.PublicKey) bool { return k.IsSignerOf(h.Signature) }) {
		return diag.Refuse(idUnverified, o.File+": the set has no signature of a trusted key",
			"give the public key that 'slipwayd backup' printed for this server: --signed-by ed25519:…")
	}
	if h.KeysOnly() && !o.KeysOnly {
		return diag.Refuse(idKeysOnly, o.File+": the set has keys but no data, because etcd was external",
			"restore it with --keys-only, and start the server with the same --etcd-servers")
	}
	if isNewer(h.Kubernetes, o.Kubernetes) {
		return diag.Refuse(idNewer, fmt.Sprintf("%s: the set is of Kubernetes %s, but this program has %s", o.File, h.Kubernetes, o.Kubernetes),
			fmt.Sprintf("restore it with slipwayd %s or newer", cmp.Or(h.Program, "of that version")))
	}
	return nil
}

// isNewer reports whether a version has a newer minor than another one, whose program cannot
// read all of its data.
func isNewer(version, than string) bool {
	a, err := semver.NewVersion(version)
	b, other := semver.NewVersion(than)
	if err != nil || other != nil {
		return false
	}
	return cmp.Or(cmp.Compare(a.Major(), b.Major()), cmp.Compare(a.Minor(), b.Minor())) > 0
}

// writeDirectory makes the new directory from a verified set, which is read again.
func (o RestoreOptions) writeDirectory(ctx context.Context, f *os.File, size int64, verified *Header) (err error) {
	to, err := o.Create(verified)
	if err != nil {
		return fmt.Errorf("creating the data directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(explainSet(o.File, err), to.Discard())
		}
	}()
	for _, dir := range []string{pkiDir, keysDir, "tmp"} {
		if err := os.MkdirAll(to.Path(dir), 0o700); err != nil {
			return err
		}
	}
	x := extraction{to: to, keysOnly: o.KeysOnly}
	sameSet := func(h *Header) error {
		if string(h.raw) != string(verified.raw) {
			return newError(backup.Damaged, "the file has changed while it was read")
		}
		return nil
	}
	if _, err := readSet(contextReader{ctx.Err, f}, size, o.Identities, sameSet, x.openFile); err != nil {
		return err
	}
	for _, dir := range []string{pkiDir, keysDir} {
		if err := fsync.SyncDir(to.Path(dir)); err != nil {
			return err
		}
	}
	hold := "" // without data, nothing is older than the real clusters
	if !o.KeysOnly {
		hold = fmt.Sprintf("restored from %s, taken at %s", filepath.Base(o.File), verified.Taken.Format(time.RFC3339))
		if err := o.RestoreEtcd(ctx, x.snapshotPath(), to.Path("etcd")); err != nil {
			return err
		}
		if err := os.Remove(x.snapshotPath()); err != nil {
			return err
		}
	}
	return to.Commit(hold)
}

// An extraction writes the files of a set to a new data directory.
type extraction struct {
	to       Destination
	keysOnly bool
}

func (x extraction) snapshotPath() string { return x.to.Path("tmp", "snapshot.db") }

// openFile returns the writer for a file of the set. checkHeader has accepted its name.
func (x extraction) openFile(f backup.File) (io.WriteCloser, error) {
	switch {
	case f.Name == snapshotName && x.keysOnly:
		return discarded{io.Discard}, nil
	case f.Name == snapshotName:
		return createFile(x.snapshotPath())
	case !keyFile.MatchString(f.Name):
		return nil, newError(backup.Damaged, "the set has a file %.120q", f.Name)
	}
	dir, name := filepath.Split(f.Name)
	return createFile(x.to.Path(filepath.Clean(dir), name))
}

type discarded struct{ io.Writer }

func (discarded) Close() error { return nil }

// syncedFile is a file that is on disk when it is closed.
type syncedFile struct{ *os.File }

func createFile(path string) (io.WriteCloser, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return syncedFile{f}, nil
}

func (f syncedFile) Close() error { return errors.Join(f.Sync(), f.File.Close()) }
