package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/datadir"
)

func TestUseKubernetes_RefusesOlderMinor(t *testing.T) {
	root, err := os.MkdirTemp("", "data")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	path := filepath.Join(root, "data")
	for _, tc := range []struct {
		name, reason, version string
		refused               bool
	}{
		{"first", "a new directory accepts any version", "v1.37.1", false},
		{"same", "a restart changes nothing", "v1.37.1", false},
		{"older patch", "a patch release reads the same objects", "v1.37.0", false},
		{"newer minor", "an upgrade", "v1.38.0", false},
		{"older minor", "it cannot read all objects", "v1.37.9", true},
		{"no release", "a test binary has no version", "v0.0.0-master+$Format:%H$", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := datadir.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			err = d.UseKubernetes(tc.version)
			var list diag.List
			if refused := errors.As(err, &list) && list[0].ID == "data-dir-newer"; refused != tc.refused || err != nil && !refused {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}
