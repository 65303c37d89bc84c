//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/op"
)

const (
	// snapshotSpare is the minimum free space next to an automatic snapshot, in bytes,
	// and sparePercent the minimum part of the disk: etcd itself can be on it, and below
	// that kubelets begin to remove images.
	snapshotSpare = 1 << 30
	sparePercent  = 15
	// takenFormat is the format of the start time in the name of a snapshot.
	takenFormat = "20060102-150405"
)

// AutoSnapshot takes a snapshot of the host's own etcd member, verifies it, and removes
// the oldest automatic snapshots beyond the number to keep. Then it copies the snapshot
// to the targets, and runs a restore test if it is due; their failure does not affect the
// snapshots. The error is the reason why the result could not be written.
func (r *Runner) AutoSnapshot(ctx context.Context, job op.AutoSnapshot) (out op.AutoSnapshotOutcome, err error) {
	s, err := r.session(Batch{}, nil)
	if err != nil {
		return out, err
	}
	a := autoSnapshot{session: s, job: job}
	before, err := a.before()
	if err != nil {
		return out, err
	}
	left := errors.Join(a.clearDrill(ctx), a.clearLeft(ctx)) // of an interrupted run; it needs space
	at := time.Now().UTC().Truncate(time.Second)
	kept, problem := a.take(ctx, at, before)
	out = op.AutoSnapshotOutcome{At: at, Kept: a.there(before.Kept), Copies: a.stillCopied(before.Copies),
		Drill: a.stillTried(at, before.Drill)}
	if problem == nil {
		out.Kept = newest(kept, out.Kept)
	}
	if a.valid() == nil { // also without a new one: the number may have changed
		var stays error
		if out.Kept, stays = a.retain(out.Kept); stays != nil {
			out.Unremoved = failure(stays).Message
		}
	}
	if problem != nil {
		out.Failed = failure(problem).Message
	}
	if err := a.tell(out); err != nil || kept.Path == "" {
		return out, errors.Join(err, left)
	}
	err = a.copyAll(ctx, kept, before.Copies, func(c op.CopyOutcome) error {
		out.Copies = heard(out.Copies, c)
		return a.tell(out)
	})
	return out, errors.Join(err, left, a.drillDue(ctx, kept, out.Drill, func(d op.DrillOutcome) error {
		out.Drill = &d
		return a.tell(out)
	}))
}

// newest puts a snapshot at the start of a list, one of whose entries it may have
// replaced: a clock that was set back reaches the same time twice.
func newest(k op.KeptSnapshot, list []op.KeptSnapshot) []op.KeptSnapshot {
	return append([]op.KeptSnapshot{k},
		slices.DeleteFunc(slices.Clone(list), func(other op.KeptSnapshot) bool { return other.Path == k.Path })...)
}

// tell writes the result.
func (a autoSnapshot) tell(out op.AutoSnapshotOutcome) error {
	raw, err := json.Marshal(out)
	if err == nil {
		err = a.disk.Replace(a.outcomeFile(), bytes.NewReader(raw), atomicfile.Meta{Mode: 0o600})
	}
	if errors.Is(err, fs.ErrNotExist) { // the host has just been reset
		return nil
	}
	return err
}

type autoSnapshot struct {
	*session
	job op.AutoSnapshot
}

func (a autoSnapshot) outcomeFile() string { return a.state(filepath.Base(op.AutoSnapshotFile)) }
func (a autoSnapshot) dir() string         { return a.state(filepath.Base(op.AutoSnapshots)) }

