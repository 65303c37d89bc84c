package backups

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/verify"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/pki"
)

// An OpenedSet is a backup set that was read completely and is to be restored. A nil
// *OpenedSet means that there is nothing to restore; its methods can be called.
type OpenedSet struct {
	// Set is its description.
	Set *backup.Set
	// Verified reports whether a trusted key has signed the set.
	Verified bool
	// Source is the data for the hosts.
	Source etcdbackup.Source
	// snapshot is an unlinked file: nothing of it remains, however this process ends.
	snapshot *os.File
	told     diag.List
	earlier  BegunRestore
}

// A BegunRestore identifies the backup with which an interrupted restore began. The zero
// value is a restore that has not begun.
type BegunRestore struct {
	// Key is the key of the restore: see OpenedSet.Key.
	Key string
	// Verified reports whether a trusted key had signed the backup.
	Verified bool
}

// A Selection names a backup set to open.
type Selection struct {
	// File is the file of the set. Identity is the file of the key that decrypts it, "" if
	// it is not encrypted.
	File, Identity string
	SetTrust
	// Before is the number of restores and rescues of the cluster that began earlier.
	Before int
	// Earlier identifies the backup with which an interrupted restore began.
	Earlier BegunRestore
}

// findIdentity returns the absolute path of the file of a key, "" for none. A user of an API can name a file of the
// Cluster object only.
func (b *Backups) findIdentity(name string) (string, error) {
	switch {
	case name == "":
		return "", nil
	case b.c.FilesDir == "":
		return filepath.Abs(name)
	case !filepath.IsLocal(name):
		return "", diag.Refuse(string(backup.Encrypted), name+" is not a file of the Cluster",
			"add a Secret with the key to spec.filesFrom of the Cluster, and set identity to the name of its file")
	}
	return filepath.Join(b.c.FilesDir, name), nil
}

// findSet returns the absolute path of the file of a set. A user of an API can name a set in the default directory only.
func (b *Backups) findSet(cluster, name string) (string, error) {
	if b.c.FilesDir == "" {
		return filepath.Abs(name)
	}
	file, err := b.findFile(cluster, name)
	if err != nil || file != "" {
		return file, err
	}
	message := "the management plane has no backup set " + name + " of cluster " + cluster
	if name == "" {
		message = "the operation names no backup set"
	}
	return "", diag.Refuse(string(backup.Unknown), message,
		"set spec.parameters.backup to the name of a set: status.backup.name of an operation of kind etcd-snapshot")
}

// Open reads a backup set and refuses it if the cluster cannot be restored from it. On the command line, it makes the
// paths in the selection absolute.
func (b *Backups) Open(ctx context.Context, selected *Selection, env module.Env) (*OpenedSet, error) {
	found := *selected
	var err error
	if found.Identity, err = b.findIdentity(found.Identity); err != nil {
		return nil, err
	}
	if found.File, err = b.findSet(env.Cluster.Name, found.File); err != nil {
		return nil, err
	}
	if b.c.FilesDir == "" {
		*selected = found
	}
	return b.openFile(ctx, &found, env)
}

// openFile opens the set of a selection with absolute paths.
func (b *Backups) openFile(ctx context.Context, r *Selection, env module.Env) (_ *OpenedSet, err error) {
	var ids []age.Identity
	if r.Identity != "" {
		if ids, err = backup.ReadIdentities(r.Identity); err != nil {
			return nil, diag.Refuse(string(backup.Encrypted), err.Error(), "use the key file that age-keygen wrote: --identity FILE")
		}
	}
	info, err := os.Stat(r.File)
	if err != nil || !info.Mode().IsRegular() {
		return nil, diag.Refuse(string(backup.Unknown), describeUnreadable(r.File, err),
			"list the backup sets on this machine: slipway etcd snapshots "+env.Cluster.Name)
	}
	if err := transfer.CheckRoom(b.c.Files.TempDir(), info.Size()+spareHere); err != nil {
		return nil, diag.Refuse(idBackupRoom, err.Error(), "free disk space there: the set is unpacked before it is sent to hosts")
	}
	u := &OpenedSet{Source: etcdbackup.Source{Before: r.Before}, earlier: r.Earlier}
	if err := b.readSet(ctx, u, r, env, ids); err != nil {
		return nil, errors.Join(inFile(err, r.File), u.Close())
	}
	return u, nil
}

// describeUnreadable describes why a file is not a backup set. The error is of os.Stat, nil
// for a file that is not regular.
func describeUnreadable(file string, err error) string {
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the backup set " + file + " does not exist"
	case errors.As(err, &at):
		return "the backup set " + file + " cannot be read: " + at.Err.Error()
	case err != nil:
		return "the backup set " + file + " cannot be read: " + err.Error()
	}
	return file + " is not a regular file, so it is not a backup set"
}

// inFile sets the file in the diagnostics about a set.
func inFile(err error, file string) error {
	var list diag.List
	if errors.As(err, &list) {
		for i := range list {
			list[i].File = cmp.Or(list[i].File, file)
		}
	}
	return err
}

