package lifecycle

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
)

// backedUp returns a cluster of which a snapshot can be taken.
func backedUp(t *testing.T) (*world, *ensemble) {
	t.Helper()
	w, e := etcdWorld(t)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.Hosts[name]
		m.Snapshot = lifecycletest.NewEtcdSnapshot(t, 4711)
		for _, key := range append(etcdbackup.AuthorityKeys(), etcdbackup.EtcdKeys()...) {
			if !m.HasFile(key) {
				m.Files[key] = "shared " + key
			}
		}
	}
	return w, e
}

func (w *world) snapshot(o backups.SnapshotOptions) *backups.SnapshotInfo {
	w.t.Helper()
	i, err := w.impatient().Snapshot(w.t.Context(), "prod", o, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// A backup set has the database of a follower, the CA keys and the service account key;
// it leaves no other files and is not saved as an operation.
func TestSnapshot_ContainsDatabaseAndClusterKeys(t *testing.T) {
	t.Parallel()
	w, _ := backedUp(t)
	i := w.snapshot(backups.SnapshotOptions{})
	key, _, err := w.service().keys.LoadOrCreate(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if again := w.snapshot(backups.SnapshotOptions{Out: filepath.Join(t.TempDir(), "again.tar")}); !i.NewKey || again.NewKey ||
		i.SignedBy != key.PublicKey().String() || again.SignedBy != i.SignedBy {
		t.Errorf("want the key reported as new once: %q, %t; then %q, %t", i.SignedBy, i.NewKey, again.SignedBy, again.NewKey)
	}
	if i.Member == "cp1" || i.Member == "" || i.Snapshot.Revision != 4711 || i.Snapshot.Keys != 600 || i.Encrypted || i.Etcd != "3.7.0" {
		t.Errorf("%+v %+v, want the snapshot of a follower", i, i.Snapshot)
	}
	var db bytes.Buffer
	set, small, err := backup.Read(i.File, nil, &db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if db.String() != w.Hosts["cp1"].Snapshot || set.Cluster != "prod" || set.ClusterID != "c0ffee" || set.Authority == "" {
		t.Errorf("the set is %+v", set)
	}
	names := []string{}
	for _, c := range small {
		names = append(names, strings.TrimPrefix(c.Name, "files/etc/kubernetes/pki/"))
		if len(c.Data) == 0 {
			t.Errorf("%s is empty", c.Name)
		}
	}
	want := []string{
		"cluster.yaml", "ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key",
		"sa.pub", "etcd/ca.crt", "etcd/ca.key",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if info, err := os.Stat(i.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	w.noneLeft()
	list, err := w.service().Snapshots(t.Context(), "")
	if err != nil || len(list) != 1 || list[0].File != i.File || list[0].Snapshot.Revision != 4711 || len(list[0].Files) != 8 {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if _, ops := w.status(); len(ops) != 1 {
		t.Errorf("a snapshot must not be saved as an operation: %v", ops)
	}
}

// noneLeft checks that no snapshots are left outside backup sets, on hosts or on this
// machine.
func (w *world) noneLeft() {
	w.t.Helper()
	for name, m := range w.Hosts {
		for path := range m.AllState() {
			if strings.HasPrefix(path, op.EtcdSnapshots) {
				w.t.Errorf("%s still has %s", name, path)
			}
		}
	}
	dir, err := w.service().Records.Backups().Dir("prod")
	if err != nil {
		w.t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir) // the directory may not exist
	for _, e := range entries {
		if _, _, _, ok := backup.ParseFileName(e.Name()); !ok {
			w.t.Errorf("%s is left here", e.Name())
		}
	}
}

func TestSnapshot_IsEncryptedForRecipient(t *testing.T) {
	t.Parallel()
	w, _ := backedUp(t)
	w.Hosts["cp1"].Files["/etc/kubernetes/enc.yaml"] = "kind: EncryptionConfiguration"
	w.Hosts["cp1"].Files[module.APIServerManifest] = "spec:\n  containers:\n  - command: [kube-apiserver, " +
		"--encryption-provider-config=/etc/kubernetes/enc.yaml]\n"
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "mine.age")
	i := w.snapshot(backups.SnapshotOptions{Out: out, Recipients: []string{id.Recipient().String()}})
	if !i.Encrypted || i.File != out || !slices.Contains(i.Files, "/etc/kubernetes/enc.yaml") {
		t.Errorf("%+v", i)
	}
	if _, _, err := backup.Read(out, []age.Identity{id}, &bytes.Buffer{}, nil); err != nil {
		t.Error(err)
	}
	if list, err := w.service().Snapshots(t.Context(), "prod"); err != nil || len(list) != 0 {
		t.Errorf("a set outside the backup directory is listed: %v, %v", list, err)
	}
	_, err = w.service().Snapshot(t.Context(), "prod", backups.SnapshotOptions{Out: out}, nil)
	refusal(t, err, string(backup.Exists))
	_, err = w.service().Snapshot(t.Context(), "prod", backups.SnapshotOptions{Out: filepath.Join(out, "x")}, nil)
	refusal(t, err, idBackupFailed)
	_, err = w.service().Snapshot(t.Context(), "prod", backups.SnapshotOptions{Recipients: []string{"age1"}}, nil)
	refusal(t, err, idBadRecipient)
}

// The directory of an encrypted set never has unencrypted data: the snapshot passes
// through a private directory of this machine.
func TestSnapshot_KeepsPlainDataPrivate(t *testing.T) {
	t.Parallel()
	w, _ := backedUp(t)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	own, err := w.service().Records.Backups().Dir("prod")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, reason string
		recipients   []string
		here         bool // with the sets of this machine
	}{
		{"encrypted", "others may read the target directory", []string{id.Recipient().String()}, true},
		{"in the clear", "readers of the set may read the snapshot", nil, false},
	} {
		out := filepath.Join(t.TempDir(), "mine")
		var there, here []string
		_, err := w.impatient().Snapshot(t.Context(), "prod", backups.SnapshotOptions{Out: out, Recipients: tc.recipients},
			event.SinkFunc(func(e event.Event) {
				if e.Message == "writing the backup set" {
					there, _ = filepath.Glob(filepath.Dir(out) + "/.*/*") // the pattern is valid
					here, _ = filepath.Glob(own + "/.*/*")
				}
			}))
		if err != nil || len(there)+len(here) != 1 || (len(here) == 1) != tc.here {
			t.Errorf("%s: %v; files at the target %v, here %v: %s", tc.name, err, there, here, tc.reason)
		}
		if info, err := os.Stat(own); tc.here && (err != nil || info.Mode().Perm() != 0o700) {
			t.Errorf("%s: %v, %v", tc.name, info, err)
		}
		w.noneLeft()
	}
}

// Temporary snapshots and sets of processes that were killed a day ago are removed.
func TestSnapshot_RemovesOldTemporaryFiles(t *testing.T) {
	t.Parallel()
	w, _ := backedUp(t)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	own, err := w.service().Records.Backups().MakeDir("prod")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	day := time.Now().Add(-25 * time.Hour)
	var young []string
	for _, dir := range []string{own, out} {
		for _, name := range []string{
			".slipway-snapshot-1/snapshot.db", ".slipway-backup-1",
			".slipway-snapshot-2/snapshot.db", ".slipway-backup-2",
		} {
			left := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			top := filepath.Join(dir, strings.Split(name, "/")[0])
			if strings.HasSuffix(top, "-1") {
				err = os.Chtimes(top, day, day)
			} else {
				young = append(young, top)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	w.snapshot(backups.SnapshotOptions{Recipients: []string{id.Recipient().String()}})
	w.snapshot(backups.SnapshotOptions{Recipients: []string{id.Recipient().String()}, Out: filepath.Join(out, "mine")})
	var got []string
	for _, dir := range []string{own, out} {
		all, _ := filepath.Glob(dir + "/.slipway-*") // the pattern is valid
		got = append(got, all...)
	}
	slices.Sort(young)
	slices.Sort(got)
	if d := cmp.Diff(young, got); d != "" {
		t.Errorf("files that are left (-want +got):\n%s", d)
	}
}

// A snapshot comes from the most suitable member.
func TestSnapshot_UsesMostSuitableMember(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		do           func(*world, *ensemble)
		want         string // "" means that the snapshot is refused
	}{
		{"the least behind", "the other follower lags behind", func(_ *world, e *ensemble) { e.members[1].applied = 4000 }, "cp3"},
		{"the leader, if others are far behind", "it has all entries", func(_ *world, e *ensemble) {
			e.members[0].index, e.members[0].applied = 90000, 90000
		}, "cp1"},
		{"a host is down", "another member is used", func(w *world, _ *ensemble) { w.Hosts["cp2"].Down = errDown }, "cp3"},
		{"damaged data", "the alarm names another member", func(_ *world, e *ensemble) {
			for _, m := range e.members {
				m.errors = []string{"memberID:11 alarm:CORRUPT "}
			}
		}, "cp3"},
		{"a full database", "it can be read", func(_ *world, e *ensemble) {
			e.members[0].down = true
			e.elect(11)
			e.members[2].errors = []string{"memberID:12 alarm:NOSPACE "}
		}, "cp3"},
		{"no leader", "their data may be incomplete", func(_ *world, e *ensemble) { e.elect(0) }, ""},
		{"all are down", "no member answers", func(_ *world, e *ensemble) {
			for _, m := range e.members {
				m.down = true
			}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, e := backedUp(t)
			tc.do(w, e)
			i, err := w.impatient().Snapshot(t.Context(), "prod", backups.SnapshotOptions{}, nil)
			switch {
			case tc.want == "":
				refusal(t, err, idEtcdUnhealthy)
			case err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case i.Member != tc.want:
				t.Errorf("%s: the snapshot is from %s, want %s", tc.reason, i.Member, tc.want)
			}
			w.noneLeft()
		})
	}
}

// A failed snapshot is reported and leaves nothing behind.
func TestSnapshot_LeavesNothingAfterFailure(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		do           func(*world)
		id           string
	}{
		{"no room there", "the host reports it before it starts", func(w *world) { w.refuseAll(breaking("etcd.snapshot")) }, idBackupFailed},
		{
			"truncated in transfer", "it is verified here again",
			func(w *world) { w.send(func(s string) string { return s[:len(s)-512] }) }, string(backup.Damaged),
		},
		{
			"another snapshot arrives", "it is undamaged, but not the one that was taken",
			func(w *world) { w.send(func(string) string { return lifecycletest.NewEtcdSnapshot(w.t, 12) }) }, string(backup.Damaged),
		},
		{"no keys", "a set needs them", func(w *world) {
			for _, m := range w.Hosts {
				delete(m.Files, "/etc/kubernetes/pki/ca.crt")
			}
		}, idBackupKeys},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, _ := backedUp(t)
			tc.do(w)
			_, err := w.impatient().Snapshot(t.Context(), "prod", backups.SnapshotOptions{}, nil)
			refusal(t, err, tc.id)
			if list, err := w.service().Snapshots(t.Context(), "prod"); err != nil || len(list) != 0 {
				t.Errorf("%s: a set exists anyway: %v, %v", tc.reason, list, err)
			}
			for _, m := range w.Hosts {
				m.Refuse, m.SentSnapshot = nil, ""
			}
		})
	}
}

func (w *world) refuseAll(refuse func(string, op.Op) *op.Error) {
	for _, m := range w.Hosts {
		m.Refuse = refuse
	}
}

func (w *world) send(change func(string) string) {
	for _, m := range w.Hosts {
		if m.Snapshot != "" {
			m.SentSnapshot = change(m.Snapshot)
		}
	}
}

// A list reports damaged sets and ignores other files.
func TestSnapshotList_ReportsDamagedSets(t *testing.T) {
	t.Parallel()
	w, _ := backedUp(t)
	first := w.snapshot(backups.SnapshotOptions{})
	second := w.snapshot(backups.SnapshotOptions{})
	raw, err := os.ReadFile(second.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(second.File, raw[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", "lab-20261120-180000.tar", ".slipway-backup-1"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(first.File), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.service().Snapshots(t.Context(), "prod")
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if list[0].File != second.File || list[0].Problem == nil || list[1].Problem != nil || list[1].Snapshot == nil {
		t.Errorf("%+v", list)
	}
	if err := os.WriteFile(second.File, raw[:len(raw)-2000], 0o600); err != nil { // the header is complete
		t.Fatal(err)
	}
	if list, err = w.service().Snapshots(t.Context(), "prod"); err != nil || list[0].Problem == nil || list[0].Snapshot == nil {
		t.Errorf("a truncated set: %+v, %v", list, err)
	}
	if list, err := w.service().Snapshots(t.Context(), "other"); !errors.Is(err, savedstate.ErrNotFound) ||
		strings.Count(err.Error(), "not found") != 1 {
		t.Errorf("sets of an unknown cluster: %+v, %v", list, err)
	}
}
