package lifecycle

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestErrorsPage holds ids.go and its section of docs/guide/errors.md
// together.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("ids.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Clusters and operations\n")
	if !ok {
		t.Fatal("the page has no section on clusters and operations")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	find := func(re, text string) (out []string) {
		for _, m := range regexp.MustCompile(re).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return out
	}
	want := find(`= "([a-z-]+)"`, string(code))
	if d := cmp.Diff(want, find("(?m)^### `([a-z-]+)`\n\\S", section)); d != "" {
		t.Errorf("ids of the code and of docs/guide/errors.md differ (-code +page):\n%s", d)
	}
}
