//go:build linux

package executor

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// etcdSalvageOp executes op.EtcdSalvage.
type etcdSalvageOp struct{ o op.EtcdSalvage }

// A salvageRecord is the record of a rescue's snapshot, which is removed after the data
// have been created from it.
type salvageRecord struct {
	Key string          `json:"key"`
	Is  op.EtcdSalvaged `json:"is"`
}

func (s *session) salvageFile() string { return s.state("salvage.json") }

// salvaged returns the result of a rescue, if it is complete.
func (s *session) salvaged(o op.EtcdSalvage) (is op.EtcdSalvaged, made bool, err error) {
	raw, err := atomicfile.ReadFile(s.salvageFile(), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return is, false, nil
	}
	var rec salvageRecord
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return is, false, fmt.Errorf("reading the record of the rescue: %w", err)
	}
	return rec.Is, rec.Key == o.Key, nil
}

func (x *etcdSalvageOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	if !filepath.IsAbs(o.Data) || filepath.Clean(o.Data) != o.Data || o.Data == "/" || o.Key != "" && !wordy(o.Key) {
		return verdict{}, invalid("%q is not a data directory, or %q is not a valid rescue name", o.Data, o.Key)
	}
	if o.Key == "" {
		is, _ := etcdReach(s.path(o.Data))
		raw, err := json.Marshal(is)
		return verdict{output: raw}, err
	}
	if is, made, err := s.salvaged(o); made || err != nil {
		raw, merr := json.Marshal(is)
		return verdict{output: raw}, errors.Join(err, merr)
	}
	is, _, err := s.unmoved(o)
	if err != nil {
		return verdict{}, err
	}
	return verdict{change: "create a snapshot from a copy of the data"}, s.roomToSalvage(o, is)
}

// unmoved rejects data that differ from the data in the plan.
func (s *session) unmoved(o op.EtcdSalvage) (op.EtcdSalvaged, *walReader, error) {
	is, log := etcdReach(s.path(o.Data))
	if now := is.Reach(); now != o.EtcdReach || is.ByDatabase() != o.Database {
		return is, log, &op.Error{Reason: op.IDEtcdMoved,
			Message: fmt.Sprintf("the data of the member now reach term %d, entry %d, but reached term %d, entry %d when the rescue was planned",
				now.Term, now.Index, o.Term, o.Index)}
	}
	return is, log, nil
}

// roomToSalvage rejects a rescue that would fill the disk: a copy of the data, the
// snapshot, and the data created from it.
func (s *session) roomToSalvage(o op.EtcdSalvage, is op.EtcdSalvaged) error {
	return s.roomFor(s.path(o.Data), 3*is.Bytes+walRoom)
}

func (x *etcdSalvageOp) Apply(ctx context.Context, s *session, res *op.Result) error {
	o := x.o
	is, made, err := s.salvaged(o)
	if err == nil && !made {
		is, err = s.salvage(ctx, o)
	}
	if err != nil {
		return err
	}
	res.Output, err = json.Marshal(is)
	return err
}

// salvage creates the snapshot. After an interruption it starts again; it only reads the
// original data.
func (s *session) salvage(ctx context.Context, o op.EtcdSalvage) (is op.EtcdSalvaged, err error) {
	is, log, err := s.unmoved(o)
	if err != nil {
		return is, err
	}
	left, err := filepath.Glob(s.path(filepath.Join(o.Data, ".rescue-*")))
	for _, dir := range left {
		err = errors.Join(err, s.disk.RemoveAll(dir))
	}
	if err != nil {
		return is, err
	}
	if err := s.roomToSalvage(o, is); err != nil {
		return is, err
	}
	c := s.scratch(o.EtcdPrograms, s.path(op.SalvageDir(o.Data, o.Key)))
	if err := s.disk.MkdirAll(c.dir, atomicfile.Meta{Mode: 0o700}); err != nil {
		return is, err
	}
	defer func() {
		if err != nil { // it is as large as the data, on the same disk
			err = errors.Join(err, os.RemoveAll(c.dir))
		}
	}()
	file := s.path(op.SalvagedSnapshot(o.Data, o.Key))
	if o.Database {
		err = s.sealDatabase(ctx, databaseOf(s.path(o.Data)), file)
	} else {
		err = c.snapshotOfLog(ctx, s.path(o.Data), log, file)
	}
	if err != nil {
		return is, err
	}
	info, err := s.snapshotAt(ctx, o.Utility, file)
	if err != nil {
		return is, err
	}
	info.Path, is.Snapshot = op.SalvagedSnapshot(o.Data, o.Key), &info
	if err := errors.Join(s.disk.RemoveAll(c.data()), atomicfile.SyncTree(c.dir)); err != nil {
		return is, err
	}
	s.disk.Did("salvaged")
	return is, s.keep(s.salvageFile(), salvageRecord{o.Key, is})
}

// snapshotOfLog creates a snapshot of everything in a member's log, with an etcd that
// serves a copy of its data.
func (c scratch) snapshotOfLog(ctx context.Context, data string, log *walReader, file string) error {
	if err := copyMember(ctx, data, log, c.data()); err != nil {
		return fmt.Errorf("copying the data of etcd: %w", err)
	}
	if err := agreeUpon(c.data()); err != nil {
		return fmt.Errorf("committing the entries in the copy of the log: %w", err)
	}
	c.s.disk.Did("copied")
	return c.serve(ctx, log.is.Bytes, func(ctx context.Context) error {
		_, err := c.ask(ctx, "--command-timeout=15m", "snapshot", "save", file)
		return err
	}, "--force-new-cluster")
}

// sealDatabase creates a snapshot from a database: the same content with a checksum at
// its end.
func (s *session) sealDatabase(ctx context.Context, database, file string) error {
	if err := copyFile(ctx, database, file, -1); err != nil {
		return fmt.Errorf("copying the database of etcd: %w", err)
	}
	s.disk.Did("copied")
	sum, err := atomicfile.SHA256(file)
	if err != nil {
		return err
	}
	raw, err := hex.DecodeString(sum)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	return errors.Join(err, f.Close())
}
