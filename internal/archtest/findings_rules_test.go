package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestWordRules_FindTheirExamples checks that each rule finds its example and allows a similar
// good phrase.
func TestWordRules_FindTheirExamples(t *testing.T) {
	for _, r := range slices.Concat(avoid, terms, commentWords) {
		t.Run(r.name, func(t *testing.T) {
			if len(r.findMatches(r.hit)) == 0 {
				t.Errorf("the rule does not find %q", r.hit)
			}
			if len(r.findMatches(strings.ReplaceAll(r.hit, " ", "\n  "))) == 0 {
				t.Errorf("the rule does not find %q across lines", r.hit)
			}
			if found := r.findMatches(r.allowed); len(found) > 0 {
				t.Errorf("the rule finds %q in %q", r.allowed[found[0][0]:found[0][1]], r.allowed)
			}
			if r.instead == "" {
				t.Error("the rule does not say what to write instead")
			}
		})
	}
}

// long is a sentence of 31 words, half one of 21.
var (
	long = strings.Repeat("word ", 30) + "end"
	half = strings.Repeat("word ", 20) + "end"
)

func TestGoFindings_CoverTextsOfUsers(t *testing.T) {
	tests := []struct {
		name, reason, code string
		want               []string // group: rule
	}{
		{"error", "an error is read by users", `fmt.Errorf("x is no file: %w", err)`, []string{"words: is-no"}},
		{"own helper", "a literal in any call is a message", `p.refuse("id", "use it anew")`, []string{"words: anew"}},
		{"sum", "a sum is one text", `errors.New("host " + name + " is told" + " of it")`, []string{"words: told"}},
		{"raw", "help is a raw string", "help(`first line\nstays there`)", []string{"words: stays"}},
		{"returned", "a function may return a text", `func() string { return "nobody did it" }()`, []string{"words: nobody"}},
		{"variable", "a variable may hold a text", `hint := "mend it"; _ = hint`, []string{"words: mend"}},
		{"term", "a standard word exists", `note("make the authority")`, []string{"terms: authority"}},
		{"long", "a sentence has at most 25 words", `note("` + long + `")`, []string{"length: length"}},
		{"short sentences", "the limit is for one sentence", `note("` + half + `. ` + half + `")`, nil},
		{"semicolons", "one semicolon in a sentence", `note("one; two; three")`, []string{"length: semicolons"}},
		{"title", "a title begins with a verb", `_ = engine.Task{Title: "kubelet settings"}`, []string{"titles: title-verb"}},
		{"elided title", "the type is that of the list", `_ = []engine.Task{{Title: "settings"}}`, []string{"titles: title-verb"}},
		{"passed title", "a parameter is called title", `step("id", "settings")`, []string{"titles: title-verb"}},
		{"long title", "a title has at most six words", `step("id", "write one two three four five six")`, []string{"titles: title-length"}},
		{"good title", "a verb and a noun", `step("id", "drain node")`, nil},
		{"group", "a title of a group of commands is a heading", `_ = cobra.Group{Title: "Look at them:"}`, nil},
		{"short", "Short has at most 60 characters", `_ = cobra.Command{Short: "` + strings.Repeat("s", 61) + `"}`, []string{"titles: short"}},
		{"short words", "Short is read by users", `_ = cobra.Command{Short: "Mend a cluster"}`, []string{"words: mend"}},
		{"example", "an example is not a sentence", `_ = cobra.Command{Example: "` + long + `"}`, nil},
		{"comparison", "text of others is not ours", `_ = strings.Contains(out, "is no file") || out == "is no file"`, nil},
		{"pattern", "a pattern is not prose", `regexp.MustCompile("there is no|mend it")`, nil},
		{"case", "text of others is not ours", `switch out { case "is no file": }`, nil},
		{"key", "a key is not prose", `_ = map[string]string{"mend it": ""}; _ = m["mend it"]`, nil},
		{"comment", "comments are read by developers", "// This is told.\n", []string{"comments: told"}},
		{"two lines", "a phrase may cross lines", "// This is used any\n// more.\n", []string{"comments: any-more"}},
		{"directive", "a directive is not prose", "//nolint:all // stays\n", nil},
		{"long comment", "only messages have a limit", "// " + long + "\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := "package p\n\nfunc step(id, title string) {}\n\nfunc f() {\n" + tt.code + "\n}\n"
			got := rulesOf(findingsIn(t, fstest.MapFS{"a/p.go": {Data: []byte(source)}}, languageFindings)["a"])
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tt.reason, diff)
			}
		})
	}
}

