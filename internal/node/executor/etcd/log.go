//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/op"
)

// etcdReach reads how far the data of a member reach, and their size. A member votes
// according to its log: its database may be a while behind, unless the log is damaged.
// Data that cannot be read count as damaged, whatever the reason.
func etcdReach(data string) (op.EtcdRecovered, *WALReader) {
	to, damaged, err := appliedTo(data) // first, because the log of a running member is ahead of it
	r := readLog(data, to)
	r.is.Database, r.is.DatabaseDamaged = to, damaged
	r.is.Learner = r.changed > 0 && r.learner
	if learner, known := learnerIn(data, r.self); known && r.changed <= to.Index {
		r.is.Learner = learner
	}
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && len(r.names) > 0:
		r.is.DatabaseDamaged = "the database is missing"
	case err == nil && len(r.names) == 0 && r.is.Damaged == "":
		r.is.Damaged = "the log is missing"
	case err != nil && !missing:
		r.is.DatabaseDamaged = "the database cannot be read: " + unreadableReason(err).Error()
	}
	// Files that cannot be read are skipped: this only estimates the needed space.
	_ = filepath.WalkDir(filepath.Join(data, "member"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, ierr := e.Info(); ierr == nil {
				r.is.Bytes += info.Size()
			}
		}
		return nil
	})
	return r.is, r
}

// unreadableReason returns why a file cannot be read, without its name.
func unreadableReason(err error) error {
	var disk *fs.PathError
	if errors.As(err, &disk) {
		return disk.Err
	}
	return err
}

// readLog reads the log in a data directory up to its end. If it is damaged, it ends
// there; or it ends with the complete files after the damage, if these continue the
// database.
func readLog(data string, database op.EtcdReach) *WALReader {
	r := &WALReader{}
	dir := filepath.Join(data, "member", "wal")
	all, err := os.ReadDir(dir) // sorted by name, which is by number
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.is.Damaged = "the log cannot be read: " + unreadableReason(err).Error()
	}
	for _, e := range all {
		if filepath.Ext(e.Name()) == ".wal" {
			r.names = append(r.names, filepath.Join(dir, e.Name()))
		}
	}
	r.readFrom(0)
	for first := max(r.at, 1); r.is.Damaged != "" && first < len(r.names); {
		behind := &WALReader{names: r.names}
		behind.readFrom(first)
		if r.is.Cluster == 0 { // each file names its member, whatever remains of earlier files
			r.is.Cluster = behind.is.Cluster
		}
		same := behind.is.Cluster != 0 && behind.is.Cluster == r.is.Cluster && (r.self == 0 || r.self == behind.self)
		if same && behind.continuesFrom(data, database) {
			behind.is.Damaged, behind.is.From = r.is.Damaged, filepath.Base(r.names[first])
			r = behind
			break
		}
		first = max(behind.at, first+1)
	}
	r.endWithSnapshot()
	return r
}

// readFrom reads the files from one on, up to the end or to a damaged one.
func (r *WALReader) readFrom(first int) {
	r.first = first
	for i := first; i < len(r.names) && r.is.Damaged == ""; i++ {
		r.readFile(i)
	}
}

// continuesFrom reports whether a log without its first files is sufficient to continue a
// database. It must have the database's last entry, with the same term: then all earlier
// entries are the same, and all later ones exist, because none is missing after the
// snapshot from which etcd starts. This is the last snapshot that the log records as
// committed; etcd looks for it in the log file with the matching name, and stores it in a
// separate file, unless etcd is newer than 3.6.
func (r *WALReader) continuesFrom(data string, database op.EtcdReach) bool {
	var s op.EtcdReach
	for _, is := range r.snapshots {
		if is.Index <= r.state.commit {
			s = is
		}
	}
	if r.is.Damaged != "" || s.Index == 0 || database.Index < s.Index || database.Index > r.is.Log.Index || r.terms[0].first > s.Index+1 {
		return false
	}
	term := r.termOf(database.Index)
	if database.Index < r.terms[0].first {
		term = s.Term // it is the entry of the snapshot
	}
	return term == database.Term && inOrder(r.names[r.first:], s.Index) && snapshotWhole(snapshotOf(data, s))
}

