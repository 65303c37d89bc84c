package backups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/safefile"
)

// fetchCopy fetches a copy unchanged: TARGET is the newest copy there, TARGET/FILE is a
// certain one.
func (b *Backups) fetchCopy(ctx context.Context, c *v1alpha1.Cluster, o SnapshotOptions, progress event.Sink) (*SnapshotInfo, error) {
	name, file, _ := strings.Cut(o.Copy, "/")
	see := "list the copies: slipway etcd snapshots " + c.Name + " --copies"
	i := slices.IndexFunc(inspect.CopyTargets(c), func(to v1alpha1.EtcdCopy) bool { return to.Name == name })
	if i < 0 {
		return nil, diag.Refuse(idBackupNotThere, "the cluster has no copy target "+name, see)
	}
	to := inspect.CopyTargets(c)[i]
	q, done, err := b.c.Inspector.QueryCopies(ctx, c, progress)
	if err != nil {
		return nil, err
	}
	defer done()
	list, on, err := q.List(ctx, to)
	i = slices.IndexFunc(list, func(k copies.Copy) bool {
		return file == "" && (o.Unverified || k.Name.IsVerified(q.Key)) || k.File.Name == file
	})
	switch {
	case i < 0 && file == "" && err == nil && len(list) > 0:
		return nil, diag.Refuse(string(backup.Unverified),
			fmt.Sprintf("no copy at %s has a verified name (%d copies): anyone with write access there can have chosen these names",
				name, len(list)),
			"list the copies and fetch one by its name: slipway etcd snapshots "+c.Name+" --copies")
	case i < 0 && err != nil:
		return nil, diag.Refuse(idCopyTarget,
			"cannot list copy target "+name+" ("+inspect.CopyPlace(to)+"): "+hostconn.Diagnose(err).Message, hostconn.Diagnose(err).Hint)
	case file == "" && err != nil: // the part that cannot be listed may have newer copies
		return nil, diag.Refuse(idCopyTarget,
			"the newest copy at "+name+" ("+inspect.CopyPlace(to)+") is unknown, because a part of the target cannot be listed: "+
				hostconn.Diagnose(err).Message,
			"make that part reachable, or choose a copy, for example the newest one found: slipway etcd snapshot "+c.Name+" --copy "+name+
				"/"+list[i].File.Name)
	case i < 0:
		return nil, diag.Refuse(idBackupNotThere,
			"copy target "+name+" ("+inspect.CopyPlace(to)+") has "+noCopy(file)+" of this cluster", see)
	}
	k := list[i]
	m := &snapshotting{in: b, taken: k.Taken, options: o, progress: progress, session: q.Session, report: &inspect.EtcdReport{Name: c.Name}}
	if m.to, err = m.setPath(c.Name, o, true); err != nil {
		return nil, err
	}
	m.removeTemporaryFiles(filepath.Dir(m.to))
	if err := transfer.CheckRoom(filepath.Dir(m.to), k.Bytes+spareHere); err != nil {
		return nil, diag.Refuse(idBackupRoom, err.Error(), "free disk space, or set --out to a file on another disk")
	}
	event.SendNote(progress, "",
		fmt.Sprintf("fetching %s from %s: snapshot of %s, revision %d, taken %s", k.File.Name, inspect.CopyPlace(to), k.Host,
			k.Revision, k.Taken.UTC().Format(time.RFC3339)))
	if err := m.writeCopy(ctx, q, to, k, on[k.File.Name]); err != nil {
		return nil, err
	}
	return &SnapshotInfo{
		Cluster: c.Name, File: m.to, Bytes: k.Bytes, Taken: k.Taken, Encrypted: true, Member: k.Host,
		Revision: k.Revision, Verified: k.Name.IsVerified(q.Key),
	}, b.c.Owner.GiveFiles(m.to)
}

func noCopy(file string) string {
	if file == "" {
		return "no copies"
	}
	return "no copy " + file
}

// writeCopy writes a copy to a file on this machine, completely or not at all.
func (m *snapshotting) writeCopy(
	ctx context.Context, q *inspect.CopyQuery, to v1alpha1.EtcdCopy, k copies.Copy, on *inspect.Host,
) (err error) {
	dir := filepath.Dir(m.to)
	scratch, err := safefile.MkdirTemp(dir, passing, 0o700)
	if err != nil {
		return diag.Refuse(idBackupFailed, err.Error(), "set --out to a file in a writable directory")
	}
	defer func() { err = errors.Join(err, safefile.RemoveAll(scratch)) }()
	part := filepath.Join(scratch, "copy")
	if on != nil {
		err = m.copyFrom(ctx, on, to.Directory+"/"+k.File.Name, part, k.Bytes)
	} else {
		err = q.Fetch(ctx, to, k, part)
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(part)
	if err == nil && info.Size() != k.Bytes {
		return diag.Refuse(string(backup.Damaged),
			fmt.Sprintf("%[2]s is incomplete: received %[1]d of %[3]d bytes", info.Size(), k.File.Name, k.Bytes), "fetch the copy again")
	}
	return errors.Join(err, backup.CommitFile(part, m.to))
}
