package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/secret"
)

// CopyReport lists the copies of a cluster's backups at their targets.
type CopyReport struct {
	Name string `json:"name"`
	// Good reports whether every target could be listed.
	Good    bool         `json:"good"`
	Targets []CopyTarget `json:"targets"`
	Next    string       `json:"next"`
}

// A CopyTarget is one of these targets.
type CopyTarget struct {
	Name string `json:"name"`
	// At is its location, for users.
	At string `json:"at"`
	// Copies are the copies of this cluster, newest first.
	Copies []CopyInfo `json:"copies"`
	// Problem is the reason why it could not be listed, nil if there is none.
	Problem *diag.Diagnostic `json:"problem,omitempty"`
}

// CopyInfo is a copy: an encrypted backup set.
type CopyInfo struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	// Host is the host that took the snapshot, Taken is the time when it began.
	Host     string    `json:"host"`
	Taken    time.Time `json:"taken"`
	Revision int64     `json:"revision"`
	// Verified reports whether a host of the cluster chose the name. Others can write
	// files with any name there, but such a file never counts as the newest copy.
	Verified bool `json:"verified"`
}

// copySecrets returns the credentials for the copy targets, by the target's name.
func copySecrets(c *v1alpha1.Cluster) (map[string]secret.String, error) {
	var list diag.List
	out := map[string]secret.String{}
	if c.Spec.Etcd.Backup == nil {
		return nil, nil
	}
	for i, to := range c.Spec.Etcd.Backup.Copies {
		if to.Directory != "" {
			continue
		}
		text, field, err := copySecret(to)
		if err != nil {
			list = append(list,
				refused(idSecretUnreadable, fmt.Sprintf("cannot read the key for copy target %s: %v", to.Name, err),
					"restore the file or variable that "+path.Ext(field)[1:]+" names")...)
			list[len(list)-1].Path = fmt.Sprintf("spec.etcd.backup.copies[%d].%s", i, field)
		}
		out[to.Name] = text
	}
	return out, list.Err()
}

// copySecret returns the credentials for one target. If there is an error, field is the
// field whose secret could not be read.
func copySecret(to v1alpha1.EtcdCopy) (text secret.String, field string, err error) {
	if to.SSH != nil {
		text, err = secret.Resolve(*to.SSH.PrivateKeyFrom)
		return text, "ssh.privateKeyFrom", err
	}
	access, err := secret.Resolve(*to.S3.AccessKeyFrom)
	if err != nil {
		return text, "s3.accessKeyFrom", err
	}
	key, err := secret.Resolve(*to.S3.SecretKeyFrom)
	if err != nil {
		return text, "s3.secretKeyFrom", err
	}
	login := copies.S3Login{AccessKey: access.Reveal(), SecretKey: key.Reveal()}
	if to.S3.CAFile != "" {
		authorities, err := bounded.ReadArgument(to.S3.CAFile, bounded.Argument)
		if err != nil {
			return text, "s3.caFile", err
		}
		login.Authorities = string(authorities)
	}
	raw, err := login.Secret()
	return secret.New(string(raw)), "s3.secretKeyFrom", err
}

// targetsOf returns the copy targets of a cluster's backups.
func targetsOf(c *v1alpha1.Cluster) []v1alpha1.EtcdCopy {
	if c.Spec.Etcd.Backup == nil {
		return nil
	}
	return c.Spec.Etcd.Backup.Copies
}

// Copies lists the copies of a cluster's backups: remote targets from this machine, and
// directories of hosts on these hosts. It does not need the API or etcd.
func (s *service) Copies(ctx context.Context, name string, progress event.Sink) (*CopyReport, error) {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &CopyReport{Name: name}
	looked, done, err := s.lookForCopies(ctx, c, progress)
	if err != nil {
		return nil, err
	}
	defer done()
	r.Targets = looked.all(ctx, targetsOf(c), progress)
	r.conclude()
	return r, nil
}

