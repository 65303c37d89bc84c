package serverbackup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"slipway.dev/slipway/internal/server/datadir"
)

// newServerDir makes a real data directory with keys.
func newServerDir(t *testing.T, path, key string) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // a second call does nothing
	for name, text := range map[string]string{"pki/ca.crt": "certificate", "keys/sa.key": key, "etcd/db": key} {
		if err := os.WriteFile(d.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// etcdOf writes a database as the restore of etcd does.
func etcdOf(_ context.Context, snapshot, dir string) error {
	data, err := os.ReadFile(snapshot)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "db"), data, 0o600)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func TestRestore_MakesDataDirectory(t *testing.T) {
	parent := t.TempDir()
	from := newServerDir(t, filepath.Join(parent, "from"), "first")
	key, err := OpenSigningKey(from.Path("keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{
		Dir: from, Snapshots: snapshots{content: database()}, Signer: key, Program: "v0.9.0", Kubernetes: "v1.37.1", Now: testTime,
	})
	file, _ := takeSet(t, m)
	id, path := from.ServerID(), filepath.Join(parent, "to")
	restore := func(replace bool, trust string, etcd func(context.Context, string, string) error) (string, error) {
		o := RestoreOptions{File: file, Kubernetes: "v1.37.1", RestoreEtcd: etcd}
		kept, err := o.UseDataDir(path, replace)
		if err != nil {
			t.Fatal(err)
		}
		if trust != "" {
			if err := o.TrustKey(trust); err != nil {
				t.Fatal(err)
			}
		}
		_, err = Restore(t.Context(), o)
		return kept(), err
	}
	failing := func(context.Context, string, string) error { return errors.New("etcd refuses the snapshot") }

	if _, err := restore(false, key.PublicKey().String(), failing); err == nil {
		t.Fatal("a failed restore succeeded")
	}
	if _, err := restore(false, "", etcdOf); idOf(err) != idUnverified {
		t.Fatalf("without a key: %v", err)
	}
	if _, err := restore(false, key.PublicKey().String(), etcdOf); err != nil {
		t.Fatal(err)
	}
	d, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	hold, held, err := d.Hold()
	if err != nil || !held || hold.Reason == "" || d.ServerID() != id || d.IsFresh() || !d.Created().Equal(from.Created()) {
		t.Errorf("hold %+v, %t, %v; id %s", hold, held, err, d.ServerID())
	}
	if readText(t, d.Path("etcd", "db")) != string(database()) || readText(t, d.Path("keys", "sa.key")) != "first" {
		t.Error("the restored content differs")
	}
	requireEmpty(t, d.Path("tmp"))
	for name, text := range map[string]string{"keys/sa.key": "changed", "archive/default_prod.zst": "operation", "archive/.x.part": "o"} {
		if err := os.WriteFile(d.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := restore(true, "", etcdOf); err == nil {
		t.Error("the data directory of a running server was replaced")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(false, key.PublicKey().String(), etcdOf); idOf(err) == "" {
		t.Errorf("existing data without --replace: %v", err)
	}
	if _, err := restore(true, "", failing); err == nil {
		t.Error("a failed restore succeeded")
	}
	if got := readText(t, filepath.Join(path, "keys", "sa.key")); got != "changed" {
		t.Errorf("after a failure the previous directory has %q", got)
	}
	// The key of the existing directory has signed the set.
	kept, err := restore(true, "", etcdOf)
	if err != nil {
		t.Fatal(err)
	}
	if got := readText(t, filepath.Join(kept, "keys", "sa.key")); got != "changed" {
		t.Errorf("the kept directory has %q", got)
	}
	for _, dir := range []string{kept, path} {
		if got := readText(t, filepath.Join(dir, datadir.ArchiveDir, "default_prod.zst")); got != "operation" {
			t.Errorf("the archive in %s has %q", dir, got)
		}
	}
	if _, err := os.Stat(filepath.Join(path, datadir.ArchiveDir, ".x.part")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an incomplete file of the archive: %v", err)
	}
	if got := readText(t, filepath.Join(path, "keys", "sa.key")); got != "first" {
		t.Errorf("the restored directory has %q", got)
	}
	if all, err := os.ReadDir(parent); err != nil || len(all) != 3 {
		t.Errorf("directories %v, %v", all, err)
	}
}

func TestTrustKey_RefusesOtherTexts(t *testing.T) {
	o := RestoreOptions{}
	wantID(t, o.TrustKey("age1"), idInvalidValue)
}
