package lifecycle

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki/pkitest"
	"slipway.dev/slipway/internal/remote"
)

// A driller is a host for restore tests. It fetches the snapshot and returns the result
// that the test sets.
type driller struct {
	remote.Host
	name  string
	opts  remote.Options
	state *drills
}

type drills struct {
	on     string
	is     op.EtcdRestoreTested
	failed *op.Error
	seen   []byte
}

func (d *driller) Apply(ctx context.Context, b remote.Batch, heard func(remote.Progress)) ([]op.Result, error) {
	o, ok := b.Ops[0].(op.EtcdRestoreTest)
	if !ok {
		return d.Host.Apply(ctx, b, heard)
	}
	r, err := d.opts.Blobs.OpenBlob(o.Snapshot.Digest, 0)
	if err != nil {
		return nil, err
	}
	if d.state.seen, err = io.ReadAll(r); err != nil {
		return nil, err
	}
	d.state.on = d.name
	raw, err := json.Marshal(d.state.is)
	return []op.Result{{Status: op.Changed, Output: raw, Error: d.state.failed}}, err
}

// drilled returns a service whose hosts can run restore tests, with a backup of its
// cluster.
func drilled(t *testing.T) (*world, *Service, *drills, *backups.SnapshotInfo) {
	t.Helper()
	w, _ := backedUp(t)
	i := w.snapshot(backups.SnapshotOptions{})
	s := w.service()
	st := &drills{is: op.EtcdRestoreTested{
		Snapshot: op.EtcdSnapshotInfo{Bytes: i.Snapshot.Bytes, Hash: i.Snapshot.Hash}, Revision: 4711, Keys: 600, Version: "3.7.0",
		Key: "/registry/secrets/default/token", Value: []byte("k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret"),
	}}
	connect := s.Connect
	s.Connect = func(ctx context.Context, h v1alpha1.Host, o remote.Options) (remote.Host, error) {
		c, err := connect(ctx, h, o)
		if err != nil {
			return nil, err
		}
		if o.Blobs == nil {
			return c, nil
		}
		return &driller{c, h.Name, o, st}, nil
	}
	s.delegate() // its parts connect in the same way
	return w, withShortLimits(s), st, i
}

