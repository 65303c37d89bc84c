//go:build linux

package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/node/executor/autobackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// copying returns a host that copies its snapshots to a directory and to another machine.
func copying(t *testing.T) (h *testHost, m *copiestest.Machine, nas string, id age.Identity, job op.AutoSnapshot) {
	t.Helper()
	h, m, nas = newHost(t), copiestest.ListenSFTP(t), t.TempDir()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	h.withState(func(w *world) { w.OnSnapshot = "sealed whole 4711"; w.States[own].Version = "3.7.0" })
	now := time.Now()
	h.write("etc/kubernetes/pki/ca.crt", pkitest.NewAuthority(t, "kubernetes", now.Add(-time.Hour), now.Add(time.Hour)).Cert)
	h.write("etc/kubernetes/pki/ca.key", "canary-key")
	h.write("etc/kubernetes/manifests/kube-apiserver.yaml",
		"spec:\n  containers:\n  - image: registry.k8s.io/kube-apiserver:v1.37.1\n    name: kube-apiserver\n")
	h.write("etc/slipway/backup/vault.key", string(m.Key))
	if err := os.MkdirAll(h.path("mnt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(nas, h.path("mnt/nas")); err != nil {
		t.Fatal(err)
	}
	job = autoJob()
	job.Copies = &op.AutoCopies{
		Host: "cp1", Recipients: []string{key.Recipient().String()}, EtcdType: "stacked",
		Authority: "/etc/kubernetes/pki/ca.crt", Server: "/etc/kubernetes/manifests/kube-apiserver.yaml",
		Files: []string{"/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/ca.key", "/etc/kubernetes/pki/none.key"},
		To: []op.CopyTarget{
			{Name: "nas", Keep: 3, Directory: "/mnt/nas"},
			{Name: "vault", Keep: 2, SSH: &m.To, SecretFile: "/etc/slipway/backup/vault.key"},
		},
	}
	return h, m, nas, key, job
}

func only(t *testing.T, dir string) string {
	t.Helper()
	all, err := filepath.Glob(dir + "/*")
	if err != nil || len(all) != 1 {
		t.Fatalf("there are %v, %v", all, err)
	}
	return all[0]
}

// TestBackupCopy_IsReadableOnlyByRecipients checks that a copy is a backup set of the host's snapshot that only its
// recipients can decrypt.
func TestBackupCopy_IsReadableOnlyByRecipients(t *testing.T) {
	t.Parallel()
	h, m, nas, id, job := copying(t)
	out := h.takes(job)
	if out.Failed != "" || len(out.Copies) != 2 {
		t.Fatalf("%+v", out)
	}
	for _, c := range out.Copies {
		if c.Failed != "" || !c.Copied.Equal(out.At) || c.Kept != 1 || !c.Since.IsZero() {
			t.Errorf("%+v", c)
		}
	}
	for _, file := range []string{only(t, nas), only(t, m.Dir)} {
		raw, err := os.ReadFile(file)
		if err != nil || bytes.Contains(raw, []byte("canary")) || bytes.Contains(raw, []byte("4711")) {
			t.Errorf("%s can be read: %v", file, err)
		}
		var db bytes.Buffer
		set, small, err := backup.Read(file, []age.Identity{id}, &db, nil)
		if err != nil {
			t.Fatal(err)
		}
		if db.String() != sealed("whole 4711") || set.Cluster != "prod" || set.Member != "cp1" || set.Kubernetes != "v1.37.1" ||
			set.Etcd != "3.7.0" || set.EtcdType != "stacked" || set.Snapshot.Revision != 4711 || !set.Taken.Equal(out.At) ||
			len(set.Authority) != 64 {
			t.Errorf("%+v", set)
		}
		if len(small) != 2 || small[1].Name != "files/etc/kubernetes/pki/ca.key" || string(small[1].Data) != "canary-key" {
			t.Errorf("the set has %v", small)
		}
		if want := "prod_" + set.Authority[:12] + "_cp1_" + out.At.Format(autobackup.TakenFormat) + "_4711.tar.age"; filepath.Base(file) != want {
			t.Errorf("it is called %s, want %s", filepath.Base(file), want)
		}
	}
}

// TestBackupCopy_IsSignedWithConfiguredKey checks that a host with a key signs its backup sets and the names of
// its copies. A host without the configured key makes no copies.
func TestBackupCopy_IsSignedWithConfiguredKey(t *testing.T) {
	t.Parallel()
	h, m, nas, id, job := copying(t)
	text, err := backup.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := backup.ParseSigningKey(text)
	if err != nil {
		t.Fatal(err)
	}
	job.Copies.SigningKey = "/etc/slipway/backup-signing.key"
	for _, wrong := range []string{"", "canary"} {
		if wrong != "" {
			h.write("etc/slipway/backup-signing.key", wrong)
		}
		for _, c := range h.takes(job).Copies {
			if !strings.Contains(c.Failed, "sign") || strings.Contains(c.Failed, "canary") {
				t.Errorf("with the key %q: %+v", wrong, c)
			}
		}
	}
	h.write("etc/slipway/backup-signing.key", string(text))
	if out := h.takes(job); out.Copies[0].Failed != "" || out.Copies[1].Failed != "" {
		t.Fatalf("%+v", out.Copies)
	}
	for _, file := range []string{only(t, nas), only(t, m.Dir)} {
		set, err := backup.ReadHeader(file, []age.Identity{id})
		if err != nil || !key.PublicKey().IsSignerOf(set.Signature) {
			t.Errorf("%s: %+v, %v", file, set, err)
		}
		if n, ok := copies.ParseName(filepath.Base(file)); !ok || !n.IsVerified(key) {
			t.Errorf("%s is not verified", file)
		}
	}
}

// TestBackupCopy_FailsWithoutEffectOnSnapshotOrOtherTargets checks that a failed target affects neither the snapshot nor the
// other target. The outcome has the time of the first failure until the target works
// again.
func TestBackupCopy_FailsWithoutEffectOnSnapshotOrOtherTargets(t *testing.T) {
	for _, tc := range []struct {
		name, reason, target string
		do                   func(*testHost, *op.AutoSnapshot)
		want                 string
	}{
		{
			"not there", "nothing is mounted there", "nas",
			func(h *testHost, o *op.AutoSnapshot) { o.Copies.To[0].Directory = "/mnt/other" }, "no such file",
		},
		{"not mounted", "it would fill the host's own disk", "nas", func(h *testHost, o *op.AutoSnapshot) {
			h.write("mnt/empty/x", "")
			o.Copies.To[0].Directory = "/mnt/empty"
		}, "on the same disk as the snapshots"},
		{"down", "it is tried again", "vault", func(h *testHost, o *op.AutoSnapshot) { o.Copies.To[1].SSH.Port = 1 }, "refused"},
		{
			"no login", "the file with the login is missing", "vault",
			func(h *testHost, o *op.AutoSnapshot) { o.Copies.To[1].SecretFile = "/etc/none" }, "credentials of the target",
		},
		{"no recipient", "it would not be encrypted", "both", func(h *testHost, o *op.AutoSnapshot) { o.Copies.Recipients = nil }, "encrypted"},
		{
			"no authority", "it would not name its cluster", "both", func(h *testHost, o *op.AutoSnapshot) { o.Copies.Authority = "/etc/none" },
			"CA of the cluster",
		},
		{"no version", "a restore needs the Kubernetes version", "both", func(h *testHost, o *op.AutoSnapshot) {
			h.write("etc/kubernetes/manifests/kube-apiserver.yaml", "kind: Pod")
		}, "version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, _, _, _, job := copying(t)
			first := h.takes(job)
			to := append([]op.CopyTarget{}, job.Copies.To...)
			machine, copied := *to[1].SSH, *job.Copies
			copied.To, to[1].SSH = to, &machine
			bad := job
			bad.Copies = &copied
			tc.do(h, &bad)
			out := h.takes(bad)
			again := h.takes(bad)
			if out.Failed != "" || len(out.Kept) == 0 || out.Kept[0].Taken != out.At {
				t.Errorf("the snapshot: %+v", out)
			}
			for i, c := range again.Copies {
				fails := tc.target == "both" || tc.target == c.Target
				if !fails && (c.Failed != "" || !c.Copied.Equal(again.At)) {
					t.Errorf("%s, the target without a failure: %+v", c.Target, c)
				}
				if fails &&
					(!strings.Contains(c.Failed, tc.want) || !c.Copied.Equal(first.At) || c.Kept != 1 || c.Since.IsZero() ||
						!c.Since.Equal(out.Copies[i].Since)) {
					t.Errorf("%s: %+v, want %q", tc.reason, c, tc.want)
				}
			}
		})
	}
	h, _, _, _, job := copying(t)
	machine := *job.Copies.To[1].SSH
	job.Copies.To[1].SSH.Port = 1
	h.takes(job)
	*job.Copies.To[1].SSH = machine
	if c := h.takes(job).Copies[1]; c.Failed != "" || !c.Since.IsZero() || c.Kept != 1 {
		t.Errorf("after the target works again: %+v", c)
	}
	job.Copies.To = job.Copies.To[:1]
	if out := h.takes(job); len(out.Copies) != 1 {
		t.Errorf("a removed target is reported: %+v", out.Copies)
	}
	job.Copies = nil
	if out := h.takes(job); len(out.Copies) != 0 || out.Failed != "" {
		t.Errorf("%+v", out)
	}
}

