package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
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
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
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

// ReadCopySecrets returns the credentials for the copy targets, by the target's name.
func ReadCopySecrets(c *v1alpha1.Cluster) (map[string]secret.String, error) {
	var list diag.List
	out := map[string]secret.String{}
	if c.Spec.Etcd.Backup == nil {
		return nil, nil
	}
	for i, to := range c.Spec.Etcd.Backup.Copies {
		if to.Directory != "" {
			continue
		}
		text, field, err := readCopySecret(to)
		if err != nil {
			list = append(list,
				diag.Refuse(idSecretUnreadable, fmt.Sprintf("cannot read the key for copy target %s: %v", to.Name, err),
					"restore the file or variable that "+path.Ext(field)[1:]+" names")...)
			list[len(list)-1].Path = fmt.Sprintf("spec.etcd.backup.copies[%d].%s", i, field)
		}
		out[to.Name] = text
	}
	return out, list.Err()
}

// readCopySecret returns the credentials for one target. If there is an error, field is the
// field whose secret could not be read.
func readCopySecret(to v1alpha1.EtcdCopy) (text secret.String, field string, err error) {
	if to.SSH != nil {
		text, err = secret.ResolveSource(*to.SSH.PrivateKeyFrom)
		return text, "ssh.privateKeyFrom", err
	}
	access, err := secret.ResolveSource(*to.S3.AccessKeyFrom)
	if err != nil {
		return text, "s3.accessKeyFrom", err
	}
	key, err := secret.ResolveSource(*to.S3.SecretKeyFrom)
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
	raw, err := login.Encode()
	return secret.New(string(raw)), "s3.secretKeyFrom", err
}

// CopyTargets returns the copy targets of a cluster's backups.
func CopyTargets(c *v1alpha1.Cluster) []v1alpha1.EtcdCopy {
	if c.Spec.Etcd.Backup == nil {
		return nil
	}
	return c.Spec.Etcd.Backup.Copies
}

// Copies lists the copies of a cluster's backups: remote targets from this machine, and
// directories of hosts on these hosts. It does not need the API or etcd.
func (in *Inspector) Copies(ctx context.Context, name string, progress event.Sink) (*CopyReport, error) {
	c, err := in.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &CopyReport{Name: name}
	q, done, err := in.QueryCopies(ctx, c, progress)
	if err != nil {
		return nil, err
	}
	defer done()
	r.Targets = q.listAll(ctx, CopyTargets(c), progress)
	r.setNext()
	return r, nil
}