// A restore test runs on a host that is not the etcd leader, leaves no temporary files,
// and is not saved as an operation.
func TestRestoreTest_RunsOnFollowerAndLeavesNoFiles(t *testing.T) {
	t.Parallel()
	w, s, st, i := drilled(t)
	r, err := s.Drill(t.Context(), "prod", backups.DrillOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Good || r.File != i.File || r.Host == "cp1" || r.Host != st.on || r.Etcd != "3.7.0" || len(r.Checks) != 4 {
		t.Errorf("%+v, want a host that is not the etcd leader", r)
	}
	if string(st.seen) != w.Hosts["cp1"].Snapshot {
		t.Error("the host received another snapshot")
	}
	if left, err := filepath.Glob(filepath.Join(w.home, ".restore-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	if _, ops := w.status(); len(ops) != 1 {
		t.Errorf("a restore test was saved as an operation: %v", ops)
	}
}

// Each check reports where the restored data differ from the backup set.
func TestRestoreTest_ReportsDifferencesFromBackupSet(t *testing.T) {
	t.Parallel()
	sealed := []byte("k8s:enc:aescbc:v1:one:xxx")
	for _, tc := range []struct {
		name, reason string
		do           func(*op.EtcdRestoreTested)
		want         map[string]bool
		got          string
	}{
		{
			"no Secret", "a cluster may have none", func(is *op.EtcdRestoreTested) { is.Key, is.Value = "", nil },
			map[string]bool{},
			"there is none",
		},
		{
			"another hash", "the data are not from the snapshot", func(is *op.EtcdRestoreTested) { is.Snapshot.Hash++ },
			map[string]bool{"integrity": true},
			"",
		},
		{"fewer keys", "keys are missing", func(is *op.EtcdRestoreTested) { is.Keys = 599 }, map[string]bool{"keys": true}, "599"},
		{
			"an older revision", "data are missing", func(is *op.EtcdRestoreTested) { is.Revision = 4000 },
			map[string]bool{"revision": true},
			"4000",
		},
		{
			"encrypted, and no key", "no key decrypts it", func(is *op.EtcdRestoreTested) { is.Value = sealed },
			map[string]bool{"a Secret": true},
			"which is missing",
		},
		{
			"encrypted by a KMS", "only the KMS can decrypt it", func(is *op.EtcdRestoreTested) { is.Value = []byte("k8s:enc:kms:v2:v:x") },
			map[string]bool{},
			"not tested",
		},
		{
			"not a Secret", "the value is not a Secret", func(is *op.EtcdRestoreTested) { is.Value = []byte("k8s\x00") },
			map[string]bool{"a Secret": true},
			"not a Secret",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, s, st, _ := drilled(t)
			tc.do(&st.is)
			r, err := s.Drill(t.Context(), "prod", backups.DrillOptions{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			bad, said := map[string]bool{}, ""
			for _, c := range r.Checks {
				said += c.Got + "\n"
				if !c.Good {
					bad[c.Name] = true
				}
			}
			if d := cmp.Diff(tc.want, bad); d != "" || r.Good != (len(bad) == 0) || !strings.Contains(said, tc.got) {
				t.Errorf("%s (-want +got):\n%s%s", tc.reason, d, said)
			}
		})
	}
}

func TestRestoreTest_FailsWithoutUsableBackupOrHost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		do           func(*world, *drills, *backups.SnapshotInfo, *backups.DrillOptions)
		want         string
	}{
		{
			"cut off", "the whole file is read first", func(w *world, _ *drills, i *backups.SnapshotInfo, _ *backups.DrillOptions) { w.cut(i.File) },
			string(backup.Damaged),
		},
		{
			"no backup", "there is no backup to test",
			func(w *world, _ *drills, i *backups.SnapshotInfo, _ *backups.DrillOptions) { w.remove(i.File) }, string(backup.Unknown),
		},
		{
			"no such file", "it is named",
			func(_ *world, _ *drills, _ *backups.SnapshotInfo, o *backups.DrillOptions) { o.From = "/nowhere.tar" }, string(backup.Unknown),
		},
		{
			"another cluster's", "its CA differs",
			func(w *world, _ *drills, _ *backups.SnapshotInfo, _ *backups.DrillOptions) { w.otherAuthority() }, idBackupOther,
		},
		{"the host has no room", "its failure is reported", func(_ *world, d *drills, _ *backups.SnapshotInfo, _ *backups.DrillOptions) {
			d.failed = &op.Error{Reason: "DiskFull", Message: "full"}
		}, idDrillFailed},
		{"all are down", "no host can run the test", func(w *world, _ *drills, _ *backups.SnapshotInfo, _ *backups.DrillOptions) {
			for _, m := range w.Hosts {
				m.Down = errDown
			}
		}, idDrillFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, s, st, i := drilled(t)
			var o backups.DrillOptions
			tc.do(w, st, i, &o)
			_, err := s.Drill(t.Context(), "prod", o, nil)
			refusal(t, err, tc.want)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

func (w *world) cut(file string) {
	w.t.Helper()
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()/2)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(file string) {
	w.t.Helper()
	if err := os.Remove(file); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) otherAuthority() {
	w.t.Helper()
	ca := pkitest.NewAuthority(w.t, "other", certTime.Add(-certYear), certTime.Add(certYear))
	cert, key := ca.IssueCertificate(w.t, "admin", certTime.Add(certYear))
	other := pkitest.MakeKubeconfig("https://example.com:6443", ca.Cert, "", cert, key)
	if err := os.WriteFile(w.service().Records.Kubeconfigs().Location("prod"), []byte(other), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// The restore test uses the programs where the bundle installs them.
func TestEtcdPrograms_UsePathsOfInstalledBundle(t *testing.T) {
	t.Parallel()
	want := op.EtcdPrograms{Server: "/usr/local/bin/etcd", Program: module.Etcdctl, Utility: module.Etcdutl}
	if d := cmp.Diff(want, module.EtcdPrograms()); d != "" {
		t.Error(d)
	}
}
