package serverbackup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
)

const (
	testID = "11111111-2222-4333-8444-555555555555"
	canary = "canary-key-of-the-server"
)

// testDir is the data directory of a test.
type testDir struct{ path, id string }

func (d testDir) Path(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}
func (d testDir) Created() time.Time { return testTime().AddDate(-1, 0, 0) }
func (d testDir) ServerID() string   { return d.id }

// snapshots returns the same snapshot each time, and calls before first.
type snapshots struct {
	content []byte
	before  func() error
}

func (s snapshots) Snapshot(_ context.Context, to io.Writer) (SnapshotInfo, error) {
	if s.before != nil {
		if err := s.before(); err != nil {
			return SnapshotInfo{}, err
		}
	}
	if _, err := to.Write(s.content); err != nil {
		return SnapshotInfo{}, err
	}
	sum := sha256.Sum256(s.content)
	return SnapshotInfo{Bytes: int64(len(s.content)), SHA256: hex.EncodeToString(sum[:]), Revision: 4711, Version: "3.7.0"}, nil
}

// database is the content of a test's snapshot.
func database() []byte { return bytes.Repeat([]byte("etcd data "), 3000) }

// newDataDir returns the data directory of a server and its signing key.
func newDataDir(t testing.TB) (testDir, *backup.SigningKey) {
	t.Helper()
	d := testDir{t.TempDir(), testID}
	for _, name := range []string{"pki", "keys", "tmp", "backups"} {
		if err := os.Mkdir(d.Path(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"pki/ca.crt": "certificate", "pki/ca.key": "key", "pki/.ca.key.new": "unfinished",
		"keys/sa.key": canary, "keys/encryption.yaml": "kind: EncryptionConfiguration",
	} {
		if err := os.WriteFile(d.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key, err := OpenSigningKey(d.Path("keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	return d, key
}

// testTime is the time of sets in tests.
func testTime() time.Time { return time.Date(2026, 11, 25, 18, 0, 0, 0, time.UTC) }

// newMaker returns a maker of sets with a snapshot.
func newMaker(t testing.TB) (*Maker, testDir) {
	t.Helper()
	d, key := newDataDir(t)
	return New(Options{
		Dir: d, Snapshots: snapshots{content: database()}, Signer: key, Program: "v0.9.0", Kubernetes: "v1.37.1", Now: testTime,
	}), d
}

// takeSet writes a set to a file.
func takeSet(t testing.TB, m *Maker, recipients ...age.Recipient) (file string, raw []byte) {
	t.Helper()
	var out bytes.Buffer
	if _, err := m.Take(t.Context(), &out, recipients); err != nil {
		t.Fatal(err)
	}
	return writeSetFile(t, out.Bytes()), out.Bytes()
}

func writeSetFile(t testing.TB, raw []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "set.tar")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newIdentity(t testing.TB) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantID(t *testing.T, err error, want string) {
	t.Helper()
	if got := idOf(err); err == nil || got != want {
		t.Errorf("error %v with id %q, want id %s", err, got, want)
	}
}

// wantReason checks the reason of an error of the reader.
func wantReason(t *testing.T, err error, want backup.Reason) {
	t.Helper()
	var bad *backup.Error
	if !errors.As(err, &bad) || bad.Reason != want {
		t.Errorf("error %v, want reason %s", err, want)
	}
}

// newDestination makes a new data directory for a restore.
type newDestination struct {
	testDir
	hold      string
	committed bool
	failAt    error // of Commit
}

func (d *newDestination) Commit(hold string) error {
	if d.failAt != nil {
		return d.failAt
	}
	d.hold, d.committed = hold, true
	return nil
}

func (d *newDestination) Discard() error { return os.RemoveAll(d.path) }
