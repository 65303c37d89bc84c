package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
)

// FuzzRead reads sets from an attacker: it ends without a panic, never reads more from a
// set than its file has, and reports only signed sets as signed.
func FuzzRead(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("kind: Cluster\n"))
	id, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	key := signingKey(f)
	for _, by := range []Keys{{}, {Signer: key}, {Signer: key, Recipients: []age.Recipient{id.Recipient()}}} {
		raw := newSetBytes(f, by)
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(dir, "set.tar")
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		var db bytes.Buffer
		set, files, err := Read(file, []age.Identity{id}, &db, nil)
		total := db.Len()
		for _, c := range files {
			total += len(c.Data)
			if !isLocalName(c.Name) {
				t.Errorf("the set has a file %q", c.Name)
			}
		}
		if total > len(raw) {
			t.Errorf("%d bytes came out of a set of %d", total, len(raw))
		}
		if err != nil {
			return
		}
		if set.isSigned() != (set.Signature != nil) {
			t.Errorf("format %d, and the signature is %v", set.Format, set.Signature)
		}
		if key.PublicKey().IsSignerOf(set.Signature) && set.Cluster != "prod" {
			t.Errorf("a set of cluster %q is verified", set.Cluster)
		}
	})
}

// newSetBytes is a small set, as it is written.
func newSetBytes(f *testing.F, by Keys) []byte {
	f.Helper()
	db := filepath.Join(f.TempDir(), SnapshotName)
	content := bytes.Repeat([]byte("etcd"), 64)
	if err := os.WriteFile(db, content, 0o600); err != nil {
		f.Fatal(err)
	}
	set := &Set{
		Cluster: "prod", Taken: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC), Kubernetes: "v1.37.1",
		EtcdType: "stacked", Member: "cp1", Authority: "a",
		Snapshot: Snapshot{Bytes: int64(len(content)), SHA256: digestOf(content), Revision: 4711, Keys: 3},
	}
	var out bytes.Buffer
	small := []Content{{ClusterName, []byte("kind: Cluster\n")}, {HostFile("/etc/kubernetes/pki/ca.crt"), []byte("certificate")}}
	if err := WriteStream(&out, set, small, db, by); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}

// FuzzPlaced parses file names: each accepted name is written in the same way by
// FileName.
func FuzzPlaced(f *testing.F) {
	for _, name := range []string{
		"prod-20261120-180007.tar", "a-b-1-20261120-180007.tar.age",
		"prod-20269920-180007.tar", "../prod-20261120-180007.tar",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		cluster, taken, encrypted, ok := ParseFileName(name)
		if ok && FileName(cluster, taken, encrypted) != name {
			t.Errorf("%q is read as %q", name, FileName(cluster, taken, encrypted))
		}
	})
}
