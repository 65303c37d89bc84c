//go:build linux

package etcd

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
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// RecoverOp executes op.EtcdRecover.
type RecoverOp struct{ Op op.EtcdRecover }

// A recoverRecord is the record of a rescue's snapshot, which is removed after the data
// have been created from it.
type recoverRecord struct {
	Key string           `json:"key"`
	Is  op.EtcdRecovered `json:"is"`
}

func recoverFile(h *host.Host) string { return h.StatePath("salvage.json") }

// readRecovered returns the result of a rescue, if it is complete.
func readRecovered(h *host.Host, o op.EtcdRecover) (is op.EtcdRecovered, made bool, err error) {
	raw, err := atomicfile.ReadFile(recoverFile(h), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return is, false, nil
	}
	var rec recoverRecord
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return is, false, fmt.Errorf("reading the record of the rescue: %w", err)
	}
	return rec.Is, rec.Key == o.Key, nil
}

func (x *RecoverOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if !filepath.IsAbs(o.Data) || filepath.Clean(o.Data) != o.Data || o.Data == "/" || o.Key != "" && !host.IsFileName(o.Key) {
		return host.CheckResult{}, host.Invalid("%q is not a data directory, or %q is not a valid rescue name", o.Data, o.Key)
	}
	if o.Key == "" {
		is, _ := etcdReach(h.DiskPath(o.Data))
		raw, err := json.Marshal(is)
		return host.CheckResult{Output: raw}, err
	}
	if is, made, err := readRecovered(h, o); made || err != nil {
		raw, merr := json.Marshal(is)
		return host.CheckResult{Output: raw}, errors.Join(err, merr)
	}
	is, _, err := requireUnmoved(h, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	return host.CheckResult{Change: "create a snapshot from a copy of the data"}, roomToRecover(h, o, is)
}

// requireUnmoved rejects data that differ from the data in the plan.
func requireUnmoved(h *host.Host, o op.EtcdRecover) (op.EtcdRecovered, *WALReader, error) {
	is, log := etcdReach(h.DiskPath(o.Data))
	if now := is.Reach(); now != o.EtcdReach || is.ByDatabase() != o.Database {
		return is, log, &op.Error{
			Reason: op.IDEtcdMoved,
			Message: fmt.Sprintf("the data of the member now reach term %d, entry %d, but reached term %d, entry %d when the rescue was planned",
				now.Term, now.Index, o.Term, o.Index),
		}
	}
	return is, log, nil
}

// roomToRecover rejects a rescue that would fill the disk: a copy of the data, the
// snapshot, and the data created from it.
func roomToRecover(h *host.Host, o op.EtcdRecover, is op.EtcdRecovered) error {
	return h.RoomFor(h.DiskPath(o.Data), 3*is.Bytes+WalRoom)
}

func (x *RecoverOp) Apply(ctx context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	is, made, err := readRecovered(h, o)
	if err == nil && !made {
		is, err = recoverData(ctx, h, o)
	}
	if err != nil {
		return err
	}
	res.Output, err = json.Marshal(is)
	return err
}

// recoverData creates the snapshot. After an interruption it starts again; it only reads
// the original data.
func recoverData(ctx context.Context, h *host.Host, o op.EtcdRecover) (is op.EtcdRecovered, err error) {
	is, log, err := requireUnmoved(h, o)
	if err != nil {
		return is, err
	}
	left, err := filepath.Glob(h.DiskPath(filepath.Join(o.Data, ".rescue-*")))
	for _, dir := range left {
		err = errors.Join(err, h.Disk.RemoveAll(dir))
	}
	if err != nil {
		return is, err
	}
	if err := roomToRecover(h, o, is); err != nil {
		return is, err
	}
	c := NewScratch(h, o.EtcdPrograms, h.DiskPath(op.RecoverDir(o.Data, o.Key)))
	if err := h.Disk.MkdirAll(c.Dir, atomicfile.Meta{Mode: 0o700}); err != nil {
		return is, err
	}
	defer func() {
		if err != nil { // it is as large as the data, on the same disk
			err = errors.Join(err, os.RemoveAll(c.Dir))
		}
	}()
	file := h.DiskPath(op.RecoveredSnapshot(o.Data, o.Key))
	if o.Database {
		err = sealDatabase(ctx, h, databaseOf(h.DiskPath(o.Data)), file)
	} else {
		err = c.snapshotOfLog(ctx, h.DiskPath(o.Data), log, file)
	}
	if err != nil {
		return is, err
	}
	info, err := SnapshotAt(ctx, h, o.Utility, file)
	if err != nil {
		return is, err
	}
	info.Path, is.Snapshot = op.RecoveredSnapshot(o.Data, o.Key), &info
	if err := errors.Join(h.Disk.RemoveAll(c.dataDir()), atomicfile.SyncTree(c.Dir)); err != nil {
		return is, err
	}
	h.Disk.RunAfter("salvaged")
	return is, h.WriteRecord(recoverFile(h), recoverRecord{o.Key, is})
}

// snapshotOfLog creates a snapshot of everything in a member's log, with an etcd that
// serves a copy of its data.
func (c Scratch) snapshotOfLog(ctx context.Context, data string, log *WALReader, file string) error {
	if err := copyMember(ctx, data, log, c.dataDir()); err != nil {
		return fmt.Errorf("copying the data of etcd: %w", err)
	}
	if err := agreeUpon(c.dataDir()); err != nil {
		return fmt.Errorf("committing the entries in the copy of the log: %w", err)
	}
	c.s.Disk.RunAfter("copied")
	return c.Serve(ctx, log.is.Bytes, func(ctx context.Context) error {
		_, err := c.queryEtcd(ctx, "--command-timeout=15m", "snapshot", "save", file)
		return err
	}, "--force-new-cluster")
}

// sealDatabase creates a snapshot from a database: the same content with a checksum at
// its end.
func sealDatabase(ctx context.Context, h *host.Host, database, file string) error {
	if err := copyFile(ctx, database, file, -1); err != nil {
		return fmt.Errorf("copying the database of etcd: %w", err)
	}
	h.Disk.RunAfter("copied")
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