func TestDocComments_FindBadPhrases(t *testing.T) {
	source := "// Package p is what makes it.\npackage p\n\n// f answers the name.\nfunc f() {}\n\n// ok says whether it is.\nfunc ok() {}\n"
	got := findingsIn(t, fstest.MapFS{"p.go": {Data: []byte(source)}, "p_test.go": {Data: []byte(source)}}, languageFindings)["."]
	want := []string{
		"p.go:1: comments: is-what", "p.go:4: comments: answers", "p.go:7: comments: says-that",
		"p_test.go:1: tests: is-what", "p_test.go:4: tests: answers", "p_test.go:7: tests: says-that",
	}
	if diff := cmp.Diff(want, placesOf(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestIdentifiers_AreAllowedInComments checks that a comment may name a function, type or field
// whose name is a word to avoid.
func TestIdentifiers_AreAllowedInComments(t *testing.T) {
	source := "package p\n\n// An Authority is a CA.\ntype Authority struct{}\n\n// anew restarts it, as Authority does.\nfunc anew() {}\n\n" +
		"// restart starts it anew.\nfunc restart() {}\n\n// Beside is not declared here.\nvar other int\n"
	got := findingsIn(t, fstest.MapFS{"p.go": {Data: []byte(source)}}, languageFindings)["."]
	want := []string{"p.go:9: comments: anew", "p.go:12: comments: beside"}
	if diff := cmp.Diff(want, placesOf(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSkippedFiles_HaveNoFindings(t *testing.T) {
	bad := "package p\n\n// This is told.\nvar x = \"mend it\"\n"
	tree := fstest.MapFS{
		"a/generated.go":  {Data: []byte("// Code generated by hand. DO NOT EDIT.\n\n" + bad)},
		"a/testdata/p.go": {Data: []byte(bad)},
		".git/p.go":       {Data: []byte(bad)},
		"bin/p.go":        {Data: []byte(bad)},
		"b/p_test.go":     {Data: []byte(bad)},
	}
	want := map[string][]string{"b": {"tests: told"}} // strings of tests are free
	got := map[string][]string{}
	for where, list := range findingsIn(t, tree, languageFindings) {
		if len(list) > 0 {
			got[where] = rulesOf(list)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMarkdownFindings_NameTheLine(t *testing.T) {
	page := strings.Join([]string{
		"# Mend a cluster", // 1
		"",
		"It is used any",                        // 3
		"more. Run `mend it anew` and [take it", // 4
		"back](mend.md).",                       // 5
		"",
		"```",
		"mend it",
		"```",
		"<!-- mend",
		"it -->",
		"- nobody reads it", // 12
		"- " + long,         // 13
		"",
		"| what | why |",
		"|---|---|",
		"| the file stays | it is good |", // 17
		"",
		`<a id="mending-it"></a>`, // an old name that links use
		"",
		"The last one is told.", // 21
	}, "\n")
	tree := fstest.MapFS{"docs/x.md": {Data: []byte(page)}, "docs/test-long.md": {Data: []byte("| it stays |\n")}}
	got := findingsIn(t, tree, languageFindings)
	want := []string{
		"docs/x.md:1: words: mend", "docs/x.md:3: words: any-more", "docs/x.md:4: words: take-back", "docs/x.md:12: words: nobody",
		"docs/x.md:13: length: length", "docs/x.md:17: words: stays", "docs/x.md:21: words: told",
	}
	if diff := cmp.Diff(want, placesOf(got["docs/x.md"])); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), placesOf(got["docs/test-long.md"])); diff != "" {
		t.Errorf("a table that a program writes: (-want +got)\n%s", diff)
	}
}

func TestSizeFindings_CountLinesAndMethods(t *testing.T) {
	var methods strings.Builder
	methods.WriteString("package big\n\ntype t struct{}\n\n")
	for i := range maxMethods + 2 {
		fmt.Fprintf(&methods, "func (x *t) m%d() {}\n", i)
	}
	wide := "package wide\n\n// " + strings.Repeat("é", maxLine-3) + "\n// " + strings.Repeat("é", maxLine-2) + "\n"
	got := findingsIn(t, fstest.MapFS{
		"big/a.go":       {Data: []byte(methods.String())},
		"big/a_linux.go": {Data: []byte("package big\n\nfunc (x *t) m0() {}\n" + strings.Repeat("\n", maxPackage))},
		"big/a_test.go":  {Data: []byte("package big\n\nfunc (x *t) helper() {}\n" + strings.Repeat("\n", maxPackage))},
		"full/a.go":      {Data: []byte("package full\n" + strings.Repeat("\n", maxPackage-1))},
		"wide/a.go":      {Data: []byte(wide)},
		"wide/a_test.go": {Data: []byte(wide)},
	}, sizeFindings)
	want := map[string][]string{
		"big":  {"package: package", "methods: methods"},
		"full": nil,
		"wide": {"long-lines: long-line", "long-lines: long-line"},
	}
	for where := range want {
		if diff := cmp.Diff(want[where], rulesOf(got[where])); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", where, diff)
		}
	}
}

func TestIsSelected_MatchesPackagesAndFiles(t *testing.T) {
	tests := []struct {
		show, where string
		want        bool
	}{
		{"internal/cli", "internal/cli", true},
		{"./internal/cli/", "internal/cli", true},
		{"internal/cli", "internal/cli/view", false},
		{"internal/cli/...", "internal/cli/view", true},
		{"README.md,internal/cli", "README.md", true},
		{"all", "docs/guide/upgrade.md", true},
	}
	for _, tt := range tests {
		if got := isSelected(tt.where, tt.show); got != tt.want {
			t.Errorf("-show %s selects %s: %t; want %t", tt.show, tt.where, got, tt.want)
		}
	}
}

func findingsIn(t *testing.T, root fstest.MapFS, find func(*sourceTree) map[string][]finding) map[string][]finding {
	t.Helper()
	tree, err := loadTree(root)
	if err != nil {
		t.Fatal(err)
	}
	return find(tree)
}

func rulesOf(list []finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.group+": "+f.rule)
	}
	return out
}

func placesOf(list []finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.group, f.rule))
	}
	return out
}
