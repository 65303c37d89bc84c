package transfer

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// TestReceive_RefusesWithoutSpace copies to a disk of 1 MiB, in a separate mount namespace.
func TestReceive_RefusesWithoutSpace(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "1m")
		t.Run("before", func(t *testing.T) { noRoomBefore(t, dir) })
		t.Run("there", func(t *testing.T) { thereAlready(t, dir) })
		t.Run("within", func(t *testing.T) { noRoomWithin(t, dir) })
	})
}

// noRoomBefore: what does not fit is refused before anything of it is written.
func noRoomBefore(t *testing.T, dir string) {
	from := filepath.Join(t.TempDir(), "tree")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		writeFile(t, filepath.Join(from, name), strings.Repeat("x", 200<<10), 0o600)
	}
	_, serr, rerr := copyOver(t, from, dir, 0)
	for end, err := range map[string]error{"sender": serr, "receiver": rerr} {
		if err == nil || !strings.Contains(err.Error(), "the disk of "+dir+" is too full: 1.5 MiB are needed, but only ") {
			t.Errorf("%s: %v", end, err)
		}
	}
	if d := cmp.Diff(map[string]string{}, listTree(t, dir)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// thereAlready: existing content needs no space again.
func thereAlready(t *testing.T, dir string) {
	from := filepath.Join(t.TempDir(), "tree")
	writeFile(t, filepath.Join(from, "a"), strings.Repeat("x", 600<<10), 0o600)
	for range 2 {
		if _, serr, rerr := copyOver(t, from, dir, 0); serr != nil || rerr != nil {
			t.Fatal(serr, rerr)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "tree")); err != nil {
		t.Fatal(err)
	}
}

// noRoomWithin: a disk that others fill meanwhile is left without the part.
func noRoomWithin(t *testing.T, dir string) {
	var b bytes.Buffer
	for _, f := range []frame{
		{Kind: kindBegin, Size: 800 << 10, Entries: 1},
		{Kind: kindFile, Path: ".", Size: 800 << 10, Digest: strings.Repeat("0", 64)},
	} {
		if err := f.writeTo(&b); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 {
		b.Write([]byte{0, 1, 0, 0})
		b.Write(make([]byte, chunk))
	}
	others := filepath.Join(dir, "others")
	_, err := ReceiveTree(t.Context(), struct {
		io.Reader
		io.Writer
	}{&b, io.Discard}, Place{Path: filepath.Join(dir, "x")}, func(Progress) {
		if err := os.WriteFile(others, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v: the disk is to be full", err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "the disk of "+dir+" is too full: ") {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "others" {
		t.Errorf("%v, %v are left", left, err)
	}
}
