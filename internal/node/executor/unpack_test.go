//go:build linux

package executor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// FuzzUnpack unpacks whatever: nothing outside the directory changes.
func FuzzUnpack(f *testing.F) {
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "./bin/tool", Size: 1, Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "../../etc/x", Size: 1},
		{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../.."},
		{Typeflag: tar.TypeLink, Name: "h", Linkname: "/etc/x"},
		{Typeflag: tar.TypeDir, Name: "d/\xff/"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		_, _ = w.Write([]byte("x")[:h.Size])
		_ = w.Close() // one that is cut is good, too
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(archive); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		h := newHost(t)
		outside := func() map[string]entry {
			all := h.snapshot()
			maps.DeleteFunc(all, func(p string, _ entry) bool {
				return strings.HasPrefix(p, "/opt") || strings.HasPrefix(p, "/var")
			})
			return all
		}
		before := outside()
		blob := h.blobs.add(b.Bytes())
		// it may be refused
		h.r.Apply(context.Background(), h.batch(op.FetchBlob{Blob: blob}, op.Unpack{Blob: blob, Name: "x", Dir: "/opt/x"}), nil)
		if diff := cmp.Diff(before, outside()); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		if found, _ := filepath.Glob(h.path("opt/*")); len(found) > 1 {
			t.Errorf("next to the directory: %q", found)
		}
	})
}
