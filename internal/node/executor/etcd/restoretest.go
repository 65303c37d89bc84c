//go:build linux

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/op"
)

// RestoreTestOp executes op.EtcdRestoreTest.
type RestoreTestOp struct{ Op op.EtcdRestoreTest }

func (x *RestoreTestOp) Check(_ context.Context, _ *host.Host) (host.CheckResult, error) {
	o := x.Op
	if !host.IsFileName(o.Name) {
		return host.CheckResult{}, host.Invalid("%q is not a valid name for a restore test", o.Name)
	}
	return host.CheckResult{Change: "restore the snapshot into a temporary etcd"}, hostfs.CheckBlobName(o.Snapshot)
}

// RestoreTestDir returns the directory for the data of restore tests.
func RestoreTestDir(h *host.Host) string { return h.StatePath(filepath.Base(op.EtcdRestoreTests)) }

// Apply removes its files in any case; the remains of a killed helper are
// removed by the next one.
func (x *RestoreTestOp) Apply(ctx context.Context, h *host.Host, res *op.Result) (err error) {
	o := x.Op
	all := RestoreTestDir(h)
	if err := h.Disk.MkdirAll(all, atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	if err := ClearRestoreTests(ctx, h, all, 0); err != nil {
		return err
	}
	// The snapshot as it arrives, and the data created from it.
	if err := h.RoomFor(all, 2*o.Snapshot.Size+WalRoom); err != nil {
		return err
	}
	c := NewScratch(h, o.EtcdPrograms, filepath.Join(all, o.Name))
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.Dir), hostfs.ReleaseBlob(h, o.Snapshot)) }()
	from, err := hostfs.GetBlob(ctx, h, o.Snapshot, 0, o.Snapshot.Size)
	if err != nil {
		return err
	}
	is, err := c.RunRestoreTest(ctx, from, o.Snapshot.Size, o.Prefix)
	if err != nil {
		return err
	}
	res.Output, err = json.Marshal(is)
	return err
}

// RunRestoreTest restores a snapshot of this size and reads the served data.
func (c Scratch) RunRestoreTest(ctx context.Context, from string, size int64, prefix string) (is op.EtcdRestoreTested, err error) {
	if is.Snapshot, err = SnapshotAt(ctx, c.s, c.Utility, from); err != nil {
		return is, err
	}
	if _, err := c.s.Output(ctx, c.Utility, "snapshot", "restore", from, "--name", "scratch", "--data-dir", c.dataDir(),
		"--initial-cluster", "scratch="+nowhere, "--initial-advertise-peer-urls", nowhere); err != nil {
		return is, fmt.Errorf("restoring the snapshot: %w", err)
	}
	return is, c.Serve(ctx, size, func(ctx context.Context) error { return c.readKeys(ctx, prefix, &is) })
}

// ClearRestoreTests removes the remains of killed helpers that have a minimum age. A
// helper that changes a host, which only one does at a time, removes all remains.
func ClearRestoreTests(ctx context.Context, h *host.Host, dir string, age time.Duration) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		c := Scratch{s: h, Dir: filepath.Join(dir, e.Name())}
		err = errors.Join(err, c.RemoveScope(ctx), os.RemoveAll(c.Dir))
	}
	return err
}

// readKeys reads the served data.
func (c Scratch) readKeys(ctx context.Context, prefix string, is *op.EtcdRestoreTested) error {
	st, err := c.readStatus(ctx)
	if err != nil {
		return err
	}
	is.Revision, is.Version = st.Header.Revision, st.Version
	var found struct {
		Count int `json:"count"`
		KVs   []struct{ Key, Value []byte }
	}
	get := func(args ...string) error {
		out, err := c.queryEtcd(ctx, append(append([]string{"get"}, args...), "--limit=1", "-w", "json")...)
		if err == nil {
			err = json.Unmarshal([]byte(out), &found)
		}
		return err
	}
	// The count covers all keys, whatever the limit.
	if err := get("", "--from-key", "--keys-only"); err != nil {
		return err
	}
	if is.Keys = found.Count; prefix == "" {
		return nil
	}
	found.KVs = nil
	if err := get(prefix, "--prefix"); err != nil {
		return err
	}
	if len(found.KVs) > 0 {
		is.Key, is.Value = string(found.KVs[0].Key), found.KVs[0].Value
	}
	return nil
}