// inOrder reports whether no file is missing among some files of a log, and the entries
// after an entry are in them: each file has its number and its first entry in its name.
func inOrder(names []string, index uint64) bool {
	var before uint64
	for i, name := range names {
		var number, begins uint64
		if n, _ := fmt.Sscanf(filepath.Base(name), "%016x-%016x.wal", &number, &begins); n < 2 || i == 0 && begins > index ||
			i > 0 && number != before+1 {
			return false
		}
		before = number
	}
	return true
}

// snapshotOf returns the snapshot file next to the database, which has the members at
// that time.
func snapshotOf(data string, s op.EtcdReach) string {
	return filepath.Join(data, "member", "snap", fmt.Sprintf("%016x-%016x.snap", s.Term, s.Index))
}

// snapshotWhole reports whether such a file is intact.
func snapshotWhole(name string) bool {
	raw, err := bounded.ReadFile(name, bounded.Config)
	if err != nil {
		return false
	}
	f, err := parseFields(raw)
	return err == nil && len(f.bytes[2]) > 0 && uint64(crc32.Update(0, castagnoli, f.bytes[2])) == f.number[1]
}

// agreeUpon marks the whole log in a copy of a member's data as committed. An etcd that
// is forced to run alone drops entries that a member does not know to be committed; but
// members learn this later than clients, and the other members can no longer be asked. A
// torn or damaged end is removed; an acknowledged entry is never removed. A learner gets
// a vote with one more entry, because otherwise no member could vote.
func agreeUpon(data string) error {
	is, r := etcdReach(data)
	if is.Log.Index == 0 {
		return nil
	}
	to := WALHardState{max(r.state.term, is.Log.Term), 0, is.Log.Index}
	if to.term == r.state.term {
		to.vote = r.state.vote
	}
	var records []byte
	if is.Learner {
		to.commit++
		records = r.encodeNext(WALEntry, promotionEntry(r.self, to))
	}
	records = append(records, r.encodeNext(WALState, encodeNumbers(to.term, to.vote, to.commit))...)
	for _, name := range r.names[r.at+1:] { // after the damage
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(r.names[r.at], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(r.good)
	if err == nil {
		_, err = f.WriteAt(records, r.good)
	}
	return errors.Join(err, f.Close())
}

// promotionEntry returns an entry that makes a learner a voting member.
func promotionEntry(self uint64, at WALHardState) []byte {
	change := withBytes(encodeNumbers(0, changeVoter, self), 4, fmt.Appendf(nil, `{"id":%d,"isPromote":true}`, self))
	return withBytes(encodeNumbers(entryChange, at.term, at.commit), 4, change)
}

// copyMember copies the files that etcd needs: the log, as far as it was read, and the
// files next to it. Other files are not needed, and may not be readable.
func copyMember(ctx context.Context, data string, r *WALReader, to string) error {
	from, snap, wal := filepath.Join(data, "member", "snap"), filepath.Join(to, "member", "snap"), filepath.Join(to, "member", "wal")
	all, err := os.ReadDir(from)
	if err = errors.Join(err, os.MkdirAll(snap, 0o700), os.MkdirAll(wal, 0o700)); err != nil {
		return err
	}
	for _, e := range all {
		name := filepath.Join(from, e.Name())
		// etcd ignores a damaged snapshot.
		needed := e.Name() == "db" || strings.HasSuffix(name, ".snap.db") || strings.HasSuffix(name, ".snap") && snapshotWhole(name)
		if !needed {
			continue
		}
		if err := copyFile(ctx, name, filepath.Join(snap, e.Name()), -1); err != nil {
			return err
		}
	}
	for i := r.first; i <= r.at && i < len(r.names); i++ {
		size := int64(-1)
		if i == r.at {
			size = r.good
		}
		if err := copyFile(ctx, r.names[i], filepath.Join(wal, filepath.Base(r.names[i])), size); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies this many bytes of a file, or all of them (-1).
func copyFile(ctx context.Context, from, to string, size int64) error {
	if err := ctx.Err(); err != nil || size == 0 {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if size < 0 {
		_, err = io.Copy(out, in)
	} else {
		_, err = io.CopyN(out, in, size)
	}
	return errors.Join(err, out.Close())
}
