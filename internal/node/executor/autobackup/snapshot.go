//go:build linux

package autobackup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// SnapshotSpare is the minimum free space next to an automatic snapshot, in bytes,
	// and sparePercent the minimum part of the disk: etcd itself can be on it, and below
	// that kubelets begin to remove images.
	SnapshotSpare = 1 << 30
	sparePercent  = 15
	// TakenFormat is the format of the start time in the name of a snapshot.
	TakenFormat = "20060102-150405"
)

// TakeBackup takes a snapshot of the host's own etcd member, verifies it, and removes
// the oldest automatic snapshots beyond the number to keep. Then it copies the snapshot
// to the targets, and runs a restore test if it is due; their failure does not affect the
// snapshots. The error is the reason why the result could not be written.
func TakeBackup(ctx context.Context, h *host.Host, job op.AutoSnapshot) (out op.AutoSnapshotOutcome, err error) {
	a := AutoBackup{Host: h, Job: job}
	before, err := a.readOutcome()
	if err != nil {
		return out, err
	}
	left := errors.Join(a.clearRestoreTest(ctx), a.clearRemains(ctx)) // of an interrupted run; it needs space
	at := time.Now().UTC().Truncate(time.Second)
	kept, problem := a.takeSnapshot(ctx, at, before)
	out = op.AutoSnapshotOutcome{
		At: at, Kept: a.existingOf(before.Kept), Copies: a.keepCopyOutcomes(before.Copies),
		Drill: a.keepTestOutcome(at, before.Drill),
	}
	if problem == nil {
		out.Kept = withNewest(kept, out.Kept)
	}
	if a.validateJob() == nil { // also without a new one: the number may have changed
		var stays error
		if out.Kept, stays = a.removeOldest(out.Kept); stays != nil {
			out.Unremoved = host.FailureOf(stays).Message
		}
	}
	if problem != nil {
		out.Failed = host.FailureOf(problem).Message
	}
	if err := a.writeOutcome(out); err != nil || kept.Path == "" {
		return out, errors.Join(err, left)
	}
	err = a.copyAll(ctx, kept, before.Copies, func(c op.CopyOutcome) error {
		out.Copies = withOutcome(out.Copies, c)
		return a.writeOutcome(out)
	})
	return out, errors.Join(err, left, a.RunRestoreTestIfDue(ctx, kept, out.Drill, func(d op.DrillOutcome) error {
		out.Drill = &d
		return a.writeOutcome(out)
	}))
}

// withNewest puts a snapshot at the start of a list, one of whose entries it may have
// replaced: a clock that was set back reaches the same time twice.
func withNewest(k op.KeptSnapshot, list []op.KeptSnapshot) []op.KeptSnapshot {
	return append([]op.KeptSnapshot{k},
		slices.DeleteFunc(slices.Clone(list), func(other op.KeptSnapshot) bool { return other.Path == k.Path })...)
}

// writeOutcome writes the result.
func (a AutoBackup) writeOutcome(out op.AutoSnapshotOutcome) error {
	raw, err := json.Marshal(out)
	if err == nil {
		err = a.Disk.ReplaceFile(a.outcomeFile(), bytes.NewReader(raw), atomicfile.Meta{Mode: 0o600})
	}
	if errors.Is(err, fs.ErrNotExist) { // the host has just been reset
		return nil
	}
	return err
}

// AutoBackup is one scheduled backup.
type AutoBackup struct {
	*host.Host
	Job op.AutoSnapshot
}

func (a AutoBackup) outcomeFile() string { return a.StatePath(filepath.Base(op.AutoSnapshotFile)) }

func (a AutoBackup) snapshotDir() string { return a.StatePath(filepath.Base(op.AutoSnapshots)) }