// conclude sets whether all targets could be listed, and the next command.
func (r *CopyReport) conclude() {
	r.Good = !slices.ContainsFunc(r.Targets, func(t CopyTarget) bool { return t.Problem != nil })
	newest := func(t CopyTarget) int { return slices.IndexFunc(t.Copies, func(k CopyInfo) bool { return k.Verified }) }
	switch i := slices.IndexFunc(r.Targets, func(t CopyTarget) bool { return newest(t) >= 0 }); {
	case i >= 0 && r.Targets[i].Problem != nil: // the newest copy there is unknown
		r.Next = "slipway etcd snapshot " + r.Name + " --copy " + r.Targets[i].Name + "/" + r.Targets[i].Copies[newest(r.Targets[i])].File
	case i >= 0:
		r.Next = "slipway etcd snapshot " + r.Name + " --copy " + r.Targets[i].Name
	case len(r.Targets) > 0:
		r.Next = "slipway etcd snapshots " + r.Name + " --hosts"
	default:
		r.Next = "write spec.etcd.backup.copies into the cluster file, then run: slipway apply -f FILE"
	}
}

// all lists several targets at the same time.
func (c *copyLook) all(ctx context.Context, places []v1alpha1.EtcdCopy, progress event.Sink) []CopyTarget {
	out := make([]CopyTarget, len(places))
	var looking sync.WaitGroup
	for i, to := range places {
		looking.Go(func() { out[i] = c.at(ctx, to, progress) })
	}
	looking.Wait()
	return out
}

// at lists one target.
func (c *copyLook) at(ctx context.Context, to v1alpha1.EtcdCopy, progress event.Sink) CopyTarget {
	t := CopyTarget{Name: to.Name, At: placeOf(to), Copies: []CopyInfo{}}
	note(progress, "", "listing "+t.At)
	list, _, err := c.list(ctx, to)
	if err != nil {
		d := hostconn.Diagnose(err)
		t.Problem = &diag.Diagnostic{ID: idCopyTarget, Severity: diag.Warning,
			Message: "cannot list copy target " + to.Name + " (" + t.At + "): " + d.Message, Hint: d.Hint}
	}
	for _, k := range list {
		t.Copies = append(t.Copies,
			CopyInfo{File: k.File.Name, Bytes: k.Bytes, Host: k.Host, Taken: k.Taken, Revision: k.Revision, Verified: k.Name.Verified(c.key)})
	}
	return t
}

// placeOf returns the location of a target, for users.
func placeOf(to v1alpha1.EtcdCopy) string {
	if m := to.SSH; m != nil {
		return fmt.Sprintf("%s@%s:%s", m.User, m.Address, m.Directory)
	}
	if b := to.S3; b != nil {
		return strings.TrimRight(b.Endpoint, "/") + "/" + path.Join(b.Bucket, b.Prefix)
	}
	return to.Directory
}

// copyLook lists the copies of a cluster.
type copyLook struct {
	svc  *service
	l    *inspect.Session
	name string
	// ids are the cluster's ids in file names; empty if unknown. key verifies names.
	ids []string
	key *backup.SigningKey
}