// readSet reads and checks the set.
func (b *Backups) readSet(ctx context.Context, u *OpenedSet, r *Selection, env module.Env, ids []age.Identity) (err error) {
	if err := sweepOld(b.c.Files.TempDir(), ".restore-*"); err != nil {
		return err
	}
	if u.snapshot, err = os.CreateTemp(b.c.Files.TempDir(), ".restore-*"); err != nil { // 0600
		return err
	}
	if err := os.Remove(u.snapshot.Name()); err != nil { // unlink it before it has content
		return err
	}
	admin, err := b.c.Access.SavedKubeconfig(ctx, env.Cluster.Name)
	if err != nil {
		return err
	}
	keys, err := b.c.Keys.Trusted(ctx, env.Cluster.Name, r.SetTrust)
	if err != nil {
		return err
	}
	set, small, err := backup.Read(r.File, ids, u.snapshot, func(set *backup.Set) error { return u.checkHeader(set, r, env, admin, keys) })
	is := backup.Snapshot{}
	if err == nil {
		is, err = verify.OpenedSnapshot(u.snapshot)
	}
	if err != nil {
		return unusable(err)
	}
	set.Snapshot.Keys = is.Keys // older sets have etcdutl's count, which differs
	if is.Hash != set.Snapshot.Hash || is.Revision != set.Snapshot.Revision {
		return diag.Refuse(string(backup.Damaged), "the snapshot in the set does not match the set's description of it",
			"use another set: slipway etcd snapshots")
	}
	before := u.Source.Before
	if u.earlier.Key == restoreKey(set, env, 0) { // begun by a version that did not count
		before = 0
	}
	u.Source = etcdbackup.Source{
		Before: before, Key: restoreKey(set, env, before), Snapshot: op.Blob{Digest: "sha256:" + is.SHA256, Size: is.Bytes},
		Revision: is.Revision, Kubeconfig: admin, Files: map[string][]byte{},
		Unverified: !u.Verified && !r.WithKeys,
	}
	for _, c := range small {
		if at, ok := strings.CutPrefix(c.Name, backup.FileDir); ok {
			u.Source.Files[at] = c.Data
		}
	}
	if _, ok := u.Source.Files[module.EncryptionFile]; ok && env.Cluster.Spec.Kubernetes.Encryption == nil {
		return diag.Refuse(idBackupEncryption,
			"Secrets in the set are encrypted, but the cluster's API servers have no encryption configuration and could not read them",
			"switch encryption on first: write kubernetes.encryption into the cluster file, and run: slipway apply -f FILE")
	}
	if u.earlier.Key != "" && u.earlier.Key != u.Source.Key {
		return diag.Refuse(idBackupChanged, "the backup "+r.File+" or the list of etcd hosts has changed since this restore began",
			"restore the original file, or, if a host was removed since then, start a new restore: slipway etcd restore "+
				env.Cluster.Name+" --from FILE")
	}
	return nil
}

// checkHeader checks the header of a set before the rest is read, and refuses an unsuitable set.
func (u *OpenedSet) checkHeader(set *backup.Set, r *Selection, env module.Env, admin []byte, keys []backup.PublicKey) error {
	u.Set, u.Verified = set, verified(set, keys)
	if set.KeysOnly() {
		return diag.Refuse(idBackupNoData, "the set has the keys of cluster "+set.Cluster+" but no data: its etcd was external",
			"use a set that has data: slipway etcd snapshots "+env.Cluster.Name)
	}
	if err := u.refuseUnfit(env, admin); err != nil {
		return err
	}
	if !u.Verified && !r.Unverified && !u.begunUnsigned(set, r) {
		return unverified(set, env.Cluster.Name)
	}
	u.told = append(u.told, doubts(set, filepath.Base(r.File), u.Verified, r.SetTrust)...)
	return nil
}

// begunUnsigned reports whether a restore that continues was begun with this set by a
// program that did not sign sets. Later programs record whether the set was verified.
// That the snapshot is the one that it began with is compared afterwards.
func (u *OpenedSet) begunUnsigned(set *backup.Set, r *Selection) bool {
	return u.earlier.Key != "" && !u.earlier.Verified && r.SignedBy == "" && set.Signature == nil
}