// readOutcome returns the previous result; a damaged record is ignored.
func (a AutoBackup) readOutcome() (out op.AutoSnapshotOutcome, err error) {
	raw, err := bounded.ReadFile(a.outcomeFile(), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil && json.Unmarshal(raw, &out) != nil {
		out = op.AutoSnapshotOutcome{}
	}
	return out, err
}

// isSnapshotName reports whether a file is an automatic snapshot, or a part of one.
func (a AutoBackup) isSnapshotName(name string) (whole, part bool) {
	m := regexp.MustCompile(`^` + regexp.QuoteMeta(a.Job.Cluster) + `-[0-9]{8}-[0-9]{6}\.db((\.new)?(\.part)?)$`).FindStringSubmatch(name)
	return m != nil && m[1] == "", m != nil && m[1] != ""
}

// existingOf returns the entries of a list whose files exist.
func (a AutoBackup) existingOf(list []op.KeptSnapshot) (out []op.KeptSnapshot) {
	for _, k := range list {
		name := filepath.Base(k.Path)
		info, err := os.Lstat(filepath.Join(a.snapshotDir(), name))
		if whole, _ := a.isSnapshotName(name); whole && err == nil && info.Mode().IsRegular() && info.Size() == k.Bytes {
			out = append(out, k)
		}
	}
	return out
}

// takeSnapshot creates a new, complete snapshot. It does not use a member without a
// leader, a learner, or a damaged member: its data would replace better data. A full
// database can be read. The snapshot is recorded before it gets its name: an existing
// file without a record counts as the oldest.
func (a AutoBackup) takeSnapshot(ctx context.Context, at time.Time, before op.AutoSnapshotOutcome) (k op.KeptSnapshot, err error) {
	if err := a.validateJob(); err != nil {
		return k, err
	}
	is, err := etcd.QueryStatus(ctx, a.Host, a.Job.EtcdClient, a.Job.Endpoints[0])
	if err != nil {
		return k, err
	}
	trouble := is.Problem()
	if is.Learner {
		trouble = cmp.Or(trouble, "the etcd member is still a learner")
	}
	if trouble != "" {
		return k, &op.Error{
			Reason:  op.IDEtcdUnhealthy,
			Message: "the etcd member is unhealthy, so its data cannot be used as a backup: " + trouble,
		}
	}
	if err := a.Disk.MkdirAll(a.snapshotDir(), atomicfile.Meta{Mode: 0o700}); err != nil {
		return k, err
	}
	if err := a.clearParts(); err != nil {
		return k, err
	}
	if err := a.MakeRoom(is.DBSize, before.Kept); err != nil {
		return k, err
	}
	name := a.Job.Cluster + "-" + at.Format(TakenFormat) + ".db"
	path := filepath.Join(a.snapshotDir(), name)
	if _, err := a.Output(ctx,
		append(etcd.EtcdctlArgs(a.Host, a.Job.EtcdClient, a.Job.Endpoints[0]), "snapshot", "save", path+".new")...); err != nil {
		return k, errors.Join(fmt.Errorf("taking a snapshot of etcd: %w", err), a.clearParts())
	}
	if k, err = a.verifySnapshot(ctx, path+".new"); err != nil {
		return k, errors.Join(err, a.clearParts())
	}
	a.Disk.RunAfter("taken")
	k.Path, k.Taken, k.Etcd = op.AutoSnapshots+"/"+name, at, is.Version
	before.Kept = withNewest(k, before.Kept)
	if err := a.writeOutcome(before); err != nil {
		return op.KeptSnapshot{}, errors.Join(err, a.clearParts())
	}
	if err := a.Disk.MovePath(path+".new", path); err != nil {
		return op.KeptSnapshot{}, err
	}
	return k, nil
}

func (a AutoBackup) validateJob() error {
	if !host.IsFileName(a.Job.Cluster) || len(a.Job.Endpoints) != 1 || a.Job.Keep < 1 {
		return host.Invalid("%q is not a valid cluster name, or the source of the snapshots or their number is missing", a.Job.Cluster)
	}
	return nil
}

// MakeRoom frees space for a snapshot of this size and the reserve. It removes the oldest
// automatic snapshots, but never the newest, and none if that would not be enough.
func (a AutoBackup) MakeRoom(size int64, record []op.KeptSnapshot) error {
	need, err := a.requiredSpace(size)
	if err != nil {
		return err
	}
	if err = a.RoomFor(a.snapshotDir(), need); err == nil {
		return nil
	}
	own, _ := a.listFiles(record) // unknown ones cannot be removed
	wins := int64(0)
	for i, f := range own[:max(len(own)-1, 0)] {
		if wins += f.Size(); host.RoomOn(a.snapshotDir(), need-wins) != nil {
			continue
		}
		for _, f := range own[:i+1] {
			if err := a.Disk.RemovePath(filepath.Join(a.snapshotDir(), f.Name())); err != nil {
				return err
			}
		}
		return a.RoomFor(a.snapshotDir(), need)
	}
	return err
}

// requiredSpace returns the required free space for this size: the size and the reserve.
func (a AutoBackup) requiredSpace(size int64) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(a.snapshotDir(), &st); err != nil {
		return 0, fmt.Errorf("reading the free space below %s: %w", a.snapshotDir(), err)
	}
	usable := int64(st.Blocks-st.Bfree+st.Bavail) * st.Bsize // the rest is reserved for root
	return size + max(SnapshotSpare, usable/100*sparePercent), nil
}

