package backups

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/verify"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/spec"
)

// SnapshotOptions configure a snapshot.
type SnapshotOptions struct {
	// Out is the file of the set, "" for the default directory. It must not exist.
	Out string
	// Recipients are age public keys ("age1…") for which the set is encrypted; without
	// any it is not encrypted.
	Recipients []string
	// Copy fetches a copy from a target, unchanged, instead of making a set: TARGET
	// selects the newest copy there, TARGET/FILE a certain one.
	Copy string
	// SetTrust selects which copies count when the newest one is fetched.
	SetTrust
	// Of makes the set from an automatic snapshot of a host instead of a new one: HOST
	// selects the newest one there, HOST/FILE a certain one.
	Of string

	// KeepAutomatic, if not 0, makes the set an automatic one, in a directory below the default one. Of the automatic
	// sets, this number of the newest is kept.
	KeepAutomatic int
	// Version is the current version of the cluster, "" for the saved one.
	Version string
	// KeysOnly omits the snapshot, for external etcd.
	KeysOnly bool
}

// SnapshotInfo describes a backup set. Unless it was just made, an encrypted set is only
// known by its file.
type SnapshotInfo struct {
	Cluster   string    `json:"cluster"`
	File      string    `json:"file"`
	Bytes     int64     `json:"bytes"`
	Taken     time.Time `json:"taken"`
	Encrypted bool      `json:"encrypted"`
	// Verified reports whether the key of its cluster signed it. This is unknown for an
	// encrypted set without the key that decrypts it; for a copy that was just fetched,
	// it refers to the name only.
	Verified bool `json:"verified"`
	// SignedBy is the cluster's public key that signed a set that was just made. NewKey
	// reports whether that key was generated for it.
	SignedBy string `json:"signedBy,omitempty"`
	NewKey   bool   `json:"newKey,omitempty"`
	// Revision is the etcd revision from the name of a copy.
	Revision   int64  `json:"revision,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	Etcd       string `json:"etcd,omitempty"`
	// Member is the member that the snapshot is from.
	Member   string           `json:"member,omitempty"`
	Snapshot *backup.Snapshot `json:"snapshot,omitempty"`
	// KeysOnly reports whether the set has no snapshot, because the etcd is external.
	KeysOnly bool `json:"keysOnly,omitempty"`
	// Files are the paths of the host files in it.
	Files []string `json:"files,omitempty"`
	// Problem is the reason why the set cannot be used, nil if there is none.
	Problem *diag.Diagnostic `json:"problem,omitempty"`
}

// cleanupTime limits the removal of a snapshot from a host.
const cleanupTime = 30 * time.Second

// snapshotTime limits a snapshot on a host.
const snapshotTime = 15 * time.Minute

// A snapshotting makes one backup set.
type snapshotting struct {
	in       *Backups
	session  *inspect.Session
	report   *inspect.EtcdReport
	taken    time.Time
	options  SnapshotOptions
	to       string
	keys     []age.Recipient
	signer   *backup.SigningKey
	newKey   bool
	progress event.Sink
}

// Snapshot takes a snapshot of a cluster's etcd, verifies it and writes it into a backup
// set. It does not change the cluster. progress may be nil.
func (b *Backups) Snapshot(ctx context.Context, name string, o SnapshotOptions, progress event.Sink) (*SnapshotInfo, error) {
	c, err := b.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.Spec.Etcd.External != nil && !o.KeysOnly {
		return nil, inspect.RefuseExternalEtcd(name, "a snapshot")
	}
	if o.Copy != "" {
		return b.fetchCopy(ctx, c, o, progress)
	}
	if o.Version != "" {
		c.Spec.Kubernetes.Version, c.Status.Version = o.Version, o.Version
	}
	m := &snapshotting{in: b, taken: b.c.Now(), options: o, progress: progress}
	if m.keys, err = backup.ParseRecipients(o.Recipients); err != nil {
		return nil, diag.Refuse(idBadRecipient, err.Error(), "generate a key with age-keygen and use the public key that it prints")
	}
	known, err := b.c.Keys.Known(ctx, name)
	if err != nil {
		return nil, err
	}
	m.newKey = known == nil
	if m.signer, _, err = b.c.Keys.LoadOrCreate(ctx, name); err != nil {
		return nil, err
	}
	if o.Of == "" {
		if m.to, err = m.setPath(name, o, len(m.keys) > 0); err != nil {
			return nil, err
		}
	}
	env, err := b.c.Clusters.Environment(ctx, c)
	if err != nil {
		return nil, err
	}
	m.session = b.c.Inspector.NewSession(ctx, env)
	defer m.session.Close()
	m.session.Select(func(h v1alpha1.Host) bool {
		return m.session.CanQueryEtcd(h) || spec.HasRole(h, v1alpha1.RoleControlPlane)
	})
	limited, cancel := context.WithTimeoutCause(ctx, b.c.Inspector.Limits.Total, inspect.ErrNoTime)
	defer cancel()
	m.report = m.session.ReportEtcd(limited, progress)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return m.run(ctx)
}

// setPath returns the path of the set.
func (m *snapshotting) setPath(name string, o SnapshotOptions, encrypted bool) (to string, err error) {
	if to = o.Out; to == "" {
		dir, err := m.in.makeDir(name, o)
		if err != nil {
			return "", err
		}
		to = filepath.Join(dir, backup.FileName(name, m.taken, encrypted))
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	if _, err := safefile.Lstat(to); errors.As(err, new(*safefile.ForeignError)) {
		return "", diag.Refuse(idBackupFailed, err.Error(), "use the directory that the link points to, or remove the link")
	} else if err == nil {
		return "", diag.Refuse(string(backup.Exists), to+" already exists", "set --out to another file; a backup is never overwritten")
	}
	if info, err := os.Stat(filepath.Dir(to)); err != nil || !info.IsDir() {
		return "", diag.Refuse(idBackupFailed, "directory "+filepath.Dir(to)+" does not exist",
			"create the directory, or set --out to another file")
	}
	return to, nil
}

func (m *snapshotting) run(ctx context.Context) (info *SnapshotInfo, err error) {
	if m.options.KeysOnly {
		small, authority, err := m.readSetFiles(ctx)
		if err != nil {
			return nil, err
		}
		return m.write(m.set(authority), small, "")
	}
	member, host, kept, err := m.findSource(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := m.snapshotDir()
	if err == nil {
		m.removeTemporaryFiles(dir)
		err = m.checkRoom(dir, member.DBBytes)
	}
	if err != nil {
		return nil, err
	}
	small, authority, err := m.readSetFiles(ctx)
	if err != nil {
		return nil, err
	}
	scratch, err := safefile.MkdirTemp(dir, passing, 0o700)
	if err != nil {
		return nil, diag.Refuse(idBackupFailed, err.Error(), "set --out to a file in a writable directory")
	}
	defer func() { err = errors.Join(err, safefile.RemoveAll(scratch)) }()
	file := filepath.Join(scratch, backup.SnapshotName)
	is, err := m.takeSnapshot(ctx, host, kept, file)
	if err != nil {
		return nil, err
	}
	set := m.set(authority)
	set.Etcd, set.Member, set.Snapshot = member.Version, member.Label(), *is
	return m.write(set, small, file)
}

// set returns the description of the set without its snapshot.
func (m *snapshotting) set(authority string) *backup.Set {
	c := m.session.Env.Cluster
	return &backup.Set{
		Cluster: c.Name, Taken: m.taken.UTC().Truncate(time.Second), Kubernetes: cmp.Or(c.Status.Version, c.Spec.Kubernetes.Version),
		EtcdType: m.report.Etcd.Type, ClusterID: m.report.Etcd.ClusterID, Authority: authority,
	}
}

// write writes the set. snapshot is the snapshot's file, "" for none.
func (m *snapshotting) write(set *backup.Set, small []backup.Content, snapshot string) (*SnapshotInfo, error) {
	event.SendNote(m.progress, "", "writing the backup set")
	if err := backup.Write(m.to, set, small, snapshot, backup.Keys{Recipients: m.keys, Signer: m.signer}); err != nil {
		return nil, unusable(err)
	}
	if err := m.in.c.Owner.GiveFiles(m.to); err != nil {
		return nil, err
	}
	if m.options.KeepAutomatic > 0 {
		if err := m.in.removeOldAutomaticSets(m.report.Name, m.to, m.options.KeepAutomatic); err != nil {
			m.in.c.Log.Warn("old automatic backup sets were not removed", "cluster", m.report.Name, "error", err)
		}
	}
	i, err := infoOf(m.to, set, len(m.keys) > 0)
	if err == nil {
		i.SignedBy, i.NewKey = m.signer.PublicKey().String(), m.newKey
	}
	return i, err
}

// snapshotDir returns the directory for the snapshot until it is in the set: the directory of
// the set or, for an encrypted set, the backup directory of this machine. Others may be
// able to read the directory of an encrypted set, but must not see its content.
func (m *snapshotting) snapshotDir() (string, error) {
	if len(m.keys) == 0 {
		return filepath.Dir(m.to), nil
	}
	return m.in.c.Records.Backups().MakeDir(m.report.Name)
}

// checkRoom returns an error if the disks lack space for the snapshot in a directory or for
// the set.
func (m *snapshotting) checkRoom(dir string, snapshot int64) error {
	to, need := filepath.Dir(m.to), snapshot+spareHere
	if transfer.SameDisk(dir, to) {
		need += snapshot
	} else if err := transfer.CheckRoom(dir, need); err != nil {
		return diag.Refuse(idBackupRoom, err.Error(), "free disk space there: the snapshot is stored there before it is encrypted")
	}
	if err := transfer.CheckRoom(to, need); err != nil {
		return diag.Refuse(idBackupRoom, err.Error(), "free disk space, or set --out to a file on another disk")
	}
	return nil
}

// findSource returns the member for the snapshot, its host, and the snapshot if it already
// exists.
func (m *snapshotting) findSource(ctx context.Context) (inspect.EtcdMember, *inspect.Host, *op.EtcdSnapshotInfo, error) {
	if m.options.Of == "" {
		member, host, err := m.chooseMember()
		return member, host, nil, err
	}
	kept, host, err := m.fromHost(ctx, m.options.Of)
	if err != nil {
		return inspect.EtcdMember{}, nil, nil, err
	}
	m.taken = kept.Taken
	m.to, err = m.setPath(m.report.Name, m.options, len(m.keys) > 0) // named by the time of the snapshot
	return inspect.EtcdMember{Name: host.Spec.Name, Version: kept.Etcd, DBBytes: kept.Bytes}, host, &kept.EtcdSnapshotInfo, err
}

// passing is the name pattern of temporary directories for a snapshot or a copy.
const passing = ".slipway-snapshot-*"

// removeTemporaryFiles removes temporary files of interrupted runs from the directories of the snapshot
// and of the set. They may belong to another user: files that cannot be removed do not
// prevent a new set.
func (m *snapshotting) removeTemporaryFiles(dir string) {
	to := filepath.Dir(m.to)
	if err := errors.Join(sweepOld(dir, passing), sweepOld(to, passing), sweepOld(to, backup.Parts)); err != nil {
		m.in.c.Log.Warn("temporary files of an interrupted backup cannot be removed", "error", err)
	}
}

// sweepOld removes files of killed processes that are older than a day.
func sweepOld(dir, pattern string) error {
	left, err := filepath.Glob(filepath.Join(dir, pattern))
	for _, path := range left {
		if info, serr := os.Lstat(path); serr == nil && time.Since(info.ModTime()) > 24*time.Hour {
			err = errors.Join(err, safefile.RemoveAll(path))
		}
	}
	return err
}

// spareHere is the space that a backup leaves free on this machine's disk, in bytes.
const spareHere = 64 << 20

// chooseMember returns the member for the snapshot and its host: a healthy member, preferably
// one that is not far behind and not the leader.
func (m *snapshotting) chooseMember() (inspect.EtcdMember, *inspect.Host, error) {
	type candidate struct {
		inspect.EtcdMember
		host *inspect.Host
	}
	var all []candidate
	for _, member := range m.report.Etcd.Members {
		for _, h := range m.session.Hosts {
			if isUsable(member) && h.Conn != nil && h.Err == nil && inspect.IsMemberOf(member, h.Spec) {
				all = append(all, candidate{member, h})
			}
		}
	}
	if len(all) == 0 {
		hint := "check etcd: slipway etcd health " + m.report.Name
		return inspect.EtcdMember{}, nil, diag.Refuse(idEtcdUnhealthy, "no reachable host has a healthy etcd member: "+m.report.Summary, hint)
	}
	best := slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(rankMember(a.EtcdMember)-rankMember(b.EtcdMember), cmp.Compare(a.Behind, b.Behind))
	})
	return best.EtcdMember, best.host, nil
}

// rankMember sorts members: first up-to-date followers, then an up-to-date leader, then members
// that are far behind.
func rankMember(m inspect.EtcdMember) int {
	switch {
	case m.Behind > inspect.MaxBehind:
		return 2
	case m.Leader:
		return 1
	}
	return 0
}

// isUsable reports whether a member's data can be used for a snapshot. A full database is
// not a problem.
func isUsable(m inspect.EtcdMember) bool {
	return m.Answers && !m.Learner && m.HasLeader() && len(m.Errors) == 0 && !slices.Contains(m.Alarms, "CORRUPT")
}

// takeSnapshot takes the snapshot on the member's host, unless it already exists, and copies it
// to this machine.
func (m *snapshotting) takeSnapshot(
	ctx context.Context, host *inspect.Host, kept *op.EtcdSnapshotInfo, to string,
) (*backup.Snapshot, error) {
	if kept != nil {
		return m.fetchSnapshot(ctx, host, *kept, to)
	}
	client := module.EtcdClient()
	client.Endpoints = []string{m.session.Env.LocalMemberURL()}
	o := op.EtcdSnapshot{
		EtcdClient: client, Utility: module.Etcdutl,
		Name: m.report.Name + "-" + m.taken.UTC().Format("20060102-150405") + ".db",
	}
	event.SendNote(m.progress, host.Spec.Name, "taking a snapshot")
	defer func() {
		gone := o
		gone.Gone = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if _, err := m.apply(ctx, host, gone); err != nil {
			m.in.c.Log.Warn("the snapshot remains on the host until the next one is taken there", "host", host.Spec.Name, "error", err)
		}
	}()
	limited, cancel := context.WithTimeoutCause(ctx, snapshotTime, hostconn.Unresponsive(host.Spec.Name, snapshotTime))
	defer cancel()
	taken, err := m.apply(limited, host, o)
	if err != nil {
		return nil, hostconn.TimeoutCause(limited, err)
	}
	var there op.EtcdSnapshotInfo
	if err := json.Unmarshal(taken, &there); err != nil {
		return nil, fmt.Errorf("reading the snapshot result of %s: %w", host.Spec.Name, err)
	}
	return m.fetchSnapshot(ctx, host, there, to)
}

// fetchSnapshot copies a snapshot to this machine and verifies that it is the one that was taken.
func (m *snapshotting) fetchSnapshot(
	ctx context.Context, host *inspect.Host, there op.EtcdSnapshotInfo, to string,
) (*backup.Snapshot, error) {
	event.SendNote(m.progress, host.Spec.Name, "fetching the snapshot")
	if err := m.copyFrom(ctx, host, there.Path, to, there.Bytes); err != nil {
		return nil, err
	}
	here, err := verify.Snapshot(to)
	if err != nil {
		return nil, unusable(err)
	}
	if here.SHA256 != there.SHA256 || here.Hash != there.Hash || here.Revision != there.Revision {
		return nil, diag.Refuse(string(backup.Damaged),
			fmt.Sprintf("the received snapshot differs from the one that %s took: revision %d and hash %08x, not %d and %08x",
				host.Spec.Name, here.Revision, here.Hash, there.Revision, there.Hash),
			"take another snapshot")
	}
	here.Version = there.Version
	return &here, nil
}

// copyFrom copies a file of an expected size from a host. It stops if a stalled file
// system delivers no data.
func (m *snapshotting) copyFrom(ctx context.Context, host *inspect.Host, from, to string, bytes int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := m.in.StallTime
	silence := time.AfterFunc(limit, func() {
		cancel(diag.Refuse(idBackupFailed, fmt.Sprintf("%s: no data of %s was received for %s", host.Spec.Name, from, limit),
			"check whether the file system there is stalled: slipway ssh "+host.Spec.Name))
	})
	defer silence.Stop()
	tell := m.reportBytes(host.Spec.Name)
	heard := func(t hostexec.Target, p transfer.Progress) {
		silence.Reset(limit)
		tell(t, p)
	}
	target := hostexec.Target{Cluster: m.report.Name, Host: hostconn.WithSSH(m.session.Env.Cluster, host.Spec)}
	work := hostexec.Work{Targets: []hostexec.Target{target}, Root: true}
	results, err := m.in.c.Executor.Copy(ctx, work, hostexec.Copy{Here: to, There: from, Fetch: true, Most: bytes, Progress: heard})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case results[0].Error != nil:
		return diag.Refuse(cmp.Or(results[0].Error.ID, idBackupFailed),
			host.Spec.Name+": fetching the snapshot: "+results[0].Error.Message, results[0].Error.Hint)
	}
	return nil
}

// reportBytes reports the progress of fetching the snapshot.
func (m *snapshotting) reportBytes(host string) func(hostexec.Target, transfer.Progress) {
	return func(_ hostexec.Target, p transfer.Progress) {
		if m.progress != nil {
			m.progress.Emit(event.Event{Type: event.StepProgress, Host: host, Message: "fetching the snapshot", Done: p.Done, Total: p.Total})
		}
	}
}

// apply applies one operation on a host and returns its output.
func (m *snapshotting) apply(ctx context.Context, host *inspect.Host, o op.Op) ([]byte, error) {
	results, err := host.Conn.Apply(ctx, remote.Batch{
		Operation: "etcd-snapshot-" + m.taken.UTC().Format("20060102-150405"), Step: "etcd.snapshot", Cluster: m.report.Name, Ops: op.List{o},
	}, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if r.Error != nil {
			return nil, diag.Refuse(idBackupFailed, host.Spec.Name+": "+r.Error.Message, m.remedyOf(r.Error, host.Spec.Name))
		}
	}
	return results[0].Output, nil
}

func (m *snapshotting) remedyOf(e *op.Error, host string) string {
	if e.Reason == "DiskFull" {
		return "free disk space below " + op.EtcdSnapshots + " on " + host
	}
	return "check etcd: slipway etcd health " + m.report.Name
}

// unusable converts the error of a set that cannot be used into a diag.List with a hint.
func unusable(err error) error {
	var e *backup.Error
	if !errors.As(err, &e) {
		return err
	}
	hint := map[backup.Reason]string{
		backup.Damaged:   "use another set: slipway etcd snapshots",
		backup.Encrypted: "use the key file that age-keygen wrote: --identity FILE",
		backup.Unknown:   "use a file that 'slipway etcd snapshot' has written",
		backup.Exists:    "set --out to another file; a backup is never overwritten",
	}[e.Reason]
	return diag.Refuse(string(e.Reason), e.Message, hint)
}
