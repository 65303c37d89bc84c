package backups

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/safefile"
)

// DrillOptions configure the restore test of a backup set.
type DrillOptions struct {
	// From is the file of the set, "" for the newest set in the default directory.
	// Identity is the file of the key that decrypts it.
	From, Identity string
	SetTrust
	// OrNew tests a new snapshot if From is "" and the default directory has no set. New always does so. Such a
	// snapshot is removed after the test.
	OrNew, New bool
}

// DrillReport is the result of a restore test.
type DrillReport struct {
	Cluster string `json:"cluster"`
	// File is the file of the set, "" for a new snapshot that was removed.
	File  string    `json:"file"`
	Taken time.Time `json:"taken"`
	// Member and Revision describe the snapshot in the set. Verified reports whether a
	// trusted key has signed the set.
	Member   string `json:"member"`
	Revision int64  `json:"revision"`
	Verified bool   `json:"verified"`
	// Warnings are findings against the set, although it was tested.
	Warnings diag.List `json:"warnings,omitempty"`
	// Host is the host of the test, Etcd the version of its etcd.
	Host string `json:"host"`
	Etcd string `json:"etcd"`
	// Good reports whether all checks passed.
	Good    bool         `json:"good"`
	Checks  []DrillCheck `json:"checks"`
	Seconds float64      `json:"seconds"`
}

// DrillCheck compares a value of the set's description with the restored data.
type DrillCheck struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
	Good bool   `json:"good"`
}

// Err returns the failed checks as an error, nil if all passed.
func (r *DrillReport) Err() error {
	var list diag.List
	for _, c := range r.Checks {
		if !c.Good {
			list = append(list, diag.Refuse(idDrillFailed,
				fmt.Sprintf("the restored data differ from the set: %s: %s, want %s", c.Name, c.Got, c.Want),
				"make another backup and test that one: slipway etcd snapshot "+r.Cluster)...)
		}
	}
	return list.Err()
}

// Result returns the result for the status of an operation. A nil *DrillReport has none.
func (r *DrillReport) Result() *v1alpha1.BackupResult {
	if r == nil {
		return nil
	}
	out := &v1alpha1.BackupResult{Taken: metav1.NewTime(r.Taken), Host: r.Host, Revision: r.Revision, Verdict: v1alpha1.RestoreTestPassed}
	if r.File != "" {
		out.Name = filepath.Base(r.File)
	}
	if !r.Good {
		out.Verdict = v1alpha1.RestoreTestFailed
	}
	return out
}

// drillTime limits a restore test on a host.
const drillTime = 20 * time.Minute

// Drill tests a backup set: it restores the set into a separate etcd on a host with an
// etcd member and compares the result with the set's description. It does not touch the
// cluster's etcd and leaves nothing on the host. progress may be nil.
func (b *Backups) Drill(ctx context.Context, name string, o DrillOptions, progress event.Sink) (_ *DrillReport, err error) {
	c, err := b.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.Spec.Etcd.External != nil {
		return nil, inspect.RefuseExternalEtcd(name, "a restore test")
	}
	begun := b.c.Now()
	env, err := b.c.Clusters.Environment(ctx, c)
	if err != nil {
		return nil, err
	}
	tested, err := b.selectForTest(ctx, name, o, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tested.remove()) }()
	event.SendNote(progress, "", "verifying the backup set")
	set, err := b.openFile(ctx, &tested.Selection, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	l := b.c.Inspector.NewSession(ctx, env)
	defer l.Close()
	l.Select(l.CanQueryEtcd)
	limited, cancel := context.WithTimeoutCause(ctx, b.c.Inspector.Limits.Total, inspect.ErrNoTime)
	defer cancel()
	report := l.ReportEtcd(limited, progress)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	host := drillHost(l, report)
	if host == nil {
		return nil, diag.Refuse(idDrillFailed,
			"no host of "+name+" with an etcd member is reachable, and the restore test needs one", "check etcd: slipway etcd health "+name)
	}
	is, err := b.drillOn(ctx, l, host, set, progress)
	if err != nil {
		return nil, err
	}
	out := &DrillReport{
		Cluster: name, File: tested.file, Taken: set.Set.Taken, Member: set.Set.Member, Revision: set.Set.Snapshot.Revision,
		Verified: set.Verified, Warnings: set.Warnings(),
		Host: host.Spec.Name, Etcd: is.Version, Checks: set.checkRestored(is),
	}
	out.Good = !slices.ContainsFunc(out.Checks, func(c DrillCheck) bool { return !c.Good })
	out.Seconds = b.c.Now().Sub(begun).Seconds()
	return out, nil
}

