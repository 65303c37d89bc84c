package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostselector"
)

// TestDocs_HaveOnlyValidCommandLines: every command line in the documentation is valid.
// Its command and flags exist, and its selector selects hosts.
func TestDocs_HaveOnlyValidCommandLines(t *testing.T) {
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
			s := newTestTerminal(t, "")
			root := newApp(Streams{In: s.stdin, Out: &s.out, Err: &s.err}, s.env, nil).newRootCommand()
			if problem := checkCommandLine(root, strings.Fields(line)); problem != "" {
				t.Errorf("%s: slipway%s: %s", page, line, problem)
			}
		}
	}
	if shown < 80 {
		t.Errorf("only %d command lines were found", shown)
	}
}

// TestDocs_HaveOnlyValidClusterFiles: every cluster file in the documentation is valid.
func TestDocs_HaveOnlyValidClusterFiles(t *testing.T) {
	known, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	loader := spec.Loader{KubernetesVersion: known.DefaultVersion(), Supported: func(v string) error {
		_, err := known.ResolveVersion(v)
		return err
	}}
	for _, page := range []string{"../../README.md", "../../docs/spec/v1alpha1/cluster.md"} {
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
	// command matches a command line of this program.
	command = regexp.MustCompile("(?:^|[\\s`(])slipway( [^|;)\"#>&`\n]+)")
)

// commandLines returns the arguments of all command lines in the code of a page.
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

// checkCommandLine returns the problem of a command line, or "" if it is valid. Words in
// capitals are placeholders.
func checkCommandLine(root *cobra.Command, words []string) string {
	if words[0] == strings.ToUpper(words[0]) {
		return ""
	}
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	if len(rest) > 0 && cmd.Parent() == root && (cmd.Name() == "exec" || cmd.Name() == "ssh") {
		if problem := checkSelector(cmd.Name(), rest); problem != "" {
			return problem
		}
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

// checkSelector returns the problem of the selector of a command line, which is the
// first word. The selector must select hosts of the documentation's clusters. A cluster
// alone is not a selector, and words in capitals are placeholders.
func checkSelector(command string, words []string) string {
	if dash := slices.Index(words, "--"); command == "exec" && (dash < 1 || dash == len(words)-1) {
		return "it is to be: SELECTOR -- PROGRAM"
	}
	c := &v1alpha1.Cluster{}
	for role, names := range map[v1alpha1.Role][]string{
		v1alpha1.RoleControlPlane: {"cp1", "cp2", "cp3"}, v1alpha1.RoleWorker: {"w1", "w2", "w3", "left-1"},
		v1alpha1.RoleEtcd: {"e1"}, v1alpha1.RoleRegistry: {"images"},
	} {
		for _, name := range names {
			c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Name: name, Roles: []v1alpha1.Role{role}})
		}
	}
	for _, choice := range hostselector.SplitByCluster(strings.Trim(words[0], "'")) {
		if choice.Cluster != "" && !slices.Contains([]string{"prod", "left", "right", "lab", "*"}, choice.Cluster) {
			return "there is no cluster " + choice.Cluster
		}
		if placeholder.MatchString(choice.Selector) {
			continue
		}
		if _, err := hostselector.SelectHosts(c, choice.Selector); err != nil {
			return words[0] + ": " + err.Error()
		}
	}
	return ""
}

var placeholder = regexp.MustCompile("^[A-Z]+$")

// TestCheckSelector_FindsSelectorsWithoutHosts: selectors that select no host are found.
func TestCheckSelector_FindsSelectorsWithoutHosts(t *testing.T) {
	for _, tc := range []struct {
		line string
		good bool
	}{
		{"all -- true", true},
		{"w1 --sudo -- true", true},
		{"HOST -- true", true},
		{"prod@HOST -- true", true},
		{"prod@role=etcd -- true", true},
		{"left@all,right@w[1:2] -- true", true},
		{"'*@role=worker' -- true", true},
		{"prod -- true", false},
		{"prod/w1 -- true", false},
		{"all true", false},
		{"all --", false},
		{"-- true", false},
		{"prod@prod -- true", false},
		{"w1@prod -- true", false},
	} {
		if problem := checkSelector("exec", strings.Fields(tc.line)); (problem == "") != tc.good {
			t.Errorf("%s: %q", tc.line, problem)
		}
	}
}
