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

	"slipway.dev/slipway/internal/asroot"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/owner"
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

// TestKubectlUnderSudo: root runs no program that a user can replace.
func TestKubectlUnderSudo(t *testing.T) {
	asroot.Need(t, "giving files to others")
	dir := t.TempDir()
	to := &owner.Owner{UID: 12345, GID: 12346}
	program := filepath.Join(dir, "kubectl")
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), to.Give(dir),
		os.WriteFile(program, []byte("#!/bin/sh\nid -u; id -g; id -G\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, program string
		args          []string
		owner         *owner.Owner
		want          string
	}{
		{"of a cache of the caller's", program, nil, to, "12345 12346 12346"},
		{"with records of whoever runs it", program, nil, nil, "0 0 0"},
		{"of a directory of root's", "/bin/sh", []string{"-c", "id -u; id -g; id -G"}, to, "0 0 0"},
	} {
		cmd := exec.CommandContext(t.Context(), tt.program, tt.args...)
		asOwner(cmd, tt.owner)
		out, err := cmd.CombinedOutput()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != tt.want {
			t.Errorf("%s: it runs as %q, want %q (%v)", tt.name, got, tt.want, err)
		}
	}
}

// TestKubectlIntoALink unpacks nothing where a link of the caller's leads.
func TestKubectlIntoALink(t *testing.T) {
	w := newWorld(t, "cp1")
	asroot.Need(t, "giving files to others")
	path, ok := bundle.Cached(w.cache, "v1.37.1", nil)
	if !ok {
		t.Fatal("the cache has no bundle")
	}
	b, err := bundle.Open(t.Context(), path, w.cache, bundle.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w.cache = filepath.Join(dir, "cache")
	to := &owner.Owner{UID: 12345, GID: 12346}
	if err := errors.Join(os.Mkdir(w.cache, 0o755), os.Mkdir(filepath.Join(dir, "etc"), 0o755),
		os.Symlink("../etc", filepath.Join(w.cache, "kubectl")), to.Give(w.cache, filepath.Join(w.cache, "kubectl"))); err != nil {
		t.Fatal(err)
	}
	var foreign *owner.ForeignError
	if _, err := w.service().kubectl(b); !errors.As(err, &foreign) {
		t.Errorf("error %v, want a *ForeignError", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "etc")); err != nil || len(left) > 0 {
		t.Errorf("in the directory of root are %v, %v", left, err)
	}
}