// A testedSet is the set of a restore test.
type testedSet struct {
	Selection
	file   string       // for the report, "" for a new snapshot
	remove func() error // removes a new snapshot
}

// selectForTest selects the set for a restore test, or makes it.
func (b *Backups) selectForTest(ctx context.Context, name string, o DrillOptions, progress event.Sink) (out testedSet, err error) {
	out.SetTrust, out.remove = o.SetTrust, func() error { return nil }
	if out.Identity, err = b.findIdentity(o.Identity); err != nil {
		return out, err
	}
	if o.From != "" {
		out.File, err = b.findSet(name, o.From)
		out.file = out.File
		return out, err
	}
	if !o.New {
		o.Identity = out.Identity
		out.File, err = b.newestSet(ctx, name, o, progress)
		out.file = out.File
		var none diag.List
		if !o.OrNew || !errors.As(err, &none) || none[0].ID != string(backup.Unknown) {
			return out, err
		}
	}
	if err := sweepOld(b.c.Files.TempDir(), passing); err != nil {
		return out, err
	}
	dir, err := safefile.MkdirTemp(b.c.Files.TempDir(), passing, 0o700)
	if err != nil {
		return out, err
	}
	out.remove = func() error { return safefile.RemoveAll(dir) }
	out.File, out.Identity = filepath.Join(dir, backup.FileName(name, b.c.Now(), false)), ""
	if _, err := b.Snapshot(ctx, name, SnapshotOptions{Out: out.File}, progress); err != nil {
		return out, errors.Join(err, out.remove())
	}
	return out, nil
}

// newestSet returns the file of a cluster's newest set that has data and may be used.
func (b *Backups) newestSet(ctx context.Context, name string, o DrillOptions, progress event.Sink) (string, error) {
	list, err := b.Snapshots(ctx, name)
	if err != nil {
		return "", err
	}
	keys, err := b.c.Keys.Trusted(ctx, name, o.SetTrust)
	if err != nil {
		return "", err
	}
	var ids []age.Identity
	if o.Identity != "" { // an unreadable file is reported when the set is opened
		ids, _ = backup.ReadIdentities(o.Identity)
	}
	return newestOf(list, name, ids, keys, o.SetTrust, progress)
}

// drillHost returns the host for a restore test: preferably one whose member does not
// lead, and of these the one with the most free disk space. It returns nil if no host
// is reachable.
func drillHost(l *inspect.Session, r *inspect.EtcdReport) *inspect.Host {
	all := slices.DeleteFunc(slices.Clone(l.Hosts), func(h *inspect.Host) bool { return h.Conn == nil || h.Err != nil })
	leads := func(h *inspect.Host) int {
		if slices.ContainsFunc(r.Etcd.Members, func(m inspect.EtcdMember) bool { return m.Leader && inspect.IsMemberOf(m, h.Spec) }) {
			return 1
		}
		return 0
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *inspect.Host) int {
		return cmp.Or(leads(a)-leads(b), cmp.Compare(inspect.NewEtcdHost(b).FreeBytes, inspect.NewEtcdHost(a).FreeBytes))
	})
}

