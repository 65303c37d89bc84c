//go:build linux

package autobackup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// keepTestOutcome returns the earlier result of restore tests; nil if they are disabled.
// From the first time on it has the time since when none has passed.
func (a AutoBackup) keepTestOutcome(at time.Time, before *op.DrillOutcome) *op.DrillOutcome {
	switch {
	case a.Job.Drill == nil:
		return nil
	case before == nil:
		return &op.DrillOutcome{Since: at}
	}
	return before
}

// RunRestoreTestIfDue runs a restore test if the latest passed test is old enough, or the
// latest test failed. told is called at its start, whose record remains if its end never
// comes, and at its end.
func (a AutoBackup) RunRestoreTestIfDue(ctx context.Context, k op.KeptSnapshot, was *op.DrillOutcome,
	told func(op.DrillOutcome) error,
) error {
	if was == nil || ctx.Err() != nil {
		return nil
	}
	// A time before the latest passed test means that the clock was corrected.
	age := k.Taken.Sub(was.Good)
	if was.Failed == "" && was.Begun.IsZero() && age >= 0 && age < time.Duration(a.Job.Drill.EverySeconds)*time.Second {
		return nil
	}
	out, begun := *was, time.Now()
	if out.Begun.IsZero() {
		out.Begun = begun.UTC().Truncate(time.Second)
	}
	if err := told(out); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, op.AutoDrillTime)
	defer cancel()
	is, problem := a.RunRestoreTest(limited, k)
	if problem != nil && ctx.Err() != nil { // the host shuts down: this proves nothing about the snapshot
		return nil
	}
	ended := time.Now().UTC().Truncate(time.Second)
	is.Good, is.Since, is.Path, is.At, is.Seconds = out.Good, out.Since, k.Path, ended, time.Since(begun).Seconds()
	switch {
	case problem == nil:
		is.Good, is.Since = k.Taken, time.Time{}
	case is.Since.IsZero():
		is.Since = ended
	}
	if problem != nil {
		is.Failed = host.FailureOf(problem).Message
	}
	return told(is)
}

// restoreTestScratch is the directory of a restore test: next to the snapshots, on a disk
// that it does not fill.
func (a AutoBackup) restoreTestScratch() etcd.Scratch {
	p := op.EtcdPrograms{Program: a.Job.Program, Utility: a.Job.Utility}
	if a.Job.Drill != nil {
		p.Server = a.Job.Drill.Server
	}
	return etcd.NewScratch(a.Host, p, filepath.Join(a.snapshotDir(), ".drill"))
}

// clearRestoreTest removes the remains of a restore test.
func (a AutoBackup) clearRestoreTest(ctx context.Context) error {
	c := a.restoreTestScratch()
	if !host.Exists(c.Dir) {
		return nil
	}
	return errors.Join(c.RemoveScope(ctx), os.RemoveAll(c.Dir))
}

// RunRestoreTest restores a snapshot into a temporary etcd, and compares the served data
// with the record from the time of the snapshot. It removes all its files.
func (a AutoBackup) RunRestoreTest(ctx context.Context, k op.KeptSnapshot) (out op.DrillOutcome, err error) {
	need, err := a.requiredSpace(k.Bytes + etcd.WalRoom)
	if err == nil {
		err = a.RoomFor(a.snapshotDir(), need)
	}
	if err != nil {
		return out, err
	}
	c := a.restoreTestScratch()
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.Dir)) }()
	is, err := c.RunRestoreTest(ctx, filepath.Join(a.snapshotDir(), filepath.Base(k.Path)), k.Bytes, a.Job.Drill.Prefix)
	if err != nil {
		return out, err
	}
	out.Revision, out.Keys, out.Etcd = is.Revision, is.Keys, is.Version
	switch {
	case is.Snapshot.SHA256 != k.SHA256:
		return out, errors.New("the snapshot has changed since it was taken: its checksum is different")
	case is.Snapshot.Revision != k.Revision || is.Snapshot.Keys != k.Keys:
		return out, fmt.Errorf("etcdutl found revision %d with %d keys in the snapshot, but it was taken at revision %d with %d keys",
			is.Snapshot.Revision, is.Snapshot.Keys, k.Revision, k.Keys)
	case is.Revision != k.Revision || !ServesVersion(is.Keys, k):
		return out, fmt.Errorf("etcd serves revision %d with %d keys, but the snapshot was taken at revision %d with %d keys",
			is.Revision, is.Keys, k.Revision, k.Keys)
	}
	out.Secret, err = a.ReadSecret(is.Key, is.Value)
	return out, err
}

// ServesVersion reports whether an etcd with this number of keys has all of a snapshot.
// etcdutl counts one more if a restore has raised the revision, which it does with a
// revision without a key.
func ServesVersion(keys int, k op.KeptSnapshot) bool {
	return keys == k.Keys || keys == k.Keys-1 && k.Revision > op.FirstBump
}

// ReadSecret returns how a Secret was read with the keys of the host. A host with only an
// etcd member has none, so encrypted Secrets are not tested there.
func (a AutoBackup) ReadSecret(key string, value []byte) (string, error) {
	if key == "" {
		return "there is none", nil
	}
	var keys *backup.Encryption
	for _, file := range a.Job.Drill.Encryption {
		text, err := a.readSmallFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		e, bad := backup.ReadEncryption(text)
		if err := errors.Join(err, bad); err != nil {
			return "", err
		}
		if e != nil {
			keys = e
		}
	}
	how, err := keys.OpenSecret(key, value)
	switch {
	case errors.Is(err, backup.ErrOutside), err != nil && how != "" && len(a.Job.Drill.Encryption) == 0:
		return "encrypted (" + how + "): decryption not tested", nil
	case err != nil:
		return "", fmt.Errorf("reading the Secret %s/%s: %w", filepath.Base(filepath.Dir(key)), filepath.Base(key), err)
	case how != "":
		return "decrypted (" + how + ")", nil
	}
	return "read", nil
}
