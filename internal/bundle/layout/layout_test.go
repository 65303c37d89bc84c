package layout_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"slipway.dev/slipway/internal/bundle/layout"
)

func tarArchive(t testing.TB, members ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zw, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(zw)
	for _, h := range members {
		h.Mode = 0o644
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack_RefusesInvalidArchives(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	index := &tar.Header{Typeflag: tar.TypeReg, Name: "index.json", Size: 1}
	tests := map[string]struct {
		reason string
		data   []byte
		want   error
	}{
		"outside": {
			"a member must not leave the directory",
			tarArchive(t, index, &tar.Header{Typeflag: tar.TypeReg, Name: "../../x", Size: 1}), layout.ErrArchive,
		},
		"absolute": {
			"nor name the root",
			tarArchive(t, index, &tar.Header{Typeflag: tar.TypeReg, Name: "/etc/passwd", Size: 1}), layout.ErrArchive,
		},
		"blob's name": {
			"a blob is named by its digest",
			tarArchive(t, index, &tar.Header{Typeflag: tar.TypeReg, Name: "blobs/sha256/../x", Size: 1}), nil,
		},
		"link": {
			"links lead elsewhere",
			tarArchive(t, index, &tar.Header{Typeflag: tar.TypeSymlink, Name: "blobs/sha256/" + zeros, Linkname: "/etc/passwd"}), layout.ErrArchive,
		},
		"wrong blob": {
			"every blob is verified",
			tarArchive(t, index, &tar.Header{Typeflag: tar.TypeReg, Name: "blobs/sha256/" + zeros, Size: 1}), layout.ErrCorrupt,
		},
		"no index": {"without it nothing is found", tarArchive(t), layout.ErrArchive},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := layout.Unpack(t.Context(), bytes.NewReader(tt.data), t.TempDir())
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v", tt.reason, err)
			}
		})
	}
}

// TestUnpack_RefusesBlobLargerThanDisk: a short file can announce a blob larger than any
// disk, which is refused before the disk is full.
func TestUnpack_RefusesBlobLargerThanDisk(t *testing.T) {
	for _, size := range []int64{1 << 50, math.MaxInt64 - 511} {
		var b bytes.Buffer
		zw, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "blobs/sha256/" + strings.Repeat("0", 64), Size: size, Format: tar.FormatPAX}
		if err := errors.Join(tar.NewWriter(zw).WriteHeader(h), zw.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := layout.Unpack(t.Context(), &b, t.TempDir()); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a blob of %d bytes: %v", size, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarArchive(f, &tar.Header{Typeflag: tar.TypeReg, Name: "index.json", Size: 1}))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := layout.Unpack(t.Context(), bytes.NewReader(data), t.TempDir())
		if err == nil && d == "" {
			t.Error("no error and no layout")
		}
	})
}

func TestAddBlob_StoresOnlyMatchingContent(t *testing.T) {
	d, err := layout.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	digest, err := d.AddBytes([]byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadBlob(digest, 5); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := d.ReadBlob(digest, 4); err == nil {
		t.Error("a blob above the limit was read")
	}
	if err := d.AddBlob(layout.DigestOf([]byte("other")), strings.NewReader("hello")); !errors.Is(err, layout.ErrCorrupt) {
		t.Errorf("content under a wrong digest: %v", err)
	}
	for _, bad := range []string{"", "sha256:", "sha512:" + strings.Repeat("0", 64), "sha256:../../" + strings.Repeat("0", 58)} {
		if _, err := d.OpenBlob(bad, 0); err == nil {
			t.Errorf("digest %q was opened", bad)
		}
	}
}
