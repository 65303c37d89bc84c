package bundlecmd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestErrorsPage holds the ids in the code and their section of
// docs/guide/errors.md together.
func TestErrorsPage(t *testing.T) {
	constant := regexp.MustCompile(`(?m)^\s+ID[A-Za-z]+ += "([a-z-]+)"`)
	single := regexp.MustCompile(`(?m)^const ID[A-Za-z]+ = "([a-z-]+)"`)
	var code []string
	for _, dir := range []string{"../../bundle", "../../bundle/source/modules", "../../bundle/source/upstream", "../../release"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no source in %s: %v", dir, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range append(constant.FindAllStringSubmatch(string(text), -1), single.FindAllStringSubmatch(string(text), -1)...) {
				code = append(code, m[1])
			}
		}
	}
	slices.Sort(code)
	page, err := os.ReadFile("../../../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Bundles and versions\n")
	if !ok {
		t.Fatal("the page has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var docs []string
	for _, m := range regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(section, -1) {
		docs = append(docs, m[1])
	}
	slices.Sort(docs)
	if d := cmp.Diff(slices.Compact(code), docs); d != "" {
		t.Errorf("ids of the code and of docs/guide/errors.md differ (-code +page):\n%s", d)
	}
}