// restoreKey returns the key of a restore. It depends on the snapshot, the etcd members
// and the number of earlier restores: data that was prepared for one key cannot be used
// for another.
func restoreKey(set *backup.Set, env module.Env, before int) string {
	text := set.Snapshot.SHA256
	if before > 0 {
		text += fmt.Sprintf(" %d", before)
	}
	for _, h := range env.EtcdMembers(env.Cluster) {
		text += " " + h.Name
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// refuseUnfit refuses a set of another cluster, and a set that the cluster's etcd or
// Kubernetes version cannot read.
func (u *OpenedSet) refuseUnfit(env module.Env, admin []byte) error {
	name := env.Cluster.Name
	if u.Set.Cluster != name {
		return diag.Refuse(idBackupOther, fmt.Sprintf("the set is from cluster %s, not from %s", u.Set.Cluster, name),
			"use a set of this cluster: slipway etcd snapshots "+name)
	}
	if !slices.Contains(CAIDs(admin), u.Set.Authority) {
		return diag.Refuse(idBackupOther, "the set is from another cluster with the name "+name+": its CA certificate differs",
			"use a set of this cluster: slipway etcd snapshots "+name)
	}
	etcd := cmp.Or(u.Set.Snapshot.Version, u.Set.Etcd)
	if newer(etcd, env.Release.Etcd) {
		return diag.Refuse(idBackupVersion,
			fmt.Sprintf("the snapshot is from etcd %s, but the cluster has etcd %s, which cannot read it", etcd, env.Release.Etcd),
			"name an older set: slipway etcd snapshots "+name)
	}
	if is := env.Cluster.Spec.Kubernetes.Version; newer(u.Set.Kubernetes, is) {
		return diag.Refuse(idBackupVersion,
			fmt.Sprintf("the set is from Kubernetes %s, but the cluster has %s, which may not know all objects in it",
				u.Set.Kubernetes, is), "name an older set: slipway etcd snapshots "+name)
	} else if newer(is, u.Set.Kubernetes) {
		u.told = append(u.told, diag.Diagnostic{
			ID: idBackupVersion, Severity: diag.Warning,
			Message: fmt.Sprintf("the set is from Kubernetes %s, but the cluster has %s: the restored data is from before the upgrade",
				u.Set.Kubernetes, is),
			Hint: "update the restored add-ons after the restore: slipway apply " + name,
		})
	}
	return nil
}

// newer reports whether version a has a later minor than version b. It returns false
// if one of them is not a version.
func newer(a, b string) bool {
	x, err1 := semver.NewVersion(a)
	y, err2 := semver.NewVersion(b)
	return err1 == nil && err2 == nil && (x.Major() > y.Major() || x.Major() == y.Major() && x.Minor() > y.Minor())
}

// CAIDs returns the ids of the cluster's CAs in a kubeconfig, in the form that
// backup sets use. There are two during a CA rotation, in an order that varies by host.
func CAIDs(admin []byte) (ids []string) {
	var conf struct {
		Clusters []struct {
			Cluster struct {
				Authority string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if yaml.Unmarshal(admin, &conf) != nil || len(conf.Clusters) == 0 {
		return nil
	}
	text, err := base64.StdEncoding.DecodeString(conf.Clusters[0].Cluster.Authority)
	if err != nil {
		return nil
	}
	list, err := pki.ParseAuthorities(text)
	if err != nil {
		sum := sha256.Sum256(text)
		return []string{hex.EncodeToString(sum[:])}
	}
	for _, a := range list {
		ids = append(ids, a.ID)
	}
	return ids
}

// Close closes the set.
func (u *OpenedSet) Close() error {
	if u == nil || u.snapshot == nil {
		return nil
	}
	f := u.snapshot
	u.snapshot = nil
	return f.Close()
}

// IsVerified reports whether a trusted key has signed the set.
func (u *OpenedSet) IsVerified() bool { return u != nil && u.Verified }

// Key returns the key of the restore. It depends on the snapshot, the etcd members and the
// number of earlier restores.
func (u *OpenedSet) Key() string {
	if u == nil {
		return ""
	}
	return u.Source.Key
}

// HasBlob reports whether the digest is the snapshot's.
func (u *OpenedSet) HasBlob(digest string) bool {
	return u != nil && digest == u.Source.Snapshot.Digest
}

// OpenBlob returns a reader of the snapshot. It returns an error for other blobs.
func (u *OpenedSet) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	if !u.HasBlob(digest) {
		return nil, fmt.Errorf("the backup set has no blob %s", digest)
	}
	return io.NopCloser(io.NewSectionReader(u.snapshot, offset, u.Source.Snapshot.Size-offset)), nil
}

// MarkPaths returns the files to look for on hosts, which may have lost them.
func (u *OpenedSet) MarkPaths(c *v1alpha1.Cluster) []string {
	if u == nil {
		return nil
	}
	return u.Source.MarkPaths(c)
}

// Warnings returns the warnings about the set.
func (u *OpenedSet) Warnings() diag.List {
	if u == nil {
		return nil
	}
	return u.told
}

// Losses describes, for users, the data that a restore loses.
func (u *OpenedSet) Losses(cluster string) []string {
	if u == nil {
		return nil
	}
	is := "verified"
	if !u.Verified {
		is = "NOT VERIFIED"
	}
	return []string{fmt.Sprintf("everything written to cluster %s since %s (snapshot of %s, revision %d, %s); the "+
		"current data is moved aside and kept on the hosts",
		cluster, u.Set.Taken.UTC().Format("2006-01-02 15:04:05 MST"), cmp.Or(u.Set.Member, "an unnamed member"), u.Set.Snapshot.Revision, is)}
}
