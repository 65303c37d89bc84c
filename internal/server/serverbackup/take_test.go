package serverbackup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/server/diskspace"
	"slipway.dev/slipway/internal/testutil/smalldisk"
)

func TestOpenSigningKey_MakesKeyOnlyAtFirstStart(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenSigningKey(dir, false)
	wantID(t, err, idKeyMissing)
	key, err := OpenSigningKey(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []bool{true, false} {
		again, err := OpenSigningKey(dir, fresh)
		if err != nil || again.PublicKey() != key.PublicKey() {
			t.Errorf("fresh %t: another key, %v", fresh, err)
		}
	}
	path := filepath.Join(dir, SigningKeyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = OpenSigningKey(dir, true)
	wantID(t, err, idKeyDamaged)
	if text, err := os.ReadFile(path); err != nil || string(text) != "half" {
		t.Errorf("the damaged key was overwritten: %q, %v", text, err)
	}
}

func TestTake_RepeatsSnapshotIfKeysChange(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		changes      int
		want         string
	}{
		{"once", "the second snapshot has the new key", 1, ""},
		{"always", "no snapshot matches its keys", attempts, idChangedKeys},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, d := newMaker(t)
			taken := 0
			m.o.Snapshots = snapshots{content: database(), before: func() error {
				if taken++; taken > tc.changes {
					return nil
				}
				return os.WriteFile(d.Path("keys", "encryption.yaml"), fmt.Appendf(nil, "key %d", taken), 0o600)
			}}
			var out bytes.Buffer
			_, err := m.Take(t.Context(), &out, nil)
			if tc.want != "" {
				wantID(t, err, tc.want)
				if out.Len() > 0 {
					t.Error("a part of a set was written")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, files, err := readAll(out.Bytes(), nil)
			if err != nil || files["keys/encryption.yaml"] != "key 1" || taken != 2 {
				t.Errorf("%s: %q after %d snapshots, %v", tc.reason, files["keys/encryption.yaml"], taken, err)
			}
			requireEmpty(t, d.Path("tmp"))
		})
	}
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%s has files: %v, %v", dir, left, err)
	}
}

func TestTake_RefusesForeignFiles(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		plant        func(path string) error
	}{
		{"link", "a link can refer to a file of others", func(p string) error { return os.Symlink("/etc/passwd", p) }},
		{"directory", "keys has no directories", func(p string) error { return os.Mkdir(p, 0o700) }},
		{"space", "the name is not a name of the server", func(p string) error { return os.WriteFile(p+" copy", nil, 0o600) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, d := newMaker(t)
			if err := tc.plant(d.Path("keys", "planted")); err != nil {
				t.Fatal(err)
			}
			_, err := m.Take(t.Context(), io.Discard, nil)
			if wantID(t, err, idBadFile); t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

func TestTake_EndsWithContext(t *testing.T) {
	m, d := newMaker(t)
	ctx, cancel := context.WithCancel(t.Context())
	m.o.Snapshots = snapshots{content: database(), before: func() error { cancel(); return nil }}
	if _, err := m.Take(ctx, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	requireEmpty(t, d.Path("tmp"))
	if !m.tryAcquire() {
		t.Error("the set that ended holds up other backups")
	}
	if _, err := m.Take(ctx, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for another set: %v", err)
	}
}

const mib = 1 << 20

// parted is a snapshot that is written in parts, and calls after when a write has failed.
type parted struct {
	part  []byte
	parts int
	after func()
}

func (p parted) Snapshot(_ context.Context, to io.Writer) (SnapshotInfo, error) {
	for range p.parts {
		if _, err := to.Write(p.part); err != nil {
			p.after()
			return SnapshotInfo{}, err
		}
	}
	return SnapshotInfo{}, nil
}

func TestTake_ReportsFullDiskAndLeavesReserve(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		m, d := newMaker(t)
		const size = 80 << 20
		smalldisk.Mount(t, dir, "80m")
		small := testDir{dir, testID}
		if err := os.Mkdir(small.Path("tmp"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"pki", "keys"} {
			if err := os.CopyFS(small.Path(name), os.DirFS(d.Path(name))); err != nil {
				t.Fatal(err)
			}
		}
		m.o.Dir, m.o.Snapshots = small, snapshots{content: make([]byte, size-diskspace.BackupReserve(size)+1)}
		_, err := m.Take(t.Context(), io.Discard, nil)
		wantID(t, err, idNoRoom)
		if err == nil || !strings.Contains(err.Error(), small.Path("tmp")) {
			t.Errorf("the error does not name the disk: %v", err)
		}
		requireEmpty(t, small.Path("tmp"))
		var free int64
		m.o.Snapshots = parted{part: make([]byte, mib), parts: size / mib, after: func() {
			free, _, _ = diskspace.ReadFree(dir) // zero fails the test
		}}
		_, err = m.Take(t.Context(), io.Discard, nil)
		wantID(t, err, idNoRoom)
		if free < diskspace.Reserve(size)+mib {
			t.Errorf("a snapshot left %d bytes, with which the server would refuse writes", free)
		}
		m.o.Snapshots = snapshots{content: make([]byte, 100<<10)}
		if _, err := m.Take(t.Context(), io.Discard, nil); err != nil {
			t.Errorf("a small snapshot: %v", err)
		}
	})
}
