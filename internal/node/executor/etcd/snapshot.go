//go:build linux

package etcd

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
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// SnapshotOp executes op.EtcdSnapshot.
type SnapshotOp struct{ Op op.EtcdSnapshot }

// LeftSnapshot is the age from which a snapshot is no longer fetched by anyone.
const LeftSnapshot = 24 * time.Hour

// SnapshotPath returns the path on disk of a snapshot.
func SnapshotPath(h *host.Host, name string) string { return h.StatePath("snapshots", name) }

func checkSnapshot(o op.EtcdSnapshot) error {
	if !host.IsFileName(o.Name) {
		return host.Invalid("%q is not a valid snapshot name", o.Name)
	}
	if !o.Gone && len(o.Endpoints) != 1 {
		return host.Invalid("a snapshot comes from exactly one member, but %d are named", len(o.Endpoints))
	}
	return nil
}

func (x *SnapshotOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if err := checkSnapshot(o); err != nil {
		return host.CheckResult{}, err
	}
	there := host.Exists(SnapshotPath(h, o.Name))
	switch {
	case o.Gone && there:
		return host.CheckResult{Change: "remove"}, nil
	case o.Gone:
		return host.CheckResult{}, nil
	case !there:
		return host.CheckResult{Change: "take a snapshot of " + o.Endpoints[0]}, nil
	}
	info, err := snapshotInfo(ctx, h, o)
	return host.CheckResult{Output: info}, err
}

// Apply takes a snapshot, and verifies it before it reports success.
func (x *SnapshotOp) Apply(ctx context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	path := SnapshotPath(h, o.Name)
	if o.Gone {
		return h.Disk.RemovePath(path)
	}
	dir := filepath.Dir(path)
	if err := h.Disk.MkdirAll(dir, atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	if err := ClearSnapshots(h, dir); err != nil {
		return err
	}
	size, err := etcdSize(ctx, h, o)
	if err != nil {
		return err
	}
	if err := h.RoomFor(dir, size); err != nil {
		return err
	}
	// No time limit: it takes as long as the data need, and ctx limits it.
	if _, err := h.Output(ctx, append(EtcdctlArgs(h, o.EtcdClient, o.Endpoints[0]), "snapshot", "save", path)...); err != nil {
		return errors.Join(fmt.Errorf("taking a snapshot of etcd: %w", err), os.RemoveAll(path), os.RemoveAll(path+".part"))
	}
	if res.Output, err = snapshotInfo(ctx, h, o); err != nil {
		return errors.Join(err, os.RemoveAll(path))
	}
	return nil
}

// ClearSnapshots removes the remains of killed managers.
func ClearSnapshots(h *host.Host, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < LeftSnapshot {
			continue
		}
		if err := h.Disk.RemovePath(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// etcdSize returns the size of the member's database, in bytes.
func etcdSize(ctx context.Context, h *host.Host, o op.EtcdSnapshot) (int64, error) {
	states, err := QueryStatus(ctx, h, o.EtcdClient, o.Endpoints[0])
	if err != nil {
		return 0, err
	}
	return states.DBSize, nil
}

// snapshotInfo reads a complete snapshot.
func snapshotInfo(ctx context.Context, h *host.Host, o op.EtcdSnapshot) ([]byte, error) {
	info, err := SnapshotAt(ctx, h, o.Utility, SnapshotPath(h, o.Name))
	if err != nil {
		return nil, err
	}
	info.Path = op.EtcdSnapshots + "/" + o.Name
	return json.Marshal(info)
}

// SnapshotAt reads the complete snapshot in a file.
func SnapshotAt(ctx context.Context, h *host.Host, utility, path string) (info op.EtcdSnapshotInfo, err error) {
	said, err := h.Output(ctx, utility, "snapshot", "status", path, "-w", "json")
	if err != nil {
		return info, &op.Error{Reason: op.ReasonEtcdSnapshot, Message: "the snapshot cannot be read: " + host.FailureOf(err).Message}
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
