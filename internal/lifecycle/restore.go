package lifecycle

import (
	"cmp"
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
	"slipway.dev/slipway/internal/backup/inspect"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	recovery "slipway.dev/slipway/internal/module/backup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/pki"
)

// openedSet is a backup set that was read through, and is to be restored. The
// methods of nil are those of nothing to restore.
type openedSet struct {
	set *backup.Set
	// verified is that a trusted key has signed it.
	verified bool
	// snapshot has no name any more: whatever ends us, nothing is left of it.
	snapshot *os.File
	source   recovery.Source
	told     diag.List
}

// unpack reads a backup set, and refuses one that the cluster cannot be restored
// from. Paths in the request become absolute.
func (s *service) unpack(r *Request, env module.Env, before int) (_ *openedSet, err error) {
	var ids []age.Identity
	if r.Identity != "" {
		if r.Identity, err = filepath.Abs(r.Identity); err == nil {
			ids, err = backup.Identities(r.Identity)
		}
		if err != nil {
			return nil, refused(string(backup.Encrypted), err.Error(), "name the file with your key, as age-keygen wrote it: --identity FILE")
		}
	}
	if r.Backup, err = filepath.Abs(r.Backup); err != nil {
		return nil, err
	}
	info, err := os.Stat(r.Backup)
	if err != nil || !info.Mode().IsRegular() {
		return nil, refused(string(backup.Unknown), r.Backup+" is no file that can be read", "see those that are kept here: slipway etcd snapshots "+env.Cluster.Name)
	}
	if err := transfer.Room(s.Store.Home(), info.Size()+spareHere); err != nil {
		return nil, refused(idBackupRoom, err.Error(), "make room there: the set is unpacked before it goes to hosts")
	}
	u := &openedSet{source: recovery.Source{Before: before}}
	if err := s.fill(u, r, env, ids); err != nil {
		return nil, errors.Join(inFile(err, r.Backup), u.close())
	}
	return u, nil
}

// inFile has what is wrong with a set name its file.
func inFile(err error, file string) error {
	var list diag.List
	if errors.As(err, &list) {
		for i := range list {
			list[i].File = cmp.Or(list[i].File, file)
		}
	}
	return err
}

// fill reads the set.
func (s *service) fill(u *openedSet, r *Request, env module.Env, ids []age.Identity) (err error) {
	if err := sweepOld(s.Store.Home(), ".restore-*"); err != nil {
		return err
	}
	if u.snapshot, err = os.CreateTemp(s.Store.Home(), ".restore-*"); err != nil { // 0600
		return err
	}
	if err := os.Remove(u.snapshot.Name()); err != nil { // before anything is in it
		return err
	}
	admin, err := s.admin(env.Cluster.Name)
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
		is, err = inspect.Open(u.snapshot)
	}
	if err != nil {
		return unusable(err)
	}
	set.Snapshot.Keys = is.Keys // older sets have the count of etcdutl
	if is.Hash != set.Snapshot.Hash || is.Revision != set.Snapshot.Revision {
		return refused(string(backup.Damaged), "the snapshot in the set is not the one that it speaks of", "use another one: slipway etcd snapshots")
	}
	before := u.source.Before
	if r.restores == restoreKey(set, env, 0) { // begun by a program that did not count
		before = 0
	}
	u.source = recovery.Source{
		Before: before, Key: restoreKey(set, env, before), Snapshot: op.Blob{Digest: "sha256:" + is.SHA256, Size: is.Bytes}, Revision: is.Revision, Kubeconfig: admin, Files: map[string][]byte{},
		Unverified: !u.verified && !r.WithKeys,
	}
	for _, c := range small {
		if at, ok := strings.CutPrefix(c.Name, backup.FileDir); ok {
			u.source.Files[at] = c.Data
		}
	}
	if _, ok := u.source.Files[module.EncryptionFile]; ok && env.Cluster.Spec.Kubernetes.Encryption == nil {
		return refused(idBackupEncryption, "Secrets in the set are encrypted, and the cluster's API servers encrypt nothing: they could not read them",
			"switch encryption on first: write kubernetes.encryption into the cluster's file, and: slipway apply -f FILE; after the restore it can be switched off again")
	}
	if r.restores != "" && r.restores != u.source.Key {
		return refused(idBackupChanged, "this restore has begun with another backup than "+r.Backup+" is now, or for other hosts with etcd",
			"if the file is another one, put the first one back in its place, for some hosts may have its data; if a host was taken off since, begin anew: slipway etcd restore "+env.Cluster.Name+" --from FILE")
	}
	return nil
}

// accept refuses a set by its head, before anything else of it is read.
func (u *openedSet) accept(set *backup.Set, r *Request, env module.Env, admin []byte, keys []backup.PublicKey) error {
	u.set, u.verified = set, verified(set, keys)
	if set.KeysOnly() {
		return refused(idBackupNoData, "the set has the keys of cluster "+set.Cluster+", and no data: its etcd was others', who keep them",
			"have the owner of that etcd bring its data back; for a set with data: slipway etcd snapshots "+env.Cluster.Name)
	}
	if err := u.fits(env, admin); err != nil {
		return err
	}
	if !u.verified && !r.Unverified && !begunUnsigned(set, r) {
		return unverified(set, env.Cluster.Name)
	}
	u.told = append(u.told, doubts(set, filepath.Base(r.Backup), u.verified, r.SetTrust)...)
	return nil
}

