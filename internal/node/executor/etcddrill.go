//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// etcdDrillOp executes op.EtcdDrill.
type etcdDrillOp struct{ o op.EtcdDrill }

func (x *etcdDrillOp) Check(_ context.Context, _ *session) (verdict, error) {
	o := x.o
	if !wordy(o.Name) {
		return verdict{}, invalid("%q is not a valid name for a restore test", o.Name)
	}
	return verdict{change: "restore the snapshot into a temporary etcd"}, checkBlobName(o.Snapshot)
}

func (s *session) drills() string { return s.state(filepath.Base(op.EtcdDrills)) }

// Apply removes its files in any case; the remains of a killed helper are
// removed by the next one.
func (x *etcdDrillOp) Apply(ctx context.Context, s *session, res *op.Result) (err error) {
	o := x.o
	all := s.drills()
	if err := s.disk.MkdirAll(all, atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	if err := s.clearDrills(ctx, all, 0); err != nil {
		return err
	}
	// The snapshot as it arrives, and the data created from it.
	if err := s.roomFor(all, 2*o.Snapshot.Size+walRoom); err != nil {
		return err
	}
	c := s.scratch(o.EtcdPrograms, filepath.Join(all, o.Name))
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir), s.letGo(o.Snapshot)) }()
	from, err := s.blob(ctx, o.Snapshot, 0, o.Snapshot.Size)
	if err != nil {
		return err
	}
	is, err := c.drill(ctx, from, o.Snapshot.Size, o.Prefix)
	if err != nil {
		return err
	}
	res.Output, err = json.Marshal(is)
	return err
}

// drill restores a snapshot of this size and reads the served data.
func (c scratch) drill(ctx context.Context, from string, size int64, prefix string) (is op.EtcdDrilled, err error) {
	if is.Snapshot, err = c.s.snapshotAt(ctx, c.Utility, from); err != nil {
		return is, err
	}
	if _, err := c.s.output(ctx, c.Utility, "snapshot", "restore", from, "--name", "scratch", "--data-dir", c.data(),
		"--initial-cluster", "scratch="+nowhere, "--initial-advertise-peer-urls", nowhere); err != nil {
		return is, fmt.Errorf("restoring the snapshot: %w", err)
	}
	return is, c.serve(ctx, size, func(ctx context.Context) error { return c.look(ctx, prefix, &is) })
}

// clearDrills removes the remains of killed helpers that have a minimum age. A helper
// that changes a host, which only one does at a time, removes all remains.
func (s *session) clearDrills(ctx context.Context, dir string, age time.Duration) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		c := scratch{s: s, dir: filepath.Join(dir, e.Name())}
		err = errors.Join(err, c.end(ctx), os.RemoveAll(c.dir))
	}
	return err
}

// look reads the served data.
func (c scratch) look(ctx context.Context, prefix string, is *op.EtcdDrilled) error {
	st, err := c.status(ctx)
	if err != nil {
		return err
	}
	is.Revision, is.Version = st.Header.Revision, st.Version
	var found struct {
		Count int `json:"count"`
		KVs   []struct{ Key, Value []byte }
	}
	get := func(args ...string) error {
		out, err := c.ask(ctx, append(append([]string{"get"}, args...), "--limit=1", "-w", "json")...)
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