// before returns the previous result; a damaged record is ignored.
func (a autoSnapshot) before() (out op.AutoSnapshotOutcome, err error) {
	raw, err := bounded.ReadFile(a.outcomeFile(), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil && json.Unmarshal(raw, &out) != nil {
		out = op.AutoSnapshotOutcome{}
	}
	return out, err
}

// own reports whether a file is an automatic snapshot, or a part of one.
func (a autoSnapshot) own(name string) (whole, part bool) {
	m := regexp.MustCompile(`^` + regexp.QuoteMeta(a.job.Cluster) + `-[0-9]{8}-[0-9]{6}\.db((\.new)?(\.part)?)$`).FindStringSubmatch(name)
	return m != nil && m[1] == "", m != nil && m[1] != ""
}

// there returns the entries of a list whose files exist.
func (a autoSnapshot) there(list []op.KeptSnapshot) (out []op.KeptSnapshot) {
	for _, k := range list {
		name := filepath.Base(k.Path)
		info, err := os.Lstat(filepath.Join(a.dir(), name))
		if whole, _ := a.own(name); whole && err == nil && info.Mode().IsRegular() && info.Size() == k.Bytes {
			out = append(out, k)
		}
	}
	return out
}

// take creates a new, complete snapshot. It does not use a member without a leader, a
// learner, or a damaged member: its data would replace better data. A full database can
// be read. The snapshot is recorded before it gets its name: an existing file without a
// record counts as the oldest.
func (a autoSnapshot) take(ctx context.Context, at time.Time, before op.AutoSnapshotOutcome) (k op.KeptSnapshot, err error) {
	if err := a.valid(); err != nil {
		return k, err
	}
	is, err := a.etcdStatus(ctx, a.job.EtcdClient, a.job.Endpoints[0])
	if err != nil {
		return k, err
	}
	trouble := is.trouble()
	if is.Learner {
		trouble = cmp.Or(trouble, "the etcd member is still a learner")
	}
	if trouble != "" {
		return k, &op.Error{Reason: op.IDEtcdUnhealthy,
			Message: "the etcd member is unhealthy, so its data cannot be used as a backup: " + trouble}
	}
	if err := a.disk.MkdirAll(a.dir(), atomicfile.Meta{Mode: 0o700}); err != nil {
		return k, err
	}
	if err := a.clearParts(); err != nil {
		return k, err
	}
	if err := a.makeRoom(is.DBSize, before.Kept); err != nil {
		return k, err
	}
	name := a.job.Cluster + "-" + at.Format(takenFormat) + ".db"
	path := filepath.Join(a.dir(), name)
	if _, err := a.output(ctx, append(a.etcdctlArgs(a.job.EtcdClient, a.job.Endpoints[0]), "snapshot", "save", path+".new")...); err != nil {
		return k, errors.Join(fmt.Errorf("taking a snapshot of etcd: %w", err), a.clearParts())
	}
	if k, err = a.verified(ctx, path+".new"); err != nil {
		return k, errors.Join(err, a.clearParts())
	}
	a.disk.Did("taken")
	k.Path, k.Taken, k.Etcd = op.AutoSnapshots+"/"+name, at, is.Version
	before.Kept = newest(k, before.Kept)
	if err := a.tell(before); err != nil {
		return op.KeptSnapshot{}, errors.Join(err, a.clearParts())
	}
	if err := a.disk.Move(path+".new", path); err != nil {
		return op.KeptSnapshot{}, err
	}
	return k, nil
}

func (a autoSnapshot) valid() error {
	if !wordy(a.job.Cluster) || len(a.job.Endpoints) != 1 || a.job.Keep < 1 {
		return invalid("%q is not a valid cluster name, or the source of the snapshots or their number is missing", a.job.Cluster)
	}
	return nil
}

// makeRoom frees space for a snapshot of this size and the reserve. It removes the oldest
// automatic snapshots, but never the newest, and none if that would not be enough.
func (a autoSnapshot) makeRoom(size int64, record []op.KeptSnapshot) error {
	need, err := a.sparing(size)
	if err != nil {
		return err
	}
	if err = a.roomFor(a.dir(), need); err == nil {
		return nil
	}
	own, _ := a.files(record) // unknown ones cannot be removed
	wins := int64(0)
	for i, f := range own[:max(len(own)-1, 0)] {
		if wins += f.Size(); roomFor(a.dir(), need-wins) != nil {
			continue
		}
		for _, f := range own[:i+1] {
			if err := a.disk.Remove(filepath.Join(a.dir(), f.Name())); err != nil {
				return err
			}
		}
		return a.roomFor(a.dir(), need)
	}
	return err
}

// sparing returns the required free space for this size: the size and the reserve.
func (a autoSnapshot) sparing(size int64) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(a.dir(), &st); err != nil {
		return 0, fmt.Errorf("reading the free space below %s: %w", a.dir(), err)
	}
	usable := int64(st.Blocks-st.Bfree+st.Bavail) * st.Bsize // the rest is reserved for root
	return size + max(snapshotSpare, usable/100*sparePercent), nil
}

// files returns the automatic snapshots, oldest first, in the order of their records,
// because clocks may have been wrong. Files without a record, or that differ from it,
// count as older, sorted by name.
func (a autoSnapshot) files(record []op.KeptSnapshot) (out []fs.FileInfo, err error) {
	entries, err := os.ReadDir(a.dir()) // sorted by name
	for _, e := range entries {
		info, err := e.Info()
		if whole, _ := a.own(e.Name()); whole && err == nil && info.Mode().IsRegular() {
			out = append(out, info)
		}
	}
	record = a.there(record) // newest first
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
func (a autoSnapshot) clearParts() error {
	entries, err := os.ReadDir(a.dir())
	for _, e := range entries {
		if _, part := a.own(e.Name()); part && e.Type().IsRegular() {
			err = errors.Join(err, a.disk.Remove(filepath.Join(a.dir(), e.Name())))
		}
	}
	return err
}

// clearLeft removes remains of killed managers and helpers that are older than a day:
// they are as large as the database, and the next manager may come much later.
func (a autoSnapshot) clearLeft(ctx context.Context) (err error) {
	if dir := a.snapshotPath(""); exists(dir) {
		err = a.clearSnapshots(dir)
	}
	if dir := a.drills(); exists(dir) {
		err = errors.Join(err, a.clearDrills(ctx, dir, leftSnapshot))
	}
	return err
}

// verified verifies a complete snapshot: with etcdutl, and with the checksum that etcd
// appends to it.
func (a autoSnapshot) verified(ctx context.Context, path string) (k op.KeptSnapshot, err error) {
	if k.EtcdSnapshotInfo, err = a.snapshotAt(ctx, a.job.Utility, path); err != nil {
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
	if err == nil && k.Bytes%walSector == sha256.Size && bytes.Equal(trailer, db.Sum(nil)) {
		return k, f.Sync()
	}
	return k, errors.Join(err,
		&op.Error{Reason: op.ReasonEtcdSnapshot, Message: "the snapshot differs from what etcd sent: its checksum is different"})
}

// retain removes the oldest files beyond the number to keep, but only files with names of
// automatic snapshots. The first of the list is the newest, and is kept; files that
// cannot be removed also remain.
func (a autoSnapshot) retain(list []op.KeptSnapshot) ([]op.KeptSnapshot, error) {
	all, err := a.files(list)
	if errors.Is(err, fs.ErrNotExist) { // none was ever begun
		return list, nil
	}
	if err != nil {
		return list, err
	}
	for _, f := range all[:max(len(all)-a.job.Keep, 0)] {
		if failed := a.disk.Remove(filepath.Join(a.dir(), f.Name())); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		list = slices.DeleteFunc(list, func(k op.KeptSnapshot) bool { return filepath.Base(k.Path) == f.Name() })
	}
	return list, err
}
