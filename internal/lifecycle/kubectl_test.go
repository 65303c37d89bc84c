package lifecycle

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/bundle"
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
