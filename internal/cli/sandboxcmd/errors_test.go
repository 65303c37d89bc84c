package sandboxcmd

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
	uses := regexp.MustCompile(`(?:refuse\(|problem\(|ID: +)"([a-z0-9-]+)"`)
	var code []string
	for _, pattern := range []string{"*.go", "../../sandbox/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no source in %s: %v", pattern, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range uses.FindAllStringSubmatch(string(b), -1) {
				code = append(code, m[1])
			}
		}
	}
	slices.Sort(code)
	code = slices.Compact(code)

	page, err := os.ReadFile("../../../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Sandbox machines\n")
	if !ok {
		t.Fatal("the page has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var docs []string
	for _, m := range regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(section, -1) {
		docs = append(docs, m[1])
	}
	slices.Sort(docs)
	if d := cmp.Diff(code, docs); d != "" {
		t.Errorf("ids of the code and of docs/guide/errors.md differ (-code +page):\n%s", d)
	}
}
