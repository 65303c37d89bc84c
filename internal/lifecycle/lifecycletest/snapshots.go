package lifecycletest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/backup/verify"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
)

// ChangeSnapshotReport changes a host's report about its automatic snapshots.
func (m *Host) ChangeSnapshotReport(t *testing.T, change func(*op.AutoSnapshotOutcome)) {
	t.Helper()
	var out op.AutoSnapshotOutcome
	if err := json.Unmarshal([]byte(m.Files[op.AutoSnapshotFile]), &out); err != nil {
		t.Fatal(err)
	}
	change(&out)
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	m.Files[op.AutoSnapshotFile] = string(raw)
}

// TakeSnapshot simulates an automatic snapshot on a host.
func (m *Host) TakeSnapshot(t *testing.T, taken time.Time, failed string) {
	t.Helper()
	name := "prod-" + taken.UTC().Format("20060102-150405") + ".db"
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, []byte(m.Snapshot), 0o600); err != nil {
		t.Fatal(err)
	}
	is, err := verify.Snapshot(file)
	if err != nil {
		t.Fatal(err)
	}
	k := op.KeptSnapshot{Taken: taken, Etcd: "3.6.8", EtcdSnapshotInfo: op.EtcdSnapshotInfo{
		Path: op.AutoSnapshots + "/" + name, Bytes: is.Bytes, SHA256: is.SHA256, Hash: is.Hash, Revision: is.Revision,
		Keys: 600, Version: "3.6.0",
	}}
	raw, err := json.Marshal(op.AutoSnapshotOutcome{At: taken, Failed: failed, Kept: []op.KeptSnapshot{k}})
	if err != nil {
		t.Fatal(err)
	}
	m.Files[k.Path], m.Files[op.AutoSnapshotFile] = m.Snapshot, string(raw)
}

// listDir returns the files in a directory of the host.
func (m *Host) listDir(dir string) []byte {
	out := []copies.File{}
	for p, text := range m.Files {
		if path.Dir(p) == dir {
			out = append(out, copies.File{Name: path.Base(p), Bytes: int64(len(text))})
		}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return raw
}

// outputOf returns the output of an operation that was just applied.
func (m *Host) outputOf(o op.Op) []byte {
	if r, ok := o.(op.CertificateRequest); ok {
		return m.makeRequest(r)
	}
	if d, ok := o.(op.EtcdDefrag); ok && (d.Do == op.DefragAny || d.Do == op.DefragFollower) {
		return []byte(`{"before":104857600,"after":41943040}`)
	}
	if s, ok := o.(op.EtcdRecover); ok {
		raw, _ := m.recoveryReport(s)
		return raw
	}
	if _, ok := o.(op.EtcdRestoreTest); ok {
		return m.testRestore()
	}
	s, ok := o.(op.EtcdSnapshot)
	if !ok || s.Gone {
		return nil
	}
	is := m.verifySnapshot()
	is.Path, is.Keys, is.Version = op.EtcdSnapshots+"/"+s.Name, is.Keys+1, "3.7.0"
	raw, err := json.Marshal(is)
	if err != nil {
		panic(err)
	}
	return raw
}

// verifySnapshot reads the snapshot that the host takes.
func (m *Host) verifySnapshot() op.EtcdSnapshotInfo {
	dir, err := os.MkdirTemp("", "snapshot")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "db")
	if err := os.WriteFile(file, []byte(m.Snapshot), 0o600); err != nil {
		panic(err)
	}
	is, err := verify.Snapshot(file)
	if err != nil {
		panic(err)
	}
	return op.EtcdSnapshotInfo{Bytes: is.Bytes, SHA256: is.SHA256, Hash: is.Hash, Revision: is.Revision, Keys: is.Keys}
}

// testRestore returns the result of a restore test of the snapshot that the host takes.
func (m *Host) testRestore() []byte {
	is := m.verifySnapshot()
	raw, err := json.Marshal(op.EtcdRestoreTested{
		Snapshot: op.EtcdSnapshotInfo{Bytes: is.Bytes, Hash: is.Hash}, Revision: is.Revision + m.RestoreDiffers, Keys: is.Keys, Version: "3.7.0",
	})
	if err != nil {
		panic(err)
	}
	return raw
}

// OpenCopy sends a file of the host.
func (c *Conn) OpenCopy(ctx context.Context, there remote.Copy) (net.Conn, error) {
	c.Mu.Lock()
	content, ok := c.Files[there.Path]
	stalled := c.StalledDir != "" && path.Dir(there.Path) == c.StalledDir
	if c.SentSnapshot != "" {
		content = c.SentSnapshot
	}
	c.Mu.Unlock()
	if !ok || !there.Send || there.User != "" {
		return nil, errors.New("the simulated host sends files alone, to root")
	}
	if stalled {
		here, far := net.Pipe()
		context.AfterFunc(ctx, func() { _ = far.Close() }) // as when the connection ends
		return here, nil
	}
	dir, err := os.MkdirTemp("", "copy")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, filepath.Base(there.Path))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return nil, err
	}
	tree, err := transfer.ReadTree(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	here, far := net.Pipe()
	go func() {
		defer os.RemoveAll(dir)
		_, _ = tree.Send(far, nil) // only the receiver's error matters
	}()
	return here, nil
}
