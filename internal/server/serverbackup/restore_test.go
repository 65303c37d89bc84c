package serverbackup

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/backup"
)

// replaced is a data directory that was moved away.
type replaced struct{ from, to string }

func (r replaced) Undo() error { return os.Rename(r.to, r.from) }

// A restoring is a restore into a directory of a test.
type restoring struct {
	RestoreOptions
	path string
	to   *newDestination
}

// newRestoring returns a restore that succeeds.
func newRestoring(t *testing.T, file string, key backup.PublicKey) *restoring {
	t.Helper()
	r := &restoring{path: filepath.Join(t.TempDir(), "server")}
	r.RestoreOptions = RestoreOptions{
		File: file, Trusted: []backup.PublicKey{key}, Kubernetes: "v1.37.3",
		Create: func(h *Header) (Destination, error) {
			if err := os.Mkdir(r.path, 0o700); err != nil {
				return nil, err
			}
			r.to = &newDestination{testDir: testDir{r.path, h.ServerID}}
			return r.to, nil
		},
		RestoreEtcd: func(_ context.Context, snapshot, dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			data, err := os.ReadFile(snapshot)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "db"), data, 0o600)
		},
	}
	return r
}

// listTree returns the contents of all files below a directory.
func listTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir+"/")] = string(data)
		if info, failed := e.Info(); failed != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRestore_WritesWholeDirectory(t *testing.T) {
	id := newIdentity(t)
	m, d := newMaker(t)
	want := listTree(t, d.path)
	delete(want, "pki/.ca.key.new")
	for _, tc := range []struct {
		name, reason string
		to           []age.Recipient
		keysOnly     bool
	}{
		{"plain", "all files are restored", nil, false},
		{"encrypted", "an identity decrypts the set", []age.Recipient{id.Recipient()}, false},
		{"keys only", "the data is in an external etcd", nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file, _ := takeSet(t, m, tc.to...)
			r := newRestoring(t, file, m.PublicKey())
			r.Identities, r.KeysOnly = []age.Identity{id}, tc.keysOnly
			h, err := Restore(t.Context(), r.RestoreOptions)
			if err != nil {
				t.Fatal(err)
			}
			if h.ServerID != testID || r.to.id != testID || !r.to.committed ||
				strings.Contains(r.to.hold, "2026-11-25T18:00:00Z") == tc.keysOnly {
				t.Errorf("%+v, hold %q", h, r.to.hold)
			}
			got := listTree(t, r.path)
			if db, there := got["etcd/db"]; there == tc.keysOnly || there && db != string(database()) {
				t.Errorf("%s: the database has %d bytes", tc.reason, len(db))
			}
			delete(got, "etcd/db")
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
		})
	}
}

func TestRestore_RefusesSetsBeforeAnyChange(t *testing.T) {
	id := newIdentity(t)
	m, _ := newMaker(t)
	_, raw := takeSet(t, m)
	sealed, _ := takeSet(t, m, id.Recipient())
	_, otherKey := newDataDir(t)
	signer := m.o.Signer
	m.o.Signer = nil
	unsigned, _ := takeSet(t, m)
	m.o.Signer, m.o.Kubernetes = signer, "v1.38.0"
	newer, _ := takeSet(t, m)
	m.o.Kubernetes, m.o.Snapshots = "v1.37.9", nil
	keys, _ := takeSet(t, m)
	altered := writeSetFile(t, bytes.Replace(raw, []byte(canary), []byte(strings.ToUpper(canary)), 1))
	for _, tc := range []struct {
		name, reason string
		file         string
		change       func(*RestoreOptions)
		want         string
	}{
		{"truncated", "the end is missing", writeSetFile(t, raw[:len(raw)-600]), nil, "backup-damaged"},
		{"altered", "a file has changed", altered, nil, "backup-damaged"},
		{"wrong signer", "another key signed it", writeSetFile(t, raw), func(o *RestoreOptions) {
			o.Trusted = []backup.PublicKey{otherKey.PublicKey()}
		}, idUnverified},
		{"no key", "no key is trusted", writeSetFile(t, raw), func(o *RestoreOptions) { o.Trusted = nil }, idUnverified},
		{"zero key", "an unset key trusts nothing", unsigned, func(o *RestoreOptions) { o.Trusted = []backup.PublicKey{{}} }, idUnverified},
		{"unsigned", "anyone can write it", unsigned, nil, idUnverified},
		{"encrypted", "no identity is given", sealed, nil, "backup-encrypted"},
		{"newer", "its data cannot be read", newer, nil, idNewer},
		{"keys", "the set has no data", keys, nil, idKeysOnly},
		{"not a set", "it is another file", writeSetFile(t, []byte("x")), nil, "backup-unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRestoring(t, tc.file, m.PublicKey())
			if tc.change != nil {
				tc.change(&r.RestoreOptions)
			}
			r.Replace = func() (Replaced, error) { return nil, errors.New("the existing directory was moved") }
			_, err := Restore(t.Context(), r.RestoreOptions)
			if wantID(t, err, tc.want); t.Failed() {
				t.Log(tc.reason)
			}
			if r.to != nil {
				t.Error("a directory was created")
			}
		})
	}
	r := newRestoring(t, unsigned, m.PublicKey())
	r.Trusted, r.Unverified = nil, true
	if _, err := Restore(t.Context(), r.RestoreOptions); err != nil {
		t.Errorf("an unsigned set with --unverified: %v", err)
	}
}