// begunUnsigned reports whether a restore that continues was begun with this set by a
// program that did not sign sets. Later programs record whether the set was verified.
// That the snapshot is the one that it began with is compared afterwards.
func begunUnsigned(set *backup.Set, r *Request) bool {
	return r.restores != "" && !r.restoresVerified && r.SignedBy == "" && set.Signature == nil
}

// renewedBefore is how many times a cluster of this name was given other data, before
// the operation that goes on, if there is one.
func (s *service) renewedBefore(name string, goesOn *v1alpha1.Operation) (n int, err error) {
	ops, err := s.Store.Operations(name)
	for _, o := range ops {
		if renewsData(Kind(o.Spec.Type)) && o.Status.StartTime != nil && (goesOn == nil || o.Name < goesOn.Name) {
			n++
		}
	}
	return n, err
}

// restoreKey names a restore by the snapshot, the members that it is for, and how many
// there were before: what was made for one of these is of no use to another.
func restoreKey(set *backup.Set, env module.Env, before int) string {
	text := set.Snapshot.SHA256
	if before > 0 {
		text += fmt.Sprintf(" %d", before)
	}
	for _, h := range env.Members(env.Cluster) {
		text += " " + h.Name
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// fits refuses a set of another cluster, and one that the cluster's programs
// cannot read.
func (u *openedSet) fits(env module.Env, admin []byte) error {
	name := env.Cluster.Name
	if u.set.Cluster != name {
		return refused(idBackupOther, fmt.Sprintf("the set is of cluster %s, not of %s", u.set.Cluster, name), "name one of its own: slipway etcd snapshots "+name)
	}
	if !slices.Contains(authoritiesOf(admin), u.set.Authority) {
		return refused(idBackupOther, "the set is of another cluster that is called "+name+", too: the certificate of its authority is another",
			"name one of its own: slipway etcd snapshots "+name+"; one from before the cluster was made anew, or its authority exchanged, is none")
	}
	etcd := cmp.Or(u.set.Snapshot.Version, u.set.Etcd)
	if newer(etcd, env.Release.Etcd) {
		return refused(idBackupVersion, fmt.Sprintf("the snapshot is of etcd %s, and the cluster has %s, which cannot read it", etcd, env.Release.Etcd), "name an older one: slipway etcd snapshots "+name)
	}
	if is := env.Cluster.Spec.Kubernetes.Version; newer(u.set.Kubernetes, is) {
		return refused(idBackupVersion, fmt.Sprintf("the set was made with Kubernetes %s, and the cluster has %s, which may not know all that is in it", u.set.Kubernetes, is), "name an older one: slipway etcd snapshots "+name)
	} else if newer(is, u.set.Kubernetes) {
		u.told = append(u.told, diag.Diagnostic{
			ID: idBackupVersion, Severity: diag.Warning,
			Message: fmt.Sprintf("the set was made with Kubernetes %s, and the cluster has %s: what is restored is of before the upgrade", u.set.Kubernetes, is),
			Hint:    "apply the cluster's file afterwards: its add-ons are those of then: slipway apply " + name,
		})
	}
	return nil
}

// newer says that a version is of a later minor than another. What is no version
// is none.
func newer(a, b string) bool {
	x, err1 := semver.NewVersion(a)
	y, err2 := semver.NewVersion(b)
	return err1 == nil && err2 == nil && (x.Major() > y.Major() || x.Major() == y.Major() && x.Minor() > y.Minor())
}

// authoritiesOf are the cluster's authorities in a kubeconfig, as sets name them:
// two while one is exchanged for the other, when the hosts have either first.
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
	list, err := pki.Authorities(text)
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

// open is the snapshot, if it is what is asked for; nil if it is not.
func (u *openedSet) open(digest string, offset int64) io.ReadCloser {
	if u == nil || digest != u.source.Snapshot.Digest {
		return nil
	}
	return io.NopCloser(io.NewSectionReader(u.snapshot, offset, u.source.Snapshot.Size-offset))
}

// marks are the files that hosts are asked for, which they may have lost.
func (u *openedSet) marks(c *v1alpha1.Cluster) []string {
	if u == nil {
		return nil
	}
	return u.source.Marks(c)
}

// warnings are what is told of the set.
func (u *openedSet) warnings() diag.List {
	if u == nil {
		return nil
	}
	return u.told
}

// losses are what a restore takes away, for people.
func (u *openedSet) losses(cluster string) []string {
	if u == nil {
		return nil
	}
	is := "verified"
	if !u.verified {
		is = "NOT VERIFIED"
	}
	return []string{fmt.Sprintf("all that was written to cluster %s since %s (the snapshot of %s, revision %d, %s); the data of now are moved aside on the hosts, and stay there",
		cluster, u.set.Taken.UTC().Format("2006-01-02 15:04:05 MST"), cmp.Or(u.set.Member, "a member that is not named"), u.set.Snapshot.Revision, is)}
}

// restored says what has come back, and what stays to be done.
func (p *prepared) restored(res *Result) []string {
	set := p.backup.set
	return []string{
		fmt.Sprintf("etcd has the data of %s again: revision %d, %d keys, on %s", set.Taken.UTC().Format(time.DateTime+" MST"), set.Snapshot.Revision, set.Snapshot.Keys,
			count(len(p.env.Members(p.env.Cluster)), "member")),
		"the data of before are kept on each of these hosts, in " + facts.DirEtcd + "/before-" + res.Operation + ": remove them when you are sure",
	}
}