// drillOn tests a set on a host.
func (b *Backups) drillOn(ctx context.Context, l *inspect.Session, h *inspect.Host, set *OpenedSet,
	progress event.Sink,
) (is op.EtcdRestoreTested, err error) {
	event.SendNote(progress, h.Spec.Name, "restoring the snapshot into a separate etcd")
	ctx, cancel := context.WithTimeoutCause(ctx, drillTime, hostconn.Unresponsive(h.Spec.Name, drillTime))
	defer cancel()
	opts := b.c.Dialer.QueryOptions()
	opts.Blobs = set
	conn, err := b.c.Dialer.Connect(ctx, hostconn.WithSSH(l.Env.Cluster, h.Spec), opts)
	if err != nil {
		return is, hostconn.TimeoutCause(ctx, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	at := "etcd-drill-" + b.c.Now().UTC().Format("20060102-150405")
	results, err := conn.Apply(ctx,
		remote.Batch{Operation: at, Step: "etcd.drill", Cluster: l.Env.Cluster.Name, Ops: op.List{op.EtcdRestoreTest{
			Name: at + "-" + set.Key(), Snapshot: set.Source.Snapshot, EtcdPrograms: module.EtcdPrograms(), Prefix: l.Env.StoragePrefix("secrets"),
		}}}, nil)
	if err != nil {
		return is, hostconn.TimeoutCause(ctx, err)
	}
	if e := results[0].Error; e != nil {
		hint := "make another backup and test that one: slipway etcd snapshot " + l.Env.Cluster.Name
		if e.Reason == "DiskFull" || e.Reason == op.ReasonScratchMemory {
			hint = "free disk space or memory on " + h.Spec.Name + ", or test when the host has less load"
		}
		return is, diag.Refuse(idDrillFailed, h.Spec.Name+": "+e.Message, hint)
	}
	if err := json.Unmarshal(results[0].Output, &is); err != nil {
		return is, fmt.Errorf("reading the restore test result of %s: %w", h.Spec.Name, err)
	}
	return is, nil
}

// checkRestored compares a set with the restored data.
func (u *OpenedSet) checkRestored(is op.EtcdRestoreTested) []DrillCheck {
	want := u.Set.Snapshot
	check := func(name, want, got string) DrillCheck { return DrillCheck{name, want, got, want == got} }
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []DrillCheck{
		check("integrity", fmt.Sprintf("hash %08x, %d bytes", want.Hash, want.Bytes),
			fmt.Sprintf("hash %08x, %d bytes", is.Snapshot.Hash, is.Snapshot.Bytes)),
		check("revision", number(want.Revision), number(is.Revision)),
		check("keys", strconv.Itoa(want.Keys), strconv.Itoa(is.Keys)),
		u.checkSecret(is),
	}
}

// checkSecret checks whether a Secret can be read, decrypted with the keys of the set.
func (u *OpenedSet) checkSecret(is op.EtcdRestoreTested) DrillCheck {
	c := DrillCheck{Name: "a Secret", Want: "can be read", Good: true}
	if is.Key == "" {
		c.Got = "there is none"
		return c
	}
	var conf *backup.Encryption
	for _, path := range slices.Sorted(maps.Keys(u.Source.Files)) {
		if e, err := backup.ReadEncryption(u.Source.Files[path]); err == nil && e != nil {
			conf = e
		}
	}
	how, err := conf.OpenSecret(is.Key, is.Value)
	if how != "" {
		c.Want = "can be decrypted"
	}
	name := filepath.Base(filepath.Dir(is.Key)) + "/" + filepath.Base(is.Key)
	switch {
	case errors.Is(err, backup.ErrOutside):
		c.Got = name + ": not tested, " + err.Error()
	case err != nil:
		c.Good, c.Got = false, name+": "+err.Error()
	default:
		c.Got = name + ": read"
		if how != "" {
			c.Got = name + ": decrypted (" + how + ")"
		}
	}
	return c
}
