package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commandLine matches a command line of slipwayd in Markdown, or its flags in the file that
// the systemd unit reads.
var commandLine = regexp.MustCompile("(?:(?:^|[\\s`(])slipwayd|SLIPWAYD_FLAGS=)([ -][^|;)\"'#>&`\n]+)")

// codeInPage matches a block or a span of code in Markdown.
var codeInPage = regexp.MustCompile("(?s)```.*?```|`[^`]+`")

// TestDocs_HaveOnlyValidCommandLines checks that the commands and flags of slipwayd in the
// documentation exist.
func TestDocs_HaveOnlyValidCommandLines(t *testing.T) {
	pages := []string{"../../README.md"}
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
		code := strings.Join(codeInPage.FindAllString(string(text), -1), "\n")
		for _, m := range commandLine.FindAllStringSubmatch(code, -1) {
			words := strings.Fields(m[1])
			if words[0] == "slipwayd" { // sudo -u slipwayd slipwayd …
				words = words[1:]
			}
			if words[0] == strings.ToUpper(words[0]) && !strings.HasPrefix(words[0], "-") {
				continue // a placeholder
			}
			if strings.HasPrefix(words[0], "-") {
				words = append([]string{"server"}, words...)
			}
			shown++
			if problem := checkFlags((&program{}).newRootCommand(), words); problem != "" {
				t.Errorf("%s: slipwayd%s: %s", page, m[1], problem)
			}
		}
	}
	if shown < 10 {
		t.Errorf("only %d command lines were found", shown)
	}
}

// checkFlags returns the problem of a command line, or "" if all its flags exist.
func checkFlags(root *cobra.Command, words []string) string {
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	if cmd == root {
		return "there is no command " + words[0]
	}
	cmd.InitDefaultHelpFlag()
	for _, word := range rest {
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if strings.HasPrefix(word, "--") && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			return "there is no flag --" + name
		}
	}
	return ""
}
