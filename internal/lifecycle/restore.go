package lifecycle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/verify"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/pki"
)

// openedSet is a backup set that was read completely and is to be restored. A nil
// *openedSet means that there is nothing to restore; its methods can be called.
type openedSet struct {
	set *backup.Set
	// verified reports whether a trusted key has signed the set.
	verified bool
	// snapshot is an unlinked file: nothing of it remains, however this process ends.
	snapshot *os.File
	source   etcdbackup.Source
	told     diag.List
	earlier  begunRestore
}

// A RestoreEtcdRequest asks to restore the etcd data of a saved cluster from a backup set.
type RestoreEtcdRequest struct {
	Name string
	Options
	// Backup is the file of the set to restore. Identity is the file of the key that
	// decrypts it, "" if it is not encrypted.
	Backup   string
	Identity string
	// SetTrust selects the sets that may be restored.
	SetTrust
}

func (r RestoreEtcdRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

func (r RestoreEtcdRequest) behaviour() behaviour { return restoreEtcd(&r) }

// restoreEtcd restores the data of etcd from a backup set.
func restoreEtcd(r *RestoreEtcdRequest) behaviour {
	var set *openedSet
	var earlier begunRestore
	b := usual()
	b.wanted = savedOrFile
	b.begin = func(p *prepared) error { return mayMaintain(p.recorded, "a restore") }
	b.prepare = func(ctx context.Context, p *prepared, progress event.Sink) (err error) {
		set, err = r.openSet(ctx, p, earlier, progress)
		p.blobs.backup, p.marks = set, set.marks(p.env.Cluster)
		return err
	}
	b.warnings = func(*prepared) diag.List { return set.warnings() }
	b.pipeline = func(p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.RestoreEtcd(p.env, set.source), nil
	}
	b.needs = needsPart
	b.losses = func(p *prepared) []string { return set.losses(p.env.Cluster.Name) }
	b.summary = func(p *prepared, res *Result) []string { return p.restored(set.set, res) }
	b.save = func(_ *prepared, o *v1alpha1.OperationSpec) {
		o.Backup, o.Identity, o.SignedBy, o.Unverified, o.WithKeys = r.Backup, r.Identity, r.SignedBy, r.Unverified, r.WithKeys
		o.Verified, o.Restores = set.isVerified(), set.key()
	}
	b.resume = func(o *v1alpha1.OperationSpec) {
		r.Backup, r.Identity = o.Backup, o.Identity
		r.SetTrust = SetTrust{SignedBy: o.SignedBy, Unverified: o.Unverified, WithKeys: o.WithKeys}
		earlier = begunRestore{key: o.Restores, verified: o.Verified}
	}
	b.close = func() error { return set.close() }
	return b
}

// A begunRestore identifies the backup with which an interrupted restore began. The zero
// value is a restore that has not begun.
type begunRestore struct {
	key      string
	verified bool // whether a trusted key had signed it
}

// openSet opens the backup set of the request.
func (r *RestoreEtcdRequest) openSet(ctx context.Context, p *prepared, earlier begunRestore, progress event.Sink) (*openedSet, error) {
	note(progress, "", "verifying the backup set")
	if _, _, err := p.svc.CurrentKubeconfig(ctx, p.env); err != nil { // the API is queried with it at the end
		return nil, err
	}
	before, err := p.svc.renewedBefore(p.env.Cluster.Name, p.continues)
	if err != nil {
		return nil, err
	}
	return p.svc.unpack(r, p.env, before, earlier)
}

// unpack reads a backup set and refuses it if the cluster cannot be restored from it.
// It makes the paths in the request absolute.
func (s *Service) unpack(r *RestoreEtcdRequest, env module.Env, before int, earlier begunRestore) (_ *openedSet, err error) {
	var ids []age.Identity
	if r.Identity != "" {
		if r.Identity, err = filepath.Abs(r.Identity); err == nil {
			ids, err = backup.ReadIdentities(r.Identity)
		}
		if err != nil {
			return nil, refused(string(backup.Encrypted), err.Error(), "use the key file that age-keygen wrote: --identity FILE")
		}
	}
	if r.Backup, err = filepath.Abs(r.Backup); err != nil {
		return nil, err
	}
	info, err := os.Stat(r.Backup)
	if err != nil || !info.Mode().IsRegular() {
		return nil, refused(string(backup.Unknown), r.Backup+" is not a readable regular file",
			"list the backup sets on this machine: slipway etcd snapshots "+env.Cluster.Name)
	}
	if err := transfer.CheckRoom(s.Store.Home(), info.Size()+spareHere); err != nil {
		return nil, refused(idBackupRoom, err.Error(), "free disk space there: the set is unpacked before it is sent to hosts")
	}
	u := &openedSet{source: etcdbackup.Source{Before: before}, earlier: earlier}
	if err := s.fill(u, r, env, ids); err != nil {
		return nil, errors.Join(inFile(err, r.Backup), u.close())
	}
	return u, nil
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

// fill reads and checks the set.
func (s *Service) fill(u *openedSet, r *RestoreEtcdRequest, env module.Env, ids []age.Identity) (err error) {
	if err := sweepOld(s.Store.Home(), ".restore-*"); err != nil {
		return err
	}
	if u.snapshot, err = os.CreateTemp(s.Store.Home(), ".restore-*"); err != nil { // 0600
		return err
	}
	if err := os.Remove(u.snapshot.Name()); err != nil { // unlink it before it has content
		return err
	}
	admin, err := s.SavedKubeconfig(env.Cluster.Name)
	if err != nil {
		return err
	}
	keys, err := s.trusted(env.Cluster.Name, r.SetTrust)
	if err != nil {
		return err
	}
	set, small, err := backup.Read(r.Backup, ids, u.snapshot, func(set *backup.Set) error { return u.accept(set, r, env, admin, keys) })
	is := backup.Snapshot{}
	if err == nil {
		is, err = verify.OpenedSnapshot(u.snapshot)
	}
	if err != nil {
		return unusable(err)
	}
	set.Snapshot.Keys = is.Keys // older sets have etcdutl's count, which differs
	if is.Hash != set.Snapshot.Hash || is.Revision != set.Snapshot.Revision {
		return refused(string(backup.Damaged), "the snapshot in the set does not match the set's description of it",
			"use another set: slipway etcd snapshots")
	}
	before := u.source.Before
	if u.earlier.key == restoreKey(set, env, 0) { // begun by a version that did not count
		before = 0
	}
	u.source = etcdbackup.Source{
		Before: before, Key: restoreKey(set, env, before), Snapshot: op.Blob{Digest: "sha256:" + is.SHA256, Size: is.Bytes},
		Revision: is.Revision, Kubeconfig: admin, Files: map[string][]byte{},
		Unverified: !u.verified && !r.WithKeys,
	}
	for _, c := range small {
		if at, ok := strings.CutPrefix(c.Name, backup.FileDir); ok {
			u.source.Files[at] = c.Data
		}
	}
	if _, ok := u.source.Files[module.EncryptionFile]; ok && env.Cluster.Spec.Kubernetes.Encryption == nil {
		return refused(idBackupEncryption,
			"Secrets in the set are encrypted, but the cluster's API servers have no encryption configuration and could not read them",
			"switch encryption on first: write kubernetes.encryption into the cluster file, and run: slipway apply -f FILE")
	}
	if u.earlier.key != "" && u.earlier.key != u.source.Key {
		return refused(idBackupChanged, "the backup "+r.Backup+" or the list of etcd hosts has changed since this restore began",
			"restore the original file, or, if a host was removed since then, start a new restore: slipway etcd restore "+
				env.Cluster.Name+" --from FILE")
	}
	return nil
}

// accept checks the header of a set before the rest is read, and refuses an unsuitable set.
func (u *openedSet) accept(set *backup.Set, r *RestoreEtcdRequest, env module.Env, admin []byte, keys []backup.PublicKey) error {
	u.set, u.verified = set, verified(set, keys)
	if set.KeysOnly() {
		return refused(idBackupNoData, "the set has the keys of cluster "+set.Cluster+" but no data: its etcd was external",
			"use a set that has data: slipway etcd snapshots "+env.Cluster.Name)
	}
	if err := u.fits(env, admin); err != nil {
		return err
	}
	if !u.verified && !r.Unverified && !u.begunUnsigned(set, r) {
		return unverified(set, env.Cluster.Name)
	}
	u.told = append(u.told, doubts(set, filepath.Base(r.Backup), u.verified, r.SetTrust)...)
	return nil
}

// begunUnsigned reports whether a restore that continues was begun with this set by a
// program that did not sign sets. Later programs record whether the set was verified.
// That the snapshot is the one that it began with is compared afterwards.
func (u *openedSet) begunUnsigned(set *backup.Set, r *RestoreEtcdRequest) bool {
	return u.earlier.key != "" && !u.earlier.verified && r.SignedBy == "" && set.Signature == nil
}

// renewedBefore returns how many restores and rescues of a cluster of this name began
// before the operation that continues, if there is one.
func (s *Service) renewedBefore(name string, goesOn *v1alpha1.Operation) (n int, err error) {
	ops, err := s.Store.Operations().List(name)
	for _, o := range ops {
		if operation.Kind(o.Spec.Type).ReplacesEtcdData() && o.Status.StartTime != nil && (goesOn == nil || o.Name < goesOn.Name) {
			n++
		}
	}
	return n, err
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

// fits refuses a set of another cluster, and a set that the cluster's etcd or
// Kubernetes version cannot read.
func (u *openedSet) fits(env module.Env, admin []byte) error {
	name := env.Cluster.Name
	if u.set.Cluster != name {
		return refused(idBackupOther, fmt.Sprintf("the set is from cluster %s, not from %s", u.set.Cluster, name),
			"use a set of this cluster: slipway etcd snapshots "+name)
	}
	if !slices.Contains(authoritiesOf(admin), u.set.Authority) {
		return refused(idBackupOther, "the set is from another cluster with the name "+name+": its CA certificate differs",
			"use a set of this cluster: slipway etcd snapshots "+name)
	}
	etcd := cmp.Or(u.set.Snapshot.Version, u.set.Etcd)
	if newer(etcd, env.Release.Etcd) {
		return refused(idBackupVersion,
			fmt.Sprintf("the snapshot is from etcd %s, but the cluster has etcd %s, which cannot read it", etcd, env.Release.Etcd),
			"name an older set: slipway etcd snapshots "+name)
	}
	if is := env.Cluster.Spec.Kubernetes.Version; newer(u.set.Kubernetes, is) {
		return refused(idBackupVersion,
			fmt.Sprintf("the set is from Kubernetes %s, but the cluster has %s, which may not know all objects in it",
				u.set.Kubernetes, is), "name an older set: slipway etcd snapshots "+name)
	} else if newer(is, u.set.Kubernetes) {
		u.told = append(u.told, diag.Diagnostic{
			ID: idBackupVersion, Severity: diag.Warning,
			Message: fmt.Sprintf("the set is from Kubernetes %s, but the cluster has %s: the restored data is from before the upgrade",
				u.set.Kubernetes, is),
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

// authoritiesOf returns the ids of the cluster's CAs in a kubeconfig, in the form that
// backup sets use. There are two during a CA rotation, in an order that varies by host.
func authoritiesOf(admin []byte) (ids []string) {
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

func (u *openedSet) close() error {
	if u == nil || u.snapshot == nil {
		return nil
	}
	f := u.snapshot
	u.snapshot = nil
	return f.Close()
}

func (u *openedSet) isVerified() bool { return u != nil && u.verified }

func (u *openedSet) key() string {
	if u == nil {
		return ""
	}
	return u.source.Key
}

// open returns a reader of the snapshot, or nil if the digest is not the snapshot's.
func (u *openedSet) open(digest string, offset int64) io.ReadCloser {
	if u == nil || digest != u.source.Snapshot.Digest {
		return nil
	}
	return io.NopCloser(io.NewSectionReader(u.snapshot, offset, u.source.Snapshot.Size-offset))
}

// marks returns the files to look for on hosts, which may have lost them.
func (u *openedSet) marks(c *v1alpha1.Cluster) []string {
	if u == nil {
		return nil
	}
	return u.source.MarkPaths(c)
}

// warnings returns the warnings about the set.
func (u *openedSet) warnings() diag.List {
	if u == nil {
		return nil
	}
	return u.told
}

// losses describes, for users, the data that a restore loses.
func (u *openedSet) losses(cluster string) []string {
	if u == nil {
		return nil
	}
	is := "verified"
	if !u.verified {
		is = "NOT VERIFIED"
	}
	return []string{fmt.Sprintf("everything written to cluster %s since %s (snapshot of %s, revision %d, %s); the "+
		"current data is moved aside and kept on the hosts",
		cluster, u.set.Taken.UTC().Format("2006-01-02 15:04:05 MST"), cmp.Or(u.set.Member, "an unnamed member"), u.set.Snapshot.Revision, is)}
}

// restored describes the restored data and what remains to be done.
func (p *prepared) restored(set *backup.Set, res *Result) []string {
	return []string{
		fmt.Sprintf("etcd was restored to the data of %s: revision %d, %d keys, on %s",
			set.Taken.UTC().Format(time.DateTime+" MST"), set.Snapshot.Revision, set.Snapshot.Keys,
			count(len(p.env.EtcdMembers(p.env.Cluster)), "member")),
		"the previous data is kept on each of these hosts in " + facts.DirEtcd + "/before-" + res.Operation +
			": remove it when you no longer need it",
	}
}
