package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
)

// Every command line that the documentation shows can be typed: its command
// and its flags exist.
func TestDocumentation(t *testing.T) {
	pages := []string{"../../README.md", "../../CONTRIBUTING.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			shown++
			s := newSeat(t, "")
			root := newApp(Streams{In: s.stdin, Out: &s.out, Err: &s.err}, s.env, nil).root()
			if problem := typed(root, strings.Fields(line)); problem != "" {
				t.Errorf("%s: slipway%s: %s", page, line, problem)
			}
		}
	}
	if shown < 80 {
		t.Errorf("only %d command lines were found", shown)
	}
}

// Every cluster file that the documentation shows can be used.
func TestDocumentedFiles(t *testing.T) {
	known, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	loader := spec.Loader{KubernetesVersion: known.Default(), Supported: func(v string) error {
		_, err := known.Resolve(v)
		return err
	}}
	for _, page := range []string{"../../README.md", "../../docs/spec/cluster.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for _, b := range block.FindAllString(string(text), -1) {
			file, isYAML := strings.CutPrefix(strings.TrimSuffix(b, "```"), "```yaml\n")
			if !isYAML || !strings.Contains(file, "kind: Cluster") {
				continue
			}
			shown++
			if _, err := loader.Load(page, []byte(file)); err != nil {
				t.Errorf("%v", err)
			}
		}
		if shown == 0 {
			t.Errorf("%s shows no cluster file", page)
		}
	}
}

var (
	block = regexp.MustCompile("(?s)```.*?```")
	span  = regexp.MustCompile("`[^`]+`")
	// command is a command line, as far as it is for this program.
	command = regexp.MustCompile("(?:^|[\\s`(])slipway( [^|;)\"#>&`\n]+)")
)

// commandLines are what follows the program's name in a page's code.
func commandLines(page string) []string {
	var code []string
	for _, b := range block.FindAllString(page, -1) {
		code = append(code, strings.ReplaceAll(b, "\\\n", " "))
	}
	for _, s := range span.FindAllString(block.ReplaceAllString(page, ""), -1) {
		code = append(code, strings.ReplaceAll(s, "\n", " "))
	}
	var lines []string
	for _, c := range code {
		for _, m := range command.FindAllStringSubmatch(c, -1) {
			lines = append(lines, m[1])
		}
	}
	return lines
}

// typed says what is wrong with a command line: "" if nothing is. Words in
// capitals stand for something.
func typed(root *cobra.Command, words []string) string {
	if words[0] == strings.ToUpper(words[0]) {
		return ""
	}
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	cmd.InitDefaultHelpFlag()
	flags, inherited := cmd.Flags(), cmd.InheritedFlags()
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		switch {
		case word == "--":
			return ""
		case strings.HasPrefix(word, "--"):
			if flags.Lookup(name[2:]) == nil && inherited.Lookup(name[2:]) == nil {
				return "there is no flag " + name
			}
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if flags.ShorthandLookup(name[1:2]) == nil && inherited.ShorthandLookup(name[1:2]) == nil {
				return "there is no flag " + name
			}
		case cmd.HasSubCommands() && word != strings.ToUpper(word):
			return "there is no command " + word
		}
	}
	return ""
}