// setNext sets whether all targets could be listed, and the next command.
func (r *CopyReport) setNext() {
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

// listAll lists several targets at the same time.
func (q *CopyQuery) listAll(ctx context.Context, places []v1alpha1.EtcdCopy, progress event.Sink) []CopyTarget {
	out := make([]CopyTarget, len(places))
	var looking sync.WaitGroup
	for i, to := range places {
		looking.Go(func() { out[i] = q.listTarget(ctx, to, progress) })
	}
	looking.Wait()
	return out
}

// listTarget lists one target.
func (q *CopyQuery) listTarget(ctx context.Context, to v1alpha1.EtcdCopy, progress event.Sink) CopyTarget {
	t := CopyTarget{Name: to.Name, At: CopyPlace(to), Copies: []CopyInfo{}}
	event.SendNote(progress, "", "listing "+t.At)
	list, _, err := q.List(ctx, to)
	if err != nil {
		d := hostconn.Diagnose(err)
		t.Problem = &diag.Diagnostic{
			ID: idCopyTarget, Severity: diag.Warning,
			Message: "cannot list copy target " + to.Name + " (" + t.At + "): " + d.Message, Hint: d.Hint,
		}
	}
	for _, k := range list {
		t.Copies = append(t.Copies,
			CopyInfo{File: k.File.Name, Bytes: k.Bytes, Host: k.Host, Taken: k.Taken, Revision: k.Revision, Verified: k.Name.IsVerified(q.Key)})
	}
	return t
}

// CopyPlace returns the location of a target, for users.
func CopyPlace(to v1alpha1.EtcdCopy) string {
	if m := to.SSH; m != nil {
		return fmt.Sprintf("%s@%s:%s", m.User, m.Address, m.Directory)
	}
	if b := to.S3; b != nil {
		return strings.TrimRight(b.Endpoint, "/") + "/" + path.Join(b.Bucket, b.Prefix)
	}
	return to.Directory
}

// CopyQuery lists the copies of a cluster.
type CopyQuery struct {
	// Session has the hosts with directories for copies.
	Session *Session
	// Key verifies file names; nil if the cluster has no key yet.
	Key  *backup.SigningKey
	name string
	// ids are the cluster's ids in file names; empty if unknown.
	ids []string
}

// QueryCopies connects to hosts if they have directories with copies. done closes the
// connections.
func (in *Inspector) QueryCopies(ctx context.Context, c *v1alpha1.Cluster, progress event.Sink) (_ *CopyQuery, done func(), err error) {
	env, err := in.c.Clusters.Environment(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	s := in.NewSession(ctx, env)
	s.Select(func(h v1alpha1.Host) bool { return etcdbackup.HasCopies(c, h) })
	key, err := in.c.SigningKey(ctx, c.Name)
	if err != nil {
		return nil, nil, err
	}
	q := &CopyQuery{Session: s, Key: key, name: c.Name}
	for _, authority := range in.c.CAIDs(s.Admin) {
		q.ids = append(q.ids, copies.ClusterID(authority))
	}
	if slices.ContainsFunc(CopyTargets(c), func(to v1alpha1.EtcdCopy) bool { return to.Directory != "" }) {
		limited, cancel := context.WithTimeoutCause(ctx, in.Limits.Total, ErrNoTime)
		defer cancel()
		s.QueryHosts(limited, in.Limits.Host, progress, func(context.Context, *Host) {})
	}
	return q, s.Close, nil
}

// isOwn reports whether a copy belongs to this cluster.
func (q *CopyQuery) isOwn(n copies.Name) bool {
	return n.Cluster == q.name && (len(q.ids) == 0 || slices.Contains(q.ids, n.ID))
}

// List returns the copies at a target and, for a directory, the host of each copy.
func (q *CopyQuery) List(ctx context.Context, to v1alpha1.EtcdCopy) (list []copies.Copy, on map[string]*Host, err error) {
	if to.Directory != "" {
		return q.listOnHosts(ctx, to)
	}
	limit := q.Session.in.Limits.Host
	ctx, cancel := context.WithTimeoutCause(ctx, limit, unresponsiveTarget(CopyPlace(to), limit))
	defer cancel()
	target, err := q.openTarget(ctx, to)
	if err == nil {
		list, err = copies.ListCopies(ctx, target, q.name+"_", q.isOwn)
		err = errors.Join(err, target.Close())
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return list, nil, err
}

// unresponsiveTarget is the error for a target that does not respond in time.
func unresponsiveTarget(place string, limit time.Duration) error {
	return fmt.Errorf("%s did not respond within %s", place, limit)
}

// openTarget opens a remote target from this machine.
func (q *CopyQuery) openTarget(ctx context.Context, to v1alpha1.EtcdCopy) (copies.Target, error) {
	key, _, err := readCopySecret(to)
	if err != nil {
		return nil, err
	}
	return copies.Open(ctx, etcdbackup.CopyTarget(to), []byte(key.Reveal()))
}

// listOnHosts lists a directory on all hosts with copies at the same time: it may be a
// shared directory or a different one on each host.
func (q *CopyQuery) listOnHosts(ctx context.Context, to v1alpha1.EtcdCopy) (list []copies.Copy, on map[string]*Host, err error) {
	type answer struct {
		*Host
		found  []copies.File
		failed error
	}
	var answers []*answer
	for _, h := range q.Session.Hosts {
		answers = append(answers, &answer{Host: h})
	}
	hostconn.ForEach(answers, func(a *answer) {
		if a.Conn == nil || a.Err != nil {
			a.failed = fmt.Errorf("%s is unreachable: %w", a.Spec.Name, cmp.Or(a.Err, ErrNoTime))
		} else if a.found, a.failed = listFiles(ctx, a.Host, to.Directory, q.Session.in.Limits.Host); a.failed != nil {
			a.failed = fmt.Errorf("%s: %w", a.Spec.Name, a.failed)
		}
	})
	on = map[string]*Host{}
	for _, a := range answers {
		err = errors.Join(err, a.failed)
		for _, k := range copies.SelectCopies(a.found, q.isOwn) {
			if on[k.File.Name] == nil {
				list, on[k.File.Name] = append(list, k), a.Host
			}
		}
	}
	slices.SortStableFunc(list, copies.CompareNewestFirst)
	return list, on, err
}

// listFiles lists the files in a directory of a host. It has a time limit because a mounted
// file system may be stalled.
func listFiles(ctx context.Context, h *Host, dir string, limit time.Duration) (out []copies.File, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, unresponsiveTarget(dir, limit))
	defer cancel()
	results, err := h.Conn.Check(ctx, op.List{op.ListBackupCopies{Directory: dir}})
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

// Fetch reads a copy from a remote target.
func (q *CopyQuery) Fetch(ctx context.Context, to v1alpha1.EtcdCopy, k copies.Copy, part string) error {
	target, err := q.openTarget(ctx, to)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, target.Close())
	}
	if err := errors.Join(target.Fetch(ctx, k.File.Name, &limitedWriter{f, k.Bytes}), f.Sync(), f.Close(), target.Close()); err != nil {
		return diag.Refuse(idCopyTarget, to.Name+" ("+CopyPlace(to)+"): fetching "+k.File.Name+": "+hostconn.Diagnose(err).Message,
			"fetch the copy again")
	}
	return nil
}

// limitedWriter accepts a limited number of bytes, because the target may send endlessly.
type limitedWriter struct {
	to   io.Writer
	left int64
}

func (b *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errors.New("the file is larger than listed")
	}
	n, err := b.to.Write(p)
	b.left -= int64(n)
	return n, err
}
