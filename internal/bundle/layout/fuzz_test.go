package layout

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzRoot: an index.json that is read is written with the same content.
func FuzzRoot(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","size":7,"digest":"sha256:` +
		string(bytes.Repeat([]byte("a"), 64)) + `","annotations":{"dev.slipway.base":"x"}}]}`))
	f.Add([]byte(`{"manifests":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := parseRoot(data)
		if err != nil {
			return
		}
		text, err := indexOf(root)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseRoot(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(root, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-read +read again):\n%s", diff)
		}
	})
}