func TestRestore_KeepsPreviousDirectoryAfterFailureOfAnyStep(t *testing.T) {
	m, _ := newMaker(t)
	file, _ := takeSet(t, m)
	failed := errors.New("the step failed")
	for _, tc := range []struct {
		name, reason string
		change       func(*restoring)
	}{
		{"create", "the new directory cannot be created", func(r *restoring) {
			r.Create = func(*Header) (Destination, error) { return nil, failed }
		}},
		{"write", "a file cannot be written", func(r *restoring) {
			create := r.Create
			r.Create = func(h *Header) (Destination, error) {
				d, err := create(h)
				return d, errors.Join(err, os.WriteFile(d.Path("pki"), nil, 0o600))
			}
		}},
		{"etcd", "etcd refuses the snapshot", func(r *restoring) {
			r.RestoreEtcd = func(context.Context, string, string) error { return failed }
		}},
		{"commit", "the last file cannot be written", func(r *restoring) {
			create := r.Create
			r.Create = func(h *Header) (Destination, error) {
				d, err := create(h)
				r.to.failAt = failed
				return d, err
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRestoring(t, file, m.PublicKey())
			if err := os.Mkdir(r.path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(r.path, "server.json"), []byte("previous"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.Replace = func() (Replaced, error) {
				return replaced{r.path, r.path + ".old"}, os.Rename(r.path, r.path+".old")
			}
			tc.change(r)
			if _, err := Restore(t.Context(), r.RestoreOptions); err == nil {
				t.Fatalf("%s, and the restore succeeded", tc.reason)
			}
			if d := cmp.Diff(map[string]string{"server.json": "previous"}, listTree(t, r.path)); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
			if _, err := os.Stat(r.path + ".old"); err == nil {
				t.Error("the previous directory has two names")
			}
		})
	}
}

func TestRestore_RefusesExistingDataWithoutReplace(t *testing.T) {
	m, _ := newMaker(t)
	file, _ := takeSet(t, m)
	r := newRestoring(t, file, m.PublicKey())
	if err := os.Mkdir(r.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), r.RestoreOptions); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v", err)
	}
}

func TestRestore_RefusesFileThatChangesBetweenReads(t *testing.T) {
	m, _ := newMaker(t)
	file, _ := takeSet(t, m)
	m.o.Program = "another set"
	_, other := takeSet(t, m)
	r := newRestoring(t, file, m.PublicKey())
	create := r.Create
	r.Create = func(h *Header) (Destination, error) {
		d, err := create(h)
		return d, errors.Join(err, os.WriteFile(file, other, 0o600))
	}
	_, err := Restore(t.Context(), r.RestoreOptions)
	wantID(t, err, "backup-damaged")
	if _, err := os.Stat(r.path); err == nil {
		t.Error("the new directory remains")
	}
}

func TestIsNewer_ComparesMinors(t *testing.T) {
	for _, tc := range []struct {
		set, program string
		want         bool
	}{
		{"v1.37.1", "v1.37.0", false},
		{"v1.38.0", "v1.37.9", true},
		{"v1.36.0", "v1.37.0", false},
		{"v2.0.0", "v1.37.0", true},
		{"", "v1.37.0", false},
	} {
		if got := isNewer(tc.set, tc.program); got != tc.want {
			t.Errorf("%s on %s: newer is %t", tc.set, tc.program, got)
		}
	}
}