// TestBackupCopy_RecordsStartAndEndsWhenCancelled checks that the start of a copy is recorded at once, and that a
// copy that never ends is abandoned when its time is over.
func TestBackupCopy_RecordsStartAndEndsWhenCancelled(t *testing.T) {
	t.Parallel()
	h, _, _, _, job := copying(t)
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	job.Copies.To[1].SSH.Address, job.Copies.To[1].SSH.Port = "127.0.0.1", silent.Addr().(*net.TCPAddr).Port
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var during op.AutoSnapshotOutcome
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		defer cancel()
		if conn, err := silent.Accept(); err == nil {
			defer conn.Close()
		}
		raw, err := os.ReadFile(filepath.Join(h.r.State, filepath.Base(op.AutoSnapshotFile)))
		if err := errors.Join(err, json.Unmarshal(raw, &during)); err != nil {
			t.Error(err)
		}
	}()
	if err := os.MkdirAll(h.r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := h.r.AutoSnapshot(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	<-looked
	if len(during.Copies) != 2 || during.Copies[1].Begun.IsZero() {
		t.Errorf("during the copy, the record has %+v", during.Copies)
	}
	if vault := out.Copies[1]; vault.Failed == "" || vault.Since.IsZero() || !vault.Begun.IsZero() {
		t.Errorf("its time was over: %+v", vault)
	}
	// The host went down twice during the copy.
	was := op.CopyOutcome{Target: "vault", Begun: out.At.Add(-time.Hour)}
	if got := autobackup.StartedCopies(was); !got.Begun.Equal(was.Begun) {
		t.Errorf("the copy began at %s, not at %s", was.Begun, got.Begun)
	}
	stalled, over := make(chan struct{}), t.Context()
	defer close(stalled)
	over, cancelled := context.WithCancel(over)
	cancelled()
	if sent, err := autobackup.FitsWithin(over, func() (copies.Sent, error) { <-stalled; return copies.Sent{Left: 1}, nil }); err == nil ||
		sent.Left != 0 {
		t.Errorf("%+v, %v", sent, err)
	}
}

// TestBackupCopy_IsAbandonedAfterItsTimeLimit checks that a copy to a stalled target ends
// when its time limit is reached.
func TestBackupCopy_IsAbandonedAfterItsTimeLimit(t *testing.T) {
	t.Parallel()
	h, _, _, _, job := copying(t)
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	job.Copies.To[1].SSH.Address, job.Copies.To[1].SSH.Port = "127.0.0.1", silent.Addr().(*net.TCPAddr).Port
	job.Copies.WithinSeconds = 1
	if out := h.takes(job); out.Failed != "" || out.Copies[1].Failed == "" || !out.Copies[1].Begun.IsZero() {
		t.Errorf("%+v", out)
	}
}

// TestListBackupCopies_ListsCopiesInDirectory checks that the copies in a directory are listed.
func TestListBackupCopies_ListsCopiesInDirectory(t *testing.T) {
	t.Parallel()
	h, _, nas, _, job := copying(t)
	h.takes(job)
	res := h.check(op.ListBackupCopies{Directory: "/mnt/nas"})[0]
	if want := `[{"name":"` + filepath.Base(only(t, nas)) + `","bytes":`; res.Error != nil || !strings.HasPrefix(string(res.Output), want) {
		t.Errorf("%s %+v", res.Output, res.Error)
	}
	if res := h.check(op.ListBackupCopies{Directory: "/mnt/none"})[0]; res.Error == nil {
		t.Error("a missing directory was listed")
	}
}

// TestBackupCopy_UsesCredentialsOfHostForObjectStorage checks that a copy goes to object storage with the credentials on
// the host, and that errors do not contain them.
func TestBackupCopy_UsesCredentialsOfHostForObjectStorage(t *testing.T) {
	t.Parallel()
	h, _, _, id, job := copying(t)
	s := copiestest.ListenS3(t)
	login, err := copies.S3Login{AccessKey: s.AccessKey, SecretKey: s.SecretKey, Authorities: s.Authority}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	h.write("etc/slipway/backup/offsite.key", string(login)+"\n")
	job.Copies.To = []op.CopyTarget{{Name: "offsite", Keep: 2, S3: &s.To, SecretFile: "/etc/slipway/backup/offsite.key"}}
	out := h.takes(job)
	if len(out.Copies) != 1 || out.Copies[0].Failed != "" || out.Copies[0].Kept != 1 {
		t.Fatalf("%+v", out)
	}
	var db bytes.Buffer
	if _, _, err := backup.Read(only(t, s.Dir), []age.Identity{id}, &db, nil); err != nil || db.String() != sealed("whole 4711") {
		t.Errorf("%d bytes come back, %v", db.Len(), err)
	}
	s.SecretKey = "other"
	out = h.takes(job)
	if c := out.Copies[0]; out.Failed != "" || !strings.Contains(c.Failed, "the secret key does not belong to the access key") ||
		strings.Contains(strings.ToLower(c.Failed), "canary") {
		t.Errorf("%+v", out)
	}
}
