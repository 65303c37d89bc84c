//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// etcdSnapshotOp executes op.EtcdSnapshot.
type etcdSnapshotOp struct{ o op.EtcdSnapshot }

// leftSnapshot is the age from which a snapshot is no longer fetched by anyone.
const leftSnapshot = 24 * time.Hour

func (s *session) snapshotPath(name string) string { return s.state("snapshots", name) }

func checkSnapshot(o op.EtcdSnapshot) error {
	if !wordy(o.Name) {
		return invalid("%q is not a valid snapshot name", o.Name)
	}
	if !o.Gone && len(o.Endpoints) != 1 {
		return invalid("a snapshot comes from exactly one member, but %d are named", len(o.Endpoints))
	}
	return nil
}

func (x *etcdSnapshotOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	if err := checkSnapshot(o); err != nil {
		return verdict{}, err
	}
	there := exists(s.snapshotPath(o.Name))
	switch {
	case o.Gone && there:
		return verdict{change: "remove"}, nil
	case o.Gone:
		return verdict{}, nil
	case !there:
		return verdict{change: "take a snapshot of " + o.Endpoints[0]}, nil
	}
	info, err := s.snapshotInfo(ctx, o)
	return verdict{output: info}, err
}

// Apply takes a snapshot, and verifies it before it reports success.
func (x *etcdSnapshotOp) Apply(ctx context.Context, s *session, res *op.Result) error {
	o := x.o
	path := s.snapshotPath(o.Name)
	if o.Gone {
		return s.disk.Remove(path)
	}
	dir := filepath.Dir(path)
	if err := s.disk.MkdirAll(dir, atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	if err := s.clearSnapshots(dir); err != nil {
		return err
	}
	size, err := s.etcdSize(ctx, o)
	if err != nil {
		return err
	}
	if err := s.roomFor(dir, size); err != nil {
		return err
	}
	// No time limit: it takes as long as the data need, and ctx limits it.
	if _, err := s.output(ctx, append(s.etcdctlArgs(o.EtcdClient, o.Endpoints[0]), "snapshot", "save", path)...); err != nil {
		return errors.Join(fmt.Errorf("taking a snapshot of etcd: %w", err), os.RemoveAll(path), os.RemoveAll(path+".part"))
	}
	if res.Output, err = s.snapshotInfo(ctx, o); err != nil {
		return errors.Join(err, os.RemoveAll(path))
	}
	return nil
}

// clearSnapshots removes the remains of killed managers.
func (s *session) clearSnapshots(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < leftSnapshot {
			continue
		}
		if err := s.disk.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// etcdSize returns the size of the member's database, in bytes.
func (s *session) etcdSize(ctx context.Context, o op.EtcdSnapshot) (int64, error) {
	states, err := s.etcdStatus(ctx, o.EtcdClient, o.Endpoints[0])
	if err != nil {
		return 0, err
	}
	return states.DBSize, nil
}

// snapshotInfo reads a complete snapshot.
func (s *session) snapshotInfo(ctx context.Context, o op.EtcdSnapshot) ([]byte, error) {
	info, err := s.snapshotAt(ctx, o.Utility, s.snapshotPath(o.Name))
	if err != nil {
		return nil, err
	}
	info.Path = op.EtcdSnapshots + "/" + o.Name
	return json.Marshal(info)
}

// snapshotAt reads the complete snapshot in a file.
func (s *session) snapshotAt(ctx context.Context, utility, path string) (info op.EtcdSnapshotInfo, err error) {
	said, err := s.output(ctx, utility, "snapshot", "status", path, "-w", "json")
	if err != nil {
		return info, &op.Error{Reason: op.ReasonEtcdSnapshot, Message: "the snapshot cannot be read: " + failure(err).Message}
	}
	var status struct {
		Hash     uint32 `json:"hash"`
		Revision int64  `json:"revision"`
		Keys     int    `json:"totalKey"`
		Version  string `json:"version"`
	}
	if err := json.Unmarshal([]byte(said), &status); err != nil {
		return info, fmt.Errorf("reading the etcdutl output for the snapshot: %w", err)
	}
	info.Hash, info.Revision, info.Keys, info.Version = status.Hash, status.Revision, status.Keys, status.Version
	file, err := os.Stat(path)
	if err != nil {
		return info, err
	}
	info.Bytes = file.Size()
	info.SHA256, err = atomicfile.SHA256(path)
	return info, err
}