// lookForCopies connects to hosts if they have directories with copies.
func (s *service) lookForCopies(ctx context.Context, c *v1alpha1.Cluster, progress event.Sink) (*copyLook, func(), error) {
	env, err := s.environment(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	l := s.NewSession(env)
	l.Select(func(h v1alpha1.Host) bool { return etcdbackup.HasCopies(c, h) })
	key, err := s.knownKey(c.Name)
	if err != nil {
		return nil, nil, err
	}
	look := &copyLook{svc: s, l: l, name: c.Name, key: key}
	for _, authority := range authoritiesOf(l.Admin) {
		look.ids = append(look.ids, copies.IDOf(authority))
	}
	if slices.ContainsFunc(targetsOf(c), func(to v1alpha1.EtcdCopy) bool { return to.Directory != "" }) {
		limited, cancel := context.WithTimeoutCause(ctx, s.Limits.Total, inspect.ErrNoTime)
		defer cancel()
		l.QueryHosts(limited, s.Limits.Host, progress, func(context.Context, *inspect.Host) {})
	}
	return look, l.Close, nil
}

// own reports whether a copy belongs to this cluster.
func (c *copyLook) own(n copies.Name) bool {
	return n.Cluster == c.name && (len(c.ids) == 0 || slices.Contains(c.ids, n.ID))
}

// list returns the copies at a target and, for a directory, the host of each copy.
func (c *copyLook) list(ctx context.Context, to v1alpha1.EtcdCopy) (list []copies.Copy, on map[string]*inspect.Host, err error) {
	if to.Directory != "" {
		return c.listOnHosts(ctx, to)
	}
	limit := c.svc.Limits.Host
	ctx, cancel := context.WithTimeoutCause(ctx, limit, mute(placeOf(to), limit))
	defer cancel()
	target, err := c.open(ctx, to)
	if err == nil {
		list, err = copies.Own(ctx, target, c.name+"_", c.own)
		err = errors.Join(err, target.Close())
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return list, nil, err
}

// mute is the error for a target that does not respond in time.
func mute(place string, limit time.Duration) error {
	return fmt.Errorf("%s did not respond within %s", place, limit)
}

// open opens a remote target from this machine.
func (c *copyLook) open(ctx context.Context, to v1alpha1.EtcdCopy) (copies.Target, error) {
	key, _, err := copySecret(to)
	if err != nil {
		return nil, err
	}
	return copies.Open(ctx, etcdbackup.CopyTarget(to), []byte(key.Reveal()))
}

// listOnHosts lists a directory on all hosts with copies at the same time: it may be a
// shared directory or a different one on each host.
func (c *copyLook) listOnHosts(ctx context.Context, to v1alpha1.EtcdCopy) (list []copies.Copy, on map[string]*inspect.Host, err error) {
	type answer struct {
		*inspect.Host
		found  []copies.File
		failed error
	}
	var answers []*answer
	for _, h := range c.l.Hosts {
		answers = append(answers, &answer{Host: h})
	}
	hostconn.ForEach(answers, func(a *answer) {
		if a.Conn == nil || a.Err != nil {
			a.failed = fmt.Errorf("%s is unreachable: %w", a.Spec.Name, cmp.Or(a.Err, inspect.ErrNoTime))
		} else if a.found, a.failed = filesOn(ctx, a.Host, to.Directory, c.svc.Limits.Host); a.failed != nil {
			a.failed = fmt.Errorf("%s: %w", a.Spec.Name, a.failed)
		}
	})
	on = map[string]*inspect.Host{}
	for _, a := range answers {
		err = errors.Join(err, a.failed)
		for _, k := range copies.Among(a.found, c.own) {
			if on[k.File.Name] == nil {
				list, on[k.File.Name] = append(list, k), a.Host
			}
		}
	}
	slices.SortStableFunc(list, copies.Newer)
	return list, on, err
}

// filesOn lists the files in a directory of a host. It has a time limit because a mounted
// file system may be stalled.
func filesOn(ctx context.Context, h *inspect.Host, dir string, limit time.Duration) (out []copies.File, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, mute(dir, limit))
	defer cancel()
	results, err := h.Conn.Check(ctx, op.List{op.Copies{Directory: dir}})
	if err == nil && results[0].Error != nil {
		err = results[0].Error
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(results[0].Output, &out)
}

// fetchCopy fetches a copy unchanged: TARGET is the newest copy there, TARGET/FILE is a
// certain one.
func (s *service) fetchCopy(ctx context.Context, c *v1alpha1.Cluster, o SnapshotOptions, progress event.Sink) (*SnapshotInfo, error) {
	name, file, _ := strings.Cut(o.Copy, "/")
	see := "list the copies: slipway etcd snapshots " + c.Name + " --copies"
	i := slices.IndexFunc(targetsOf(c), func(to v1alpha1.EtcdCopy) bool { return to.Name == name })
	if i < 0 {
		return nil, refused(idBackupNotThere, "the cluster has no copy target "+name, see)
	}
	to := targetsOf(c)[i]
	look, done, err := s.lookForCopies(ctx, c, progress)
	if err != nil {
		return nil, err
	}
	defer done()
	list, on, err := look.list(ctx, to)
	i = slices.IndexFunc(list, func(k copies.Copy) bool {
		return file == "" && (o.Unverified || k.Name.Verified(look.key)) || k.File.Name == file
	})
	switch {
	case i < 0 && file == "" && err == nil && len(list) > 0:
		return nil, refused(string(backup.Unverified),
			fmt.Sprintf("no copy at %s has a verified name (%d copies): anyone with write access there can have chosen these names",
				name, len(list)),
			"list the copies and fetch one by its name: slipway etcd snapshots "+c.Name+" --copies")
	case i < 0 && err != nil:
		return nil, refused(idCopyTarget,
			"cannot list copy target "+name+" ("+placeOf(to)+"): "+hostconn.Diagnose(err).Message, hostconn.Diagnose(err).Hint)
	case file == "" && err != nil: // the part that cannot be listed may have newer copies
		return nil, refused(idCopyTarget,
			"the newest copy at "+name+" ("+placeOf(to)+") is unknown, because a part of the target cannot be listed: "+
				hostconn.Diagnose(err).Message,
			"make that part reachable, or choose a copy, for example the newest one found: slipway etcd snapshot "+c.Name+" --copy "+name+
				"/"+list[i].File.Name)
	case i < 0:
		return nil, refused(idBackupNotThere, "copy target "+name+" ("+placeOf(to)+") has no such copy of this cluster: "+orNone(file), see)
	}
	k := list[i]
	m := &snapshotting{svc: s, taken: k.Taken, options: o, progress: progress, looker: look.l, report: &inspect.EtcdReport{Name: c.Name}}
	if m.to, err = m.place(c.Name, o, true); err != nil {
		return nil, err
	}
	m.sweep(filepath.Dir(m.to))
	if err := transfer.Room(filepath.Dir(m.to), k.Bytes+spareHere); err != nil {
		return nil, refused(idBackupRoom, err.Error(), "free disk space, or use a file on another disk with --out")
	}
	note(progress, "",
		fmt.Sprintf("fetching %s from %s: snapshot of %s, revision %d, taken %s", k.File.Name, placeOf(to), k.Host,
			k.Revision, k.Taken.UTC().Format(time.RFC3339)))
	if err := m.bring(ctx, look, to, k, on[k.File.Name]); err != nil {
		return nil, err
	}
	return &SnapshotInfo{
		Cluster: c.Name, File: m.to, Bytes: k.Bytes, Taken: k.Taken, Encrypted: true, Member: k.Host,
		Revision: k.Revision, Verified: k.Name.Verified(look.key),
	}, s.Store.Own(m.to)
}

func orNone(file string) string {
	if file == "" {
		return "there is none"
	}
	return file
}

// bring writes a copy to a file on this machine, completely or not at all.
func (m *snapshotting) bring(ctx context.Context, look *copyLook, to v1alpha1.EtcdCopy, k copies.Copy, on *inspect.Host) (err error) {
	dir := filepath.Dir(m.to)
	scratch, err := safefile.MkdirTemp(dir, passing, 0o700)
	if err != nil {
		return refused(idBackupFailed, err.Error(), "use a file in a writable directory with --out")
	}
	defer func() { err = errors.Join(err, safefile.RemoveAll(scratch)) }()
	part := filepath.Join(scratch, "copy")
	if on != nil {
		err = m.copyFrom(ctx, on, to.Directory+"/"+k.File.Name, part, k.Bytes)
	} else {
		err = look.fetch(ctx, to, k, part)
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(part)
	if err == nil && info.Size() != k.Bytes {
		return refused(string(backup.Damaged),
			fmt.Sprintf("%[2]s is incomplete: received %[1]d of %[3]d bytes", info.Size(), k.File.Name, k.Bytes), "fetch the copy again")
	}
	return errors.Join(err, backup.Settle(part, m.to))
}

// fetch reads a copy from a remote target.
func (c *copyLook) fetch(ctx context.Context, to v1alpha1.EtcdCopy, k copies.Copy, part string) error {
	target, err := c.open(ctx, to)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, target.Close())
	}
	if err := errors.Join(target.Fetch(ctx, k.File.Name, &limited{f, k.Bytes}), f.Sync(), f.Close(), target.Close()); err != nil {
		return refused(idCopyTarget, to.Name+" ("+placeOf(to)+"): fetching "+k.File.Name+": "+hostconn.Diagnose(err).Message,
			"fetch the copy again")
	}
	return nil
}

// limited accepts a limited number of bytes, because the target may send endlessly.
type limited struct {
	to   io.Writer
	left int64
}

func (b *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errors.New("the file is larger than listed")
	}
	n, err := b.to.Write(p)
	b.left -= int64(n)
	return n, err
}
