package transfer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReceive_KeepsHostileSenderInside: nothing that a sender says leads out of the destination,
// whether it is there before or not.
func TestReceive_KeepsHostileSenderInside(t *testing.T) {
	root, up := frame{Kind: kindDir, Path: ".", Mode: 0o755}, frame{Kind: kindLink, Path: "l", Link: ".."}
	for _, tc := range []struct {
		name, refused string
		frames        []frame
	}{
		{"above", "invalid", []frame{{Kind: kindFile, Path: "../../out", Size: 1, Digest: strings.Repeat("0", 64)}}},
		{"absolute", "invalid", []frame{{Kind: kindFile, Path: "/out", Size: 1}}},
		{"through a link", "before its directory", []frame{root, up, {Kind: kindFile, Path: "l/out", Size: 1}}},
		{"a directory through a link", "before its directory", []frame{root, up, {Kind: kindDir, Path: "l/.ssh"}}},
		{"a link through a link", "before its directory", []frame{root, up, {Kind: kindLink, Path: "l/out", Link: "x"}}},
		{
			"a link that is a directory next", "not a directory",
			[]frame{root, up, {Kind: kindDir, Path: "l"}, {Kind: kindFile, Path: "l/out", Size: 1}},
		},
		{"a directory that is a link next", "", []frame{root, {Kind: kindDir, Path: "l"}, up, {Kind: kindFile, Path: "l/out", Size: 1}}},
		{"all is a link", "instead of the root", []frame{{Kind: kindLink, Path: ".", Link: ".."}}},
		{"all is left out", "instead of the root", []frame{{Kind: kindSkip, Path: "."}}},
		{"all comes twice", "instead of the root", []frame{root, root}},
		{"no directory", "before its directory", []frame{{Kind: kindFile, Path: "out", Size: 1}}},
		{"digest", "invalid digest", []frame{{Kind: kindFile, Path: ".", Size: 1 << 20, Digest: "../../../out"}}},
		{"no kind", "device", []frame{root, {Kind: "device", Path: "x"}}},
		{"more than begun", "more than it announced", []frame{{Kind: kindFile, Path: ".", Size: 8 << 20, Digest: "x"}}},
		{
			"in a directory that is complete", "before its directory",
			[]frame{root, {Kind: kindDir, Path: "a"}, {Kind: kindDir, Path: "b"}, {Kind: kindLink, Path: "a/x", Link: "x"}},
		},
		{"less than nothing", "more than it announced", []frame{{Kind: kindFile, Path: ".", Size: -1, Digest: "x"}}},
	} {
		for _, there := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/there=%v", tc.name, there), func(t *testing.T) {
				dir := t.TempDir()
				in := filepath.Join(dir, "in", "dest")
				made, mine := filepath.Dir(in), "in/dest"
				if there {
					made, mine = in, "in/dest/tree"
				}
				if err := os.MkdirAll(made, 0o700); err != nil {
					t.Fatal(err)
				}
				before := listTree(t, dir)
				_, err := FetchTree(t.Context(), hostileSender(t, ".bashrc", tc.frames), Place{Path: in}, "tree", nil)
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%v, want %q", err, tc.refused)
				}
				after := listTree(t, dir)
				maps.DeleteFunc(after, func(name, _ string) bool { return name == mine || strings.HasPrefix(name, mine+"/") })
				if d := cmp.Diff(before, after); d != "" {
					t.Errorf("beside the destination (-before +after):\n%s", d)
				}
			})
		}
	}
	if _, err := ReceiveTree(t.Context(), struct {
		io.Reader
		io.Writer
	}{bytes.NewReader([]byte{0xff, 0, 0, 0}), io.Discard}, Place{Path: t.TempDir()}, nil); err == nil {
		t.Error("a frame of gigabytes is read")
	}
}

// hostileSender is a sender of these frames, who calls the root as it likes.
func hostileSender(t *testing.T, name string, frames []frame) io.ReadWriter {
	t.Helper()
	var b bytes.Buffer
	for _, f := range slices.Concat([]frame{{Kind: kindBegin, Name: name, Size: 2 << 20, Entries: len(frames)}}, frames) {
		if err := f.writeTo(&b); err != nil {
			t.Fatal(err)
		}
	}
	b.Write([]byte{0, 0, 0, 1, 'x'})
	return struct {
		io.Reader
		io.Writer
	}{&b, io.Discard}
}

