package access

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
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// A changed component could unpack to any size.
func TestUnpackKubectl_RefusesChangedComponent(t *testing.T) {
	b, cache := bundletest.BuildBundle(t), t.TempDir()
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
	_, err = New(Config{Cache: cache}).unpackKubectl(b)
	wantRefusal(t, err, bundle.IDCorrupt)
	if _, err := os.Stat(filepath.Join(cache, "kubectl")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was unpacked: %v", err)
	}
}

// Without a user, a program runs as root; with one, it has only the user and group of
// that user.
func TestSetUser_RunsProgramAsGivenUser(t *testing.T) {
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
		setUser(cmd, tt.as)
		out, err := cmd.CombinedOutput()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != tt.want {
			t.Errorf("%s: it runs as %q, want %q (%v)", tt.name, got, tt.want, err)
		}
	}
}

// A program that a user can replace never runs as root, and no user gets the credentials of
// another user.
func TestFindKubectlUser_ReturnsSafeUserOrRefuses(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	caller, other := &fileowner.Owner{UID: 12345, GID: 12346}, &fileowner.Owner{UID: 54321, GID: 54321}
	b := bundletest.BuildBundle(t)
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
			cache := cacheOf(t, tt.parent, tt.cache)
			if tt.left != nil {
				if _, err := New(Config{Owner: tt.left, Cache: cache}).unpackKubectl(b); err != nil {
					t.Fatal(err)
				}
				if err := tt.left.GiveTree(filepath.Join(cache, "kubectl")); err != nil {
					t.Fatal(err)
				}
			}
			a := New(Config{Owner: tt.owner, Cache: cache})
			var as *fileowner.Owner
			program, err := a.unpackKubectl(b)
			if err == nil {
				as, err = a.findKubectlUser(program)
			}
			if tt.id != "" {
				wantRefusal(t, err, tt.id)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, as); d != "" {
				t.Errorf("%s: runs as (-want +got):\n%s", tt.reason, d)
			}
			if made, err := fileowner.OwnerOf(program); err != nil || !cmp.Equal(tt.want, made) {
				t.Errorf("%s: the program belongs to %v, want %v (%v)", tt.reason, made, tt.want, err)
			}
		})
	}
}

// Another user could replace a program in such a directory at any time.
func TestFindKubectlUser_RefusesDirectoryOfAnotherUser(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	caller, other := &fileowner.Owner{UID: 12345, GID: 12346}, &fileowner.Owner{UID: 54321, GID: 54321}
	b := bundletest.BuildBundle(t)
	a := New(Config{Owner: caller, Cache: cacheOf(t, "", nil)})
	program, err := a.unpackKubectl(b)
	if err == nil {
		err = other.GiveFiles(filepath.Dir(program))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.findKubectlUser(program)
	wantRefusal(t, err, idNoKubectl)
}

// cacheOf makes a cache that belongs to a user, or to root.
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
	if err := errors.Join(os.Chmod(dir, 0o755), to.GiveFiles(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestUnpackKubectl_DoesNotFollowLinkOfCaller(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	b, dir := bundletest.BuildBundle(t), t.TempDir()
	cache := filepath.Join(dir, "cache")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	a := New(Config{Owner: to, Cache: cache})
	if err := errors.Join(os.Mkdir(cache, 0o755), os.Mkdir(filepath.Join(dir, "etc"), 0o755),
		os.Symlink("../etc", filepath.Join(cache, "kubectl")), to.GiveFiles(cache, filepath.Join(cache, "kubectl"))); err != nil {
		t.Fatal(err)
	}
	var foreign *fileowner.ForeignError
	if _, err := a.unpackKubectl(b); !errors.As(err, &foreign) {
		t.Errorf("error %v, want a *ForeignError", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "etc")); err != nil || len(left) > 0 {
		t.Errorf("in the directory of root are %v, %v", left, err)
	}
}

// wantRefusal reports an error that is not a refusal with this id and a hint.
func wantRefusal(t *testing.T, err error, id string) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != id || list[0].Hint == "" {
		t.Errorf("got %v, want a refusal with id %s and a hint", err, id)
	}
}
