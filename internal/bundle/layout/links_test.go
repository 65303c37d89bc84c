package layout_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// swapping is a reader in the midst of which something happens.
type swapping struct {
	io.Reader
	swap func()
}

func (s *swapping) Read(p []byte) (int, error) {
	if s.swap != nil {
		s.swap()
		s.swap = nil
	}
	return s.Reader.Read(p)
}

// TestAddBlob_WritesNothingThroughPlantedLink replaces a directory with a link while a
// blob arrives, and before each other step. Root writes nothing to the target of the
// link.
func TestAddBlob_WritesNothingThroughPlantedLink(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	digest := layout.DigestOf([]byte("new"))
	h, err := v1.NewHash(digest)
	if err != nil {
		t.Fatal(err)
	}
	at := func(do func(d layout.Dir) error) func(d layout.Dir, swap func()) error {
		return func(d layout.Dir, swap func()) error { swap(); return do(d) }
	}
	for name, do := range map[string]func(d layout.Dir, swap func()) error{
		"blob": func(d layout.Dir, swap func()) error {
			return d.AddBlob(digest, &swapping{strings.NewReader("new"), swap})
		},
		"file":    at(func(d layout.Dir) error { return d.AddFile(digest, filepath.Join(string(d), "..", "new")) }),
		"bytes":   at(func(d layout.Dir) error { _, err := d.AddBytes([]byte("new")); return err }),
		"root":    at(func(d layout.Dir) error { return d.SetRoot(v1.Descriptor{Digest: h, Size: 3}) }),
		"read":    at(func(d layout.Dir) error { _, err := d.ReadBlob(layout.DigestOf([]byte("there")), 100); return err }),
		"damaged": at(func(d layout.Dir) error { _, err := d.HasBlob(layout.DigestOf([]byte("precious"))); return err }),
		"list":    at(func(d layout.Dir) error { _, err := d.UnknownFiles(nil); return err }),
		"pack":    at(func(d layout.Dir) error { return d.PackAs(t.Context(), &bytes.Buffer{}, v1.Descriptor{}, nil) }),
		"unpack": at(func(d layout.Dir) error {
			_, err := layout.Unpack(t.Context(), bytes.NewReader(nil), string(d))
			return err
		}),
		"lend":     at(func(d layout.Dir) error { return d.LendBlob(layout.DigestOf([]byte("there")), d) }),
		"creation": at(func(d layout.Dir) error { _, err := layout.Create(string(d)); return err }),
	} {
		for _, place := range []string{"blobs/sha256", "blobs", "."} {
			t.Run(name+", "+place, func(t *testing.T) {
				top := t.TempDir()
				dir, others := filepath.Join(top, "home", "layout"), filepath.Join(top, "others")
				d, err := layout.Create(dir)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.AddBytes([]byte("there")); err != nil {
					t.Fatal(err)
				}
				file := strings.TrimPrefix(layout.DigestOf([]byte("precious")), "sha256:")
				for _, below := range []string{".", "sha256", "blobs/sha256"} {
					if err := errors.Join(os.MkdirAll(filepath.Join(others, below), 0o755),
						os.WriteFile(filepath.Join(others, below, file), []byte("root:x\n"), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				before := filesBelow(t, others)
				err = do(d, func() {
					path := filepath.Clean(filepath.Join(dir, place))
					if err := errors.Join(os.WriteFile(filepath.Join(top, "home", "new"), []byte("new"), 0o600),
						os.Rename(path, path+".was"), os.Symlink(others, path), os.Lchown(path, 12345, 12345)); err != nil {
						t.Fatal(err)
					}
				})
				if err == nil && name != "root" && name != "pack" && name != "creation" {
					t.Error("no error")
				}
				if after := filesBelow(t, others); after != before {
					t.Errorf("the file of another user has %s, want %s (%v)", after, before, err)
				}
			})
		}
	}
}

// filesBelow returns the files and directories below a directory.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
