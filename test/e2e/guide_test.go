//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// longPages are run by a long scenario: each makes a cluster, of which other
// tests show what the page does.
var longPages = []string{"clusters.md", "shape.md"}

// TestGuide runs the commands of docs/guide: in each page, the blocks that begin with
// "```sh test", in order, as one user in one directory. A page creates its own sandbox and
// deletes it.
func TestGuide(t *testing.T) {
	runPages(t, 3, func(page string) bool { return !slices.Contains(longPages, page) })
}

// runPages runs the wanted pages; want is their expected number.
func runPages(t *testing.T, want int, wanted func(page string) bool) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		script := pageScript(filepath.Base(page), string(data))
		if script == "" || !wanted(filepath.Base(page)) {
			continue
		}
		ran++
		t.Run(filepath.Base(page), func(t *testing.T) { runPage(t, script) })
	}
	if ran != want {
		t.Errorf("%d pages have commands that are run, want %d", ran, want)
	}
}

// pageScript are the page's commands as one shell script that stops at the first
// command that fails, and says before each block where it stands.
func pageScript(page, text string) string {
	var script strings.Builder
	in := false
	n := 0
	for line := range strings.Lines(text) {
		n++
		switch {
		case strings.TrimSpace(line) == "```sh test":
			in = true
			fmt.Fprintf(&script, "echo '== %s:%d'\n", page, n)
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			in = false
		case in:
			script.WriteString(line)
		}
	}
	return script.String()
}

func runPage(t *testing.T, script string) {
	u := newUser(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if err := os.CopyFS(filepath.Join(u.home, "docs"), os.DirFS("../../docs")); err != nil {
		t.Fatal(err)
	}
	like := u.command(ctx)
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = u.home
	cmd.Env = append(like.Env, "PATH="+filepath.Dir(programPath())+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, textTail(string(out)))
	}
	// A page that failed left its machines.
	left := map[string]bool{}
	for _, m := range decodeJSON[[]struct{ Sandbox string }](t, u.mustRun(t, "sandbox", "list", "-o", "json")) {
		left[m.Sandbox] = true
	}
	for name := range left {
		if err == nil {
			t.Errorf("the page leaves sandbox %s", name)
		}
		u.mustRun(t, "sandbox", "delete", name, "--yes")
	}
}