// listFiles returns the automatic snapshots, oldest first, in the order of their records,
// because clocks may have been wrong. Files without a record, or that differ from it,
// count as older, sorted by name.
func (a AutoBackup) listFiles(record []op.KeptSnapshot) (out []fs.FileInfo, err error) {
	entries, err := os.ReadDir(a.snapshotDir()) // sorted by name
	for _, e := range entries {
		info, err := e.Info()
		if whole, _ := a.isSnapshotName(e.Name()); whole && err == nil && info.Mode().IsRegular() {
			out = append(out, info)
		}
	}
	record = a.existingOf(record) // newest first
	age := func(f fs.FileInfo) int {
		i := slices.IndexFunc(record, func(k op.KeptSnapshot) bool { return filepath.Base(k.Path) == f.Name() })
		if i < 0 {
			return len(record)
		}
		return i
	}
	sort.SliceStable(out, func(i, j int) bool { return age(out[i]) > age(out[j]) })
	return out, err
}

// clearParts removes incomplete snapshots.
func (a AutoBackup) clearParts() error {
	entries, err := os.ReadDir(a.snapshotDir())
	for _, e := range entries {
		if _, part := a.isSnapshotName(e.Name()); part && e.Type().IsRegular() {
			err = errors.Join(err, a.Disk.RemovePath(filepath.Join(a.snapshotDir(), e.Name())))
		}
	}
	return err
}

// clearRemains removes remains of killed managers and helpers that are older than a day:
// they are as large as the database, and the next manager may come much later.
func (a AutoBackup) clearRemains(ctx context.Context) (err error) {
	if dir := etcd.SnapshotPath(a.Host, ""); host.Exists(dir) {
		err = etcd.ClearSnapshots(a.Host, dir)
	}
	if dir := etcd.RestoreTestDir(a.Host); host.Exists(dir) {
		err = errors.Join(err, etcd.ClearRestoreTests(ctx, a.Host, dir, etcd.LeftSnapshot))
	}
	return err
}

// verifySnapshot verifies a complete snapshot: with etcdutl, and with the checksum that
// etcd appends to it.
func (a AutoBackup) verifySnapshot(ctx context.Context, path string) (k op.KeptSnapshot, err error) {
	if k.EtcdSnapshotInfo, err = etcd.SnapshotAt(ctx, a.Host, a.Job.Utility, path); err != nil {
		return k, err
	}
	f, err := os.Open(path)
	if err != nil {
		return k, err
	}
	defer f.Close()
	db, trailer := sha256.New(), make([]byte, sha256.Size)
	if _, err = io.CopyN(db, f, max(k.Bytes-sha256.Size, 0)); err == nil {
		_, err = io.ReadFull(f, trailer)
	}
	if err == nil && k.Bytes%etcd.WALSector == sha256.Size && bytes.Equal(trailer, db.Sum(nil)) {
		return k, f.Sync()
	}
	return k, errors.Join(err,
		&op.Error{Reason: op.ReasonEtcdSnapshot, Message: "the snapshot differs from what etcd sent: its checksum is different"})
}

// removeOldest removes the oldest files beyond the number to keep, but only files with
// names of automatic snapshots. The first of the list is the newest, and is kept; files
// that cannot be removed also remain.
func (a AutoBackup) removeOldest(list []op.KeptSnapshot) ([]op.KeptSnapshot, error) {
	all, err := a.listFiles(list)
	if errors.Is(err, fs.ErrNotExist) { // none was ever begun
		return list, nil
	}
	if err != nil {
		return list, err
	}
	for _, f := range all[:max(len(all)-a.Job.Keep, 0)] {
		if failed := a.Disk.RemovePath(filepath.Join(a.snapshotDir(), f.Name())); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		list = slices.DeleteFunc(list, func(k op.KeptSnapshot) bool { return filepath.Base(k.Path) == f.Name() })
	}
	return list, err
}
