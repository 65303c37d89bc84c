package lifecycle

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/store"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// TestKubectlOfAChangedBundle unpacks nothing of a component that is not what the
// bundle says: it could unpack to any size.
func TestKubectlOfAChangedBundle(t *testing.T) {
	w := newWorld(t, "cp1")
	path, ok := bundle.Cached(w.cache, "v1.37.1", nil)
	if !ok {
		t.Fatal("the cache has no bundle")
	}
	w.cache = t.TempDir() // the other belongs to all tests
	b, err := bundle.Import(t.Context(), path, w.cache)
	if err != nil {
		t.Fatal(err)
	}
	comp, err := b.Component("kubernetes", runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	z := gzip.NewWriter(&other)
	_, err = io.WriteString(z, strings.Repeat("x", 1<<20))
	blob := filepath.Join(b.Path(), "blobs", "sha256", strings.TrimPrefix(comp.Digest, "sha256:"))
	if err := errors.Join(err, z.Close(), os.Remove(blob), os.WriteFile(blob, other.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = w.service().kubectl(b)
	refusal(t, err, bundle.IDCorrupt)
	if _, err := os.Stat(filepath.Join(w.cache, "kubectl")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was unpacked: %v", err)
	}
}

func TestRunAs(t *testing.T) {
	requireroot.Need(t, "running programs as others")
	for _, tt := range []struct {
		name string
		as   *fileowner.Owner
		want string
	}{
		{"root", nil, "0 0 0"},
		{"the caller", &fileowner.Owner{UID: 12345, GID: 12346}, "12345 12346 12346"},
	} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "id -u; id -g; id -G")
		cmd.Dir = "/"
		runAs(cmd, tt.as)
		out, err := cmd.CombinedOutput()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != tt.want {
			t.Errorf("%s: it runs as %q, want %q (%v)", tt.name, got, tt.want, err)
		}
	}
}

// TestKubectlUser runs no program as root that a user can replace, and gives no user
// the credentials of another.
func TestKubectlUser(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	caller, other := &fileowner.Owner{UID: 12345, GID: 12346}, &fileowner.Owner{UID: 54321, GID: 54321}
	for _, tt := range []struct {
		name, reason       string
		parent             string
		cache, left, owner *fileowner.Owner // left owns a program of an earlier version; nil is root
		want               *fileowner.Owner
		id                 string
	}{
		{"root's alone", "root's program needs no protection", "/root", nil, nil, nil, nil, ""},
		{"root's alone, under sudo", "the caller cannot enter /root", "/root", nil, nil, caller, nil, ""},
		{"root's alone, with a program of the caller's", "it is unpacked again as root's", "/root", nil, caller, caller, nil, ""},
		{"root's alone, with a program of another caller's", "it is unpacked again as root's", "/root", nil, other, nil, nil, ""},
		{"the caller's", "the caller can replace the program", "", caller, nil, caller, caller, ""},
		{"the caller's, in a root shell", "it would give root's credentials to the caller", "", caller, nil, nil, nil, idNoKubectl},
		{"another user's", "it would give the caller's credentials to another", "", other, nil, caller, nil, idNoKubectl},
		{"shared, with a program of another caller's", "the other can replace it", "", nil, other, caller, nil, idNoKubectl},
		{"shared, with a program of a caller's, in a root shell", "the caller can replace it", "", nil, caller, nil, nil, idNoKubectl},
		{"shared, with a program of the caller's", "it is the caller's own", "", nil, caller, caller, caller, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "cp1")
			b := w.bundle()
			w.cache = cacheOf(t, tt.parent, tt.cache)
			if tt.left != nil {
				s := w.service()
				s.Store = ownedStore(t, tt.left)
				if _, err := s.kubectl(b); err != nil {
					t.Fatal(err)
				}
				if err := tt.left.GiveTree(filepath.Join(w.cache, "kubectl")); err != nil {
					t.Fatal(err)
				}
			}
			s := w.service()
			s.Store = ownedStore(t, tt.owner)
			var as *fileowner.Owner
			program, err := s.kubectl(b)
			if err == nil {
				as, err = s.kubectlUser(program)
			}
			if tt.id != "" {
				refusal(t, err, tt.id)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, as); d != "" {
				t.Errorf("%s: runs as (-want +got):\n%s", tt.reason, d)
			}
			if made, err := fileowner.Of(program); err != nil || !cmp.Equal(tt.want, made) {
				t.Errorf("%s: the program belongs to %v, want %v (%v)", tt.reason, made, tt.want, err)
			}
		})
	}
}

// TestKubectlUser_OfAForeignDirectory runs no program of the caller's in a directory of
// another user, who could replace it at any time.
func TestKubectlUser_OfAForeignDirectory(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	caller, other := &fileowner.Owner{UID: 12345, GID: 12346}, &fileowner.Owner{UID: 54321, GID: 54321}
	w := newWorld(t, "cp1")
	b := w.bundle()
	w.cache = cacheOf(t, "", nil)
	s := w.service()
	s.Store = ownedStore(t, caller)
	program, err := s.kubectl(b)
	if err == nil {
		err = other.Give(filepath.Dir(program))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.kubectlUser(program)
	refusal(t, err, idNoKubectl)
}

// bundle opens the bundle of the test cache.
func (w *world) bundle() *bundle.Bundle {
	w.t.Helper()
	path, ok := bundle.Cached(w.cache, "v1.37.1", nil)
	if !ok {
		w.t.Fatal("the cache has no bundle")
	}
	b, err := bundle.Open(w.t.Context(), path, w.cache, bundle.Registry{})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// cacheOf makes a cache of a user's, or of root's.
func cacheOf(t *testing.T, parent string, to *fileowner.Owner) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "cache-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(os.Chmod(dir, 0o755), to.Give(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ownedStore makes a store that belongs to a user, or to root.
func ownedStore(t *testing.T, to *fileowner.Owner) *store.Store {
	t.Helper()
	var options []store.Option
	if to != nil {
		options = append(options, store.OwnedBy(to.UID, to.GID))
	}
	s, err := store.Open(t.TempDir(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKubectlIntoALink unpacks nothing where a link of the caller's leads.
func TestKubectlIntoALink(t *testing.T) {
	w := newWorld(t, "cp1")
	requireroot.Need(t, "giving files to others")
	b, dir := w.bundle(), t.TempDir()
	w.cache = filepath.Join(dir, "cache")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	s := w.service()
	s.Store = ownedStore(t, to)
	if err := errors.Join(os.Mkdir(w.cache, 0o755), os.Mkdir(filepath.Join(dir, "etc"), 0o755),
		os.Symlink("../etc", filepath.Join(w.cache, "kubectl")), to.Give(w.cache, filepath.Join(w.cache, "kubectl"))); err != nil {
		t.Fatal(err)
	}
	var foreign *fileowner.ForeignError
	if _, err := s.kubectl(b); !errors.As(err, &foreign) {
		t.Errorf("error %v, want a *ForeignError", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "etc")); err != nil || len(left) > 0 {
		t.Errorf("in the directory of root are %v, %v", left, err)
	}
}