// TestFetch_IgnoresNameAndRights: of a host, the name and the rights are not taken.
func TestFetch_IgnoresNameAndRights(t *testing.T) {
	digest := hex.EncodeToString(sha256.New().Sum(nil))
	end := frame{Kind: kindEnd}
	for _, tc := range []struct {
		name, called, as string
		frames           []frame
		want             map[string]string
		reason           string
	}{
		{
			"file", ".bashrc", "notes",
			[]frame{{Kind: kindFile, Path: ".", Mode: 0o755 | fs.ModeSetuid | fs.ModeSetgid, Digest: digest}, end},
			map[string]string{"notes": "-rwxr-xr-x "},
			"it is called as it was asked for, and runs as nobody else",
		},
		{
			"tree", ".ssh", "app",
			[]frame{
				{Kind: kindDir, Path: ".", Mode: 0o755 | fs.ModeSetgid | fs.ModeSticky},
				{Kind: kindFile, Path: "authorized_keys", Mode: 0o600, Digest: digest},
				end,
			},
			map[string]string{"app": "drwxr-xr-x", "app/authorized_keys": "-rw------- "},
			"a tree likewise",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := FetchTree(t.Context(), hostileSender(t, tc.called, tc.frames), Place{Path: dir}, tc.as, nil); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, listTree(t, dir)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
	for _, name := range []string{"", ".", "..", "a/b", "/"} {
		if _, err := FetchTree(t.Context(), hostileSender(t, "x", nil), Place{Path: t.TempDir()}, name, nil); err == nil ||
			!strings.Contains(err.Error(), "invalid") {
			t.Errorf("called %q: %v", name, err)
		}
	}
}

// TestReceive_DoesNotFollowOldLinks: a link that an earlier copy has left is not gone through.
func TestReceive_DoesNotFollowOldLinks(t *testing.T) {
	dir := t.TempDir()
	root, end := frame{Kind: kindDir, Path: ".", Mode: 0o755}, frame{Kind: kindEnd}
	if _, err := FetchTree(t.Context(), hostileSender(t, "x", []frame{root, {Kind: kindLink, Path: "l", Link: "../.."}, end}),
		Place{Path: dir}, "x", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := FetchTree(t.Context(), hostileSender(t, "x", []frame{root, {Kind: kindDir, Path: "l", Mode: 0o755}, end}),
		Place{Path: dir}, "x", nil); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a link for a directory: %v", err)
	}
}

// TestFetch_RefusesMoreThanWanted: of what is more than is wanted nothing is taken.
func TestFetch_RefusesMoreThanWanted(t *testing.T) {
	dir := t.TempDir()
	_, err := FetchTree(t.Context(), hostileSender(t, "x", []frame{{Kind: kindFile, Path: ".", Size: 1, Digest: strings.Repeat("0", 64)}}),
		Place{Path: dir, Most: 1 << 20}, "x", nil)
	if err == nil || !strings.Contains(err.Error(), "the limit is 1048576") || len(listTree(t, dir)) > 0 {
		t.Errorf("%v; there is %v", err, listTree(t, dir))
	}
}

// TestReceive_CountsEntries: directories, links and empty files are as many as was said at first.
func TestReceive_CountsEntries(t *testing.T) {
	digest := hex.EncodeToString(sha256.New().Sum(nil))
	for _, more := range []frame{
		{Kind: kindDir, Path: "d", Mode: 0o755},
		{Kind: kindLink, Path: "l", Link: "x"},
		{Kind: kindFile, Path: "f", Digest: digest},
		{Kind: kindSkip, Path: "s", Message: "x"},
	} {
		t.Run(string(more.Kind), func(t *testing.T) {
			dir, root := t.TempDir(), frame{Kind: kindDir, Path: ".", Mode: 0o755}
			var b bytes.Buffer
			for _, f := range []frame{{Kind: kindBegin, Name: "x", Entries: 1}, root, more} {
				if err := f.writeTo(&b); err != nil {
					t.Fatal(err)
				}
			}
			conn := struct {
				io.Reader
				io.Writer
			}{&b, io.Discard}
			if _, err := FetchTree(t.Context(), conn, Place{Path: dir}, "x", nil); err == nil ||
				!strings.Contains(err.Error(), "more files and directories than it announced") {
				t.Error(err)
			}
			if diff := cmp.Diff(map[string]string{"x": "drwxr-xr-x"}, listTree(t, dir)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
