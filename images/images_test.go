package images

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUpdaterSources_HasAllFiles: without this test, a missing file shows only when a
// bundle is built.
func TestUpdaterSources_HasAllFiles(t *testing.T) {
	files, err := filepath.Glob("updater/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			want = append(want, filepath.Base(f))
		}
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(UpdaterSources()))); diff != "" {
		t.Errorf("files (-directory +returned):\n%s", diff)
	}
}
