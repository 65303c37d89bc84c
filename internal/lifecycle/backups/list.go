package backups

import (
	"cmp"
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/node/op"
)

// Snapshots returns the backup sets in the default directory of this machine, newest
// first, including sets of clusters that were removed from the saved state. An empty name
// selects all clusters. It returns ErrNotFound for a cluster
// that is not saved and has no sets.
func (b *Backups) Snapshots(ctx context.Context, name string) ([]SnapshotInfo, error) {
	sets, err := b.setsOf(ctx, name)
	if err == nil && name != "" && len(sets) == 0 {
		_, err = b.c.Clusters.Cluster(ctx, name)
	}
	return sets, err
}

func (b *Backups) setsOf(ctx context.Context, name string) ([]SnapshotInfo, error) {
	clusters := []string{name}
	if name == "" {
		var err error
		if clusters, err = b.c.Records.Backups().ListClusters(ctx); err != nil {
			return nil, err
		}
	}
	out := []SnapshotInfo{}
	for _, c := range clusters {
		keys, err := b.c.Keys.Trusted(ctx, c, SetTrust{})
		if err != nil {
			return nil, err
		}
		files, err := b.listFiles(c)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			out = append(out, listed(f.path, keys))
		}
	}
	slices.SortStableFunc(out, func(a, b SnapshotInfo) int { return b.Taken.Compare(a.Taken) })
	return out, nil
}

// listed describes a set from its header, or an encrypted set from its name. An incomplete
// set has a problem.
func listed(file string, keys []backup.PublicKey) SnapshotInfo {
	cluster, taken, encrypted, _ := backup.ParseFileName(filepath.Base(file))
	i := SnapshotInfo{Cluster: cluster, File: file, Taken: taken, Encrypted: encrypted}
	info, err := os.Stat(file)
	if err == nil {
		i.Bytes = info.Size()
	}
	var set *backup.Set
	if err == nil {
		set, err = backup.Inspect(file)
	}
	if err != nil {
		i.Problem = &diag.Diagnostic{
			ID: string(backup.Damaged), Severity: diag.Error, File: file,
			Message: "the backup set cannot be restored: " + err.Error(), Hint: "use another set",
		}
	}
	i.Encrypted = encrypted || err == nil && set == nil
	if set != nil {
		i.describeSet(set)
		i.Verified = verified(set, keys)
	}
	return i
}

// infoOf describes a set that was just made.
func infoOf(file string, set *backup.Set, encrypted bool) (*SnapshotInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	i := &SnapshotInfo{Cluster: set.Cluster, File: file, Bytes: info.Size(), Encrypted: encrypted, Verified: set.Signature != nil}
	i.describeSet(set)
	return i, nil
}

// describeSet adds the data of a set's header.
func (i *SnapshotInfo) describeSet(set *backup.Set) {
	i.Taken, i.Kubernetes, i.Etcd, i.Member, i.KeysOnly = set.Taken, set.Kubernetes, set.Etcd, set.Member, set.KeysOnly()
	if !i.KeysOnly {
		i.Snapshot = &set.Snapshot
	}
	for _, f := range set.Files {
		if at, ok := strings.CutPrefix(f.Name, backup.FileDir); ok {
			i.Files = append(i.Files, at)
		}
	}
}

// fromHost returns an automatic snapshot of a host: HOST selects its newest one,
// HOST/FILE a certain one.
func (m *snapshotting) fromHost(ctx context.Context, of string) (k op.KeptSnapshot, _ *inspect.Host, err error) {
	host, file, _ := strings.Cut(of, "/")
	see := "list the snapshots: slipway etcd snapshots " + m.report.Name + " --hosts"
	i := slices.IndexFunc(m.session.Hosts, func(h *inspect.Host) bool { return h.Spec.Name == host && m.session.CanQueryEtcd(h.Spec) })
	if i < 0 {
		return k, nil, diag.Refuse(idBackupNotThere, "the cluster has no host "+host+" with an etcd member", see)
	}
	h := m.session.Hosts[i]
	if h.Conn == nil || h.Err != nil {
		d := hostconn.Diagnose(cmp.Or(h.Err, inspect.ErrNoTime))
		return k, nil, diag.Refuse(idBackupNotThere, host+" cannot be queried: "+d.Message,
			cmp.Or(d.Hint, "make the host reachable")+", or use a snapshot of another host: slipway etcd snapshots "+m.report.Name+" --hosts")
	}
	var is inspect.ScheduledHost
	if err := is.Read(ctx, h); err != nil {
		return k, nil, err
	}
	if is.AutoSnapshotOutcome != nil {
		for _, k := range is.Kept {
			if file == "" || path.Base(k.Path) == file {
				return k, h, nil
			}
		}
	}
	missing := "host " + host + " has no scheduled snapshot"
	if file != "" {
		missing += " named " + file
	}
	return k, nil, diag.Refuse(idBackupNotThere, missing, see)
}
