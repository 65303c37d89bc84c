package transfer

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzReceive takes copies from a sender that sends anything: nothing outside the
// destination changes.
func FuzzReceive(f *testing.F) {
	root := frame{Kind: kindDir, Path: ".", Mode: 0o755}
	for _, frames := range [][]frame{
		{{Kind: kindBegin, Name: "x", Size: 3, Entries: 1}, {Kind: kindFile, Path: ".", Size: 3}},
		{
			{Kind: kindBegin, Name: "x", Entries: 3},
			root,
			{Kind: kindLink, Path: "l", Link: "../.."},
			{Kind: kindDir, Path: "l/d"},
			{Kind: kindEnd},
		},
		{{Kind: kindBegin, Name: "\xff", Entries: 2}, root, {Kind: kindSkip, Path: "a/../..", Message: "x"}, {Kind: kindEnd}},
	} {
		var b bytes.Buffer
		for _, fr := range frames {
			if err := fr.writeTo(&b); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		dir := t.TempDir()
		beside := filepath.Join(dir, "beside")
		if err := os.WriteFile(beside, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		in := filepath.Join(dir, "in")
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(sent), io.Discard}
		_, _ = FetchTree(t.Context(), conn, Place{Path: in, Exact: true, Most: 1 << 20}, "", nil) // it may refuse
		if err := os.RemoveAll(in); err != nil {
			t.Fatal(err)
		}
		after := listTree(t, dir)
		for name := range after {
			if len(name) > len(partPrefix) && name[:len(partPrefix)] == partPrefix {
				delete(after, name) // a partial file, which the next copy continues
			}
		}
		if diff := cmp.Diff(map[string]string{"beside": "-rw------- precious"}, after); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// FuzzFrame reads what is copied: it is written as it was read.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"kind":"file","path":{"bytes":"/w=="},"size":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var fr, again frame
		if fr.decodeFrame(raw) != nil {
			return
		}
		raw, err := fr.encodeFrame()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.decodeFrame(raw); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if diff := cmp.Diff(fr, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", raw, diff)
		}
	})
}
