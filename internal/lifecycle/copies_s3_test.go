package lifecycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/registrysecrets"
)

const storageKey = "/etc/slipway/backup/offsite.key"

// copiedToStorage makes the hosts of a cluster copy their snapshots to storage.
func copiedToStorage(t *testing.T, c *v1alpha1.Cluster, s *copiestest.Storage) *v1alpha1.Cluster {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	c.Spec.Etcd.Backup.Recipients = []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}
	c.Spec.Etcd.Backup.Copies = []v1alpha1.EtcdCopy{{Name: "offsite", Keep: 7, S3: &v1alpha1.S3Copy{
		Endpoint: s.To.Endpoint, Bucket: s.To.Bucket, Prefix: s.To.Prefix, CAFile: file("ca.pem", s.Authority),
		AccessKeyFrom: &v1alpha1.SecretSource{File: file("access", s.AccessKey+"\n")},
		SecretKeyFrom: &v1alpha1.SecretSource{File: file("secret", s.SecretKey+"\n")},
	}}}
	return c
}

// Storage keys are saved only on the hosts with an etcd member, and not in state. They are
// removed with the target.
func TestStorageCopies_AddedChangedAndRemoved(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t, "cp1", "w1"), copiestest.ListenS3(t)
	w.create(event.Succeeded)
	for _, step := range []struct {
		name      string
		c         func() *v1alpha1.Cluster
		key, want string
	}{
		{"on", func() *v1alpha1.Cluster { return copiedToStorage(t, w.everyHour(8), s) }, "canary/secret+key", `"bucket": "backups"`},
		{"another key", func() *v1alpha1.Cluster {
			s.SecretKey = "canary/other+key"
			return copiedToStorage(t, w.everyHour(8), s)
		}, "canary/other+key", `"bucket": "backups"`},
		{"taken out", func() *v1alpha1.Cluster { return w.everyHour(8) }, "", `"keep": 8`},
	} {
		request := applying(step.c())
		w.apply(w.prepared(w.service().Prepare(t.Context(), request, nil)), event.Succeeded)
		cp1 := w.Hosts["cp1"].Files
		if got := cp1[storageKey]; !strings.Contains(got, step.key) || step.key == "" && got != "" || w.Hosts["w1"].HasFile(storageKey) {
			t.Errorf("%s: the keys are %.30q", step.name, got)
		}
		if !strings.Contains(cp1[backupJob], step.want) || strings.Contains(cp1[backupJob], "canary") {
			t.Errorf("%s: the job is %s", step.name, cp1[backupJob])
		}
		if p := w.prepared(w.service().Prepare(t.Context(), request, nil)); !p.Plan().IsEmpty() {
			t.Errorf("%s: something is left to do: %+v", step.name, p.Plan().Steps)
		}
	}
	w.silentOn(map[string]bool{"canary/secret+key": true, "canary/other+key": true, s.AccessKey: true})
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// A missing storage key or CA file is reported before anything is changed.
func TestStorageCopies_ReportMissingKey(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t, "cp1"), copiestest.ListenS3(t)
	w.create(event.Succeeded)
	for _, tc := range []struct {
		field string
		gone  func(*v1alpha1.S3Copy)
		want  string
	}{
		{"accessKeyFrom", func(b *v1alpha1.S3Copy) { b.AccessKeyFrom.File = "/none" }, registrysecrets.IDSecretUnreadable},
		{"secretKeyFrom", func(b *v1alpha1.S3Copy) { b.SecretKeyFrom.File = "/none" }, registrysecrets.IDSecretUnreadable},
		{"caFile", func(b *v1alpha1.S3Copy) { b.CAFile = "/none" }, "file-missing"},
	} {
		c := copiedToStorage(t, w.everyHour(8), s)
		tc.gone(c.Spec.Etcd.Backup.Copies[0].S3)
		_, err := w.service().Prepare(t.Context(), applying(c), nil)
		refusal(t, err, tc.want)
		if err == nil || !strings.Contains(err.Error(), "spec.etcd.backup.copies[0].s3."+tc.field) {
			t.Errorf("%s: %v", tc.field, err)
		}
	}
}

// Copies in storage can be listed and fetched while a host is down.
func TestStorageCopies_ListedAndFetched(t *testing.T) {
	t.Parallel()
	w, _, name := copying(t)
	s := copiestest.ListenS3(t)
	w.do(applying(copiedToStorage(t, w.everyHour(8), s)), event.Succeeded)
	for file, text := range map[string]string{
		name("cp1", 17): "seventeen", name("cp2", 18): "eighteen", "notes.txt": "",
		"prod_000000000000_cp1_20261120-190000_1.tar.age": "another's",
		"../prod-2/" + name("cp1", 20):                    "of a neighbour",
	} {
		at := filepath.Join(s.Dir, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Hosts["cp1"].Down = errDown
	r, err := w.impatient().Copies(t.Context(), "prod", nil)
	if err != nil || !r.Good || len(r.Targets) != 1 || len(r.Targets[0].Copies) != 2 || r.Targets[0].Copies[0].Host != "cp2" ||
		r.Targets[0].At != s.To.Endpoint+"/backups/etcd/prod" {
		t.Fatalf("%+v, %v", r, err)
	}
	out := filepath.Join(t.TempDir(), "x.age")
	o := backups.SnapshotOptions{Copy: "offsite/" + name("cp1", 17), Out: out}
	if _, err := w.impatient().Snapshot(t.Context(), "prod", o, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != "seventeen" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	if r, err = w.impatient().Copies(t.Context(), "prod", nil); err != nil || r.Good ||
		!strings.Contains(r.Targets[0].Problem.Message, "the bucket does not exist") {
		t.Errorf("%+v, %v", r, err)
	}
}
