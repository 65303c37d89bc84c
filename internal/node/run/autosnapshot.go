//go:build linux

package run

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
	"slipway.dev/slipway/internal/node/durable"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// snapshotSpare is what is left free at least on the disk beside a snapshot that a
	// host takes by itself, in bytes, and sparePercent which part of the disk: etcd
	// itself may be on it, and kubelets begin to remove images below that.
	snapshotSpare = 1 << 30
	sparePercent  = 15
	// takenFormat is when a snapshot was begun, in its name.
	takenFormat = "20060102-150405"
)

// AutoSnapshot takes a snapshot of the host's own member of etcd, verifies it, and
// removes the oldest of those that were taken that way beyond the number that is
// kept; then it copies it to elsewhere, and tries it if that is due. What comes of
// either does nothing to what is here. The error is why what came of it could not be written down.
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
	left := errors.Join(a.clearDrill(ctx), a.clearLeft(ctx)) // of what was cut off; it takes room
	at := time.Now().UTC().Truncate(time.Second)
	kept, problem := a.take(ctx, at, before)
	out = op.AutoSnapshotOutcome{At: at, Kept: a.there(before.Kept), Copies: a.stillCopied(before.Copies), Drill: a.stillTried(at, before.Drill)}
	if problem == nil {
		out.Kept = newest(kept, out.Kept)
	}
	if a.valid() == nil { // also when there is no new one: the number may be another now
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

// newest puts a snapshot before those of a list, one of which it may have replaced: a clock
// that goes back comes by twice.
func newest(k op.KeptSnapshot, list []op.KeptSnapshot) []op.KeptSnapshot {
	return append([]op.KeptSnapshot{k}, slices.DeleteFunc(slices.Clone(list), func(other op.KeptSnapshot) bool { return other.Path == k.Path })...)
}

// tell writes down what came of it.
func (a autoSnapshot) tell(out op.AutoSnapshotOutcome) error {
	raw, err := json.Marshal(out)
	if err == nil {
		err = a.disk.Replace(a.outcomeFile(), bytes.NewReader(raw), durable.Meta{Mode: 0o600})
	}
	if errors.Is(err, fs.ErrNotExist) { // the host has just been given back
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

// before is what came of the time before; a damaged record says nothing.
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

// own says that a file is one that was taken that way, or a part of one.
func (a autoSnapshot) own(name string) (whole, part bool) {
	m := regexp.MustCompile(`^` + regexp.QuoteMeta(a.job.Cluster) + `-[0-9]{8}-[0-9]{6}\.db((\.new)?(\.part)?)$`).FindStringSubmatch(name)
	return m != nil && m[1] == "", m != nil && m[1] != ""
}

// there are those of a list whose files are there.
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

// take has a new snapshot be there, whole. Whose data cannot be gone by is not asked: that
// follows nobody, is still learning, or is damaged, as etcd says. What it has would push out
// what is better. A database that is full can be read. It is on record
// before it has its name: what is there and is not counts as the oldest.
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
		return k, &op.Error{Reason: op.IDEtcdUnhealthy, Message: "the etcd member is unhealthy, so its data cannot be used as a backup: " + trouble}
	}
	if err := a.disk.MkdirAll(a.dir(), durable.Meta{Mode: 0o700}); err != nil {
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

// makeRoom has room be there for a snapshot of some size, and what is to be spared
// beside it. The oldest that were taken that way go for it, but never the newest, and
// none if that would not help.
func (a autoSnapshot) makeRoom(size int64, record []op.KeptSnapshot) error {
	need, err := a.sparing(size)
	if err != nil {
		return err
	}
	if err = a.roomFor(a.dir(), need); err == nil {
		return nil
	}
	own, _ := a.files(record) // none that are known cannot go
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

// sparing is how much is to be free for what has some size: that, and what is to be
// spared beside it.
func (a autoSnapshot) sparing(size int64) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(a.dir(), &st); err != nil {
		return 0, fmt.Errorf("reading the free space below %s: %w", a.dir(), err)
	}
	usable := int64(st.Blocks-st.Bfree+st.Bavail) * st.Bsize // the rest is reserved for others
	return size + max(snapshotSpare, usable/100*sparePercent), nil
}

// files are those that were taken that way, the oldest first: in the order in which they
// are on record, for what clocks have said may have been wrong. What is not on record, or
// is not what it was, counts as older, by its name.
func (a autoSnapshot) files(record []op.KeptSnapshot) (out []fs.FileInfo, err error) {
	entries, err := os.ReadDir(a.dir()) // by their names
	for _, e := range entries {
		info, err := e.Info()
		if whole, _ := a.own(e.Name()); whole && err == nil && info.Mode().IsRegular() {
			out = append(out, info)
		}
	}
	record = a.there(record) // the newest first
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

// clearParts removes what was cut off.
func (a autoSnapshot) clearParts() error {
	entries, err := os.ReadDir(a.dir())
	for _, e := range entries {
		if _, part := a.own(e.Name()); part && e.Type().IsRegular() {
			err = errors.Join(err, a.disk.Remove(filepath.Join(a.dir(), e.Name())))
		}
	}
	return err
}

// clearLeft removes what managers and helpers that were killed have left here a day ago, or
// before: it is as large as the database, and it may be long until another one comes by.
func (a autoSnapshot) clearLeft(ctx context.Context) (err error) {
	if dir := a.snapshotPath(""); exists(dir) {
		err = a.clearSnapshots(dir)
	}
	if dir := a.drills(); exists(dir) {
		err = errors.Join(err, a.clearDrills(ctx, dir, leftSnapshot))
	}
	return err
}

// verified reads a snapshot through: by etcdutl, and by the checksum that etcd has
// sent behind it.
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
	return k, errors.Join(err, &op.Error{Reason: op.ReasonEtcdSnapshot, Message: "the snapshot differs from what etcd sent: its checksum is different"})
}

// retain removes the oldest beyond the number that is kept: files that have the
// names of snapshots that were taken that way, and no others. The first of the list
// is the newest of all, and stays, as does what cannot be removed.
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
