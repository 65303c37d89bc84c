//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/node/op"
)

// stillTried is what came of trying snapshots before; nil if none is to be tried any
// more. From the first time on it says since when none was found good.
func (a autoSnapshot) stillTried(at time.Time, before *op.DrillOutcome) *op.DrillOutcome {
	switch {
	case a.job.Drill == nil:
		return nil
	case before == nil:
		return &op.DrillOutcome{Since: at}
	}
	return before
}

// drillDue tries a snapshot if the latest that was found good is old enough, or the
// latest time came to no good end. told hears of it when it begins, which stays on
// record if its end never comes, and when that has come.
func (a autoSnapshot) drillDue(ctx context.Context, k op.KeptSnapshot, was *op.DrillOutcome, told func(op.DrillOutcome) error) error {
	if was == nil || ctx.Err() != nil {
		return nil
	}
	// Before the latest good one is a clock that was put right.
	age := k.Taken.Sub(was.Good)
	if was.Failed == "" && was.Begun.IsZero() && age >= 0 && age < time.Duration(a.job.Drill.EverySeconds)*time.Second {
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
	is, problem := a.try(limited, k)
	if problem != nil && ctx.Err() != nil { // the host goes down: that says nothing of the snapshot
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
		is.Failed = failure(problem).Message
	}
	return told(is)
}

// drilled is where a snapshot is tried: beside the snapshots, whose disk is not filled.
func (a autoSnapshot) drilled() scratch {
	p := op.EtcdPrograms{Program: a.job.Program, Utility: a.job.Utility}
	if a.job.Drill != nil {
		p.Server = a.job.Drill.Server
	}
	return a.scratch(p, filepath.Join(a.dir(), ".drill"))
}

// clearDrill removes what trying a snapshot has left.
func (a autoSnapshot) clearDrill(ctx context.Context) error {
	c := a.drilled()
	if !exists(c.dir) {
		return nil
	}
	return errors.Join(c.end(ctx), os.RemoveAll(c.dir))
}

// try restores a snapshot into an etcd of its own, and holds what that serves against
// what was written down when it was taken. Nothing is left.
func (a autoSnapshot) try(ctx context.Context, k op.KeptSnapshot) (out op.DrillOutcome, err error) {
	need, err := a.sparing(k.Bytes + walRoom)
	if err == nil {
		err = a.roomFor(a.dir(), need)
	}
	if err != nil {
		return out, err
	}
	c := a.drilled()
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	is, err := c.drill(ctx, filepath.Join(a.dir(), filepath.Base(k.Path)), k.Bytes, a.job.Drill.Prefix)
	if err != nil {
		return out, err
	}
	out.Revision, out.Keys, out.Etcd = is.Revision, is.Keys, is.Version
	switch {
	case is.Snapshot.SHA256 != k.SHA256:
		return out, errors.New("the snapshot has changed since it was taken: its checksum is different")
	case is.Snapshot.Revision != k.Revision || is.Snapshot.Keys != k.Keys:
		return out, fmt.Errorf("etcdutl found revision %d with %d keys in the snapshot, but it was taken at revision %d with %d keys", is.Snapshot.Revision, is.Snapshot.Keys, k.Revision, k.Keys)
	case is.Revision != k.Revision || !serves(is.Keys, k):
		return out, fmt.Errorf("etcd serves revision %d with %d keys, but the snapshot was taken at revision %d with %d keys", is.Revision, is.Keys, k.Revision, k.Keys)
	}
	out.Secret, err = a.readSecret(is.Key, is.Value)
	return out, err
}

// serves says that an etcd with so many keys has all of a snapshot. etcdutl counts one more
// where a restore has raised the revision: it does that by a revision of no key.
func serves(keys int, k op.KeptSnapshot) bool {
	return keys == k.Keys || keys == k.Keys-1 && k.Revision > op.FirstBump
}

// readSecret says how a Secret was read: by the keys that the host has. One with a
// member alone has none, and what is encrypted is not tried there.
func (a autoSnapshot) readSecret(key string, value []byte) (string, error) {
	if key == "" {
		return "there is none", nil
	}
	var keys *backup.Encryption
	for _, file := range a.job.Drill.Encryption {
		text, err := a.small(file)
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
	case errors.Is(err, backup.ErrOutside), err != nil && how != "" && len(a.job.Drill.Encryption) == 0:
		return "encrypted (" + how + "): not tried", nil
	case err != nil:
		return "", fmt.Errorf("reading the Secret %s/%s: %w", filepath.Base(filepath.Dir(key)), filepath.Base(key), err)
	case how != "":
		return "decrypted (" + how + ")", nil
	}
	return "read", nil
}
