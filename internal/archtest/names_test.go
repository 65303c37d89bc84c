package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	// maxOneWord is the largest share, in percent, of functions of a package whose name is
	// one word. Such names do not show what a function returns or changes.
	maxOneWord = 40
	// fewFunctions is the number of functions below which a share says little.
	fewFunctions = 20
)

// emptyNames are names of packages and files that fit any content.
var emptyNames = regexp.MustCompile(`^(utils?|common|helpers|misc|base|shared|lib|stuff|things?|tools)$`)

// vagueFunctions are names of functions without a verb, or with a verb that fits anything.
var vagueFunctions = strings.Fields(`
	again ahead alone among aside ask back before behind beside between do elsewhere found gist handle judge keeps look loses lost
	made moved on part past plus process say settled takes tell then there told whole why`)

// interfaceMethods have names that an interface of Go or of this project asks for. They count
// neither as one word nor as more.
var interfaceMethods = strings.Fields(`
	Apply Check Close Error Handle Is Kind Paths Read String Target Unwrap Write`)

// TestNames_HaveNoFindings fails for names that do not describe their subject.
func TestNames_HaveNoFindings(t *testing.T) {
	for _, f := range nameFindings(theTree(t)) {
		t.Errorf("%s: %s: %s", f.file, f.text, f.fix)
	}
}

// nameFindings returns the names that break a rule: of packages, files and functions, and
// packages with too many functions whose name is one word.
func nameFindings(tree *sourceTree) []finding {
	var out []finding
	oneWord, all := map[string]int{}, map[string]int{}
	dirs := map[string]bool{}
	for _, f := range tree.files {
		if f.generated {
			continue
		}
		dirs[f.dir] = true
		if name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.name), ".go"), "_test"); emptyNames.MatchString(name) {
			out = append(out, finding{file: f.name, text: "the file name fits any content", fix: "name the subject of its content"})
		}
		if f.test {
			out = append(out, testNameFindings(f)...)
			continue
		}
		for _, name := range functionNames(f) {
			if slices.Contains(interfaceMethods, name) {
				continue
			}
			all[f.dir]++
			if isOneWord(name) {
				oneWord[f.dir]++
			}
			if slices.Contains(vagueFunctions, strings.ToLower(name)) {
				out = append(out, finding{file: f.name, text: "function " + name, fix: "use a verb and its object, or what it returns"})
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if emptyNames.MatchString(path.Base(dir)) {
			out = append(out, finding{file: dir, text: "the package name fits any content", fix: "name the subject of the package"})
		}
		if share := 100 * oneWord[dir] / max(all[dir], 1); all[dir] >= fewFunctions && share > maxOneWord {
			out = append(out, finding{
				file: dir, text: fmt.Sprintf("%d of %d functions have a name of one word", oneWord[dir], all[dir]),
				fix: fmt.Sprintf("at most %d %% may", maxOneWord),
			})
		}
	}
	return out
}

// scenarios is the package whose tests are scenarios, and longScenario is the beginning of the names of
// scenarios elsewhere. Documents, the Makefile and the tables of results use their names.
const scenarios, longScenario = "test/e2e", "TestLong"

// testNameFindings returns the tests of a file whose names do not give an expectation:
// TestSubject_DoesSomething.
func testNameFindings(f *goFile) (out []finding) {
	if f.dir == scenarios {
		return nil
	}
	for _, name := range functionNames(f) {
		if strings.HasPrefix(name, "Test") && name != "TestMain" && !strings.HasPrefix(name, longScenario) && !strings.Contains(name, "_") {
			out = append(out, finding{file: f.name, text: "test " + name, fix: "name the subject, an underscore, and the expectation"})
		}
	}
	return out
}

// functionNames returns the names of the functions and methods of a file.
func functionNames(f *goFile) (out []string) {
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			out = append(out, fn.Name.Name)
		}
	}
	return out
}

// isOneWord reports whether a name has no second word.
func isOneWord(name string) bool {
	return !strings.ContainsFunc(name[1:], func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' })
}

// TestNames_FindEachFault checks each rule with a tree that breaks it.
func TestNames_FindEachFault(t *testing.T) {
	many := "package a\n"
	for i := range fewFunctions {
		many += fmt.Sprintf("func %s() {}\n", strings.Repeat("x", i+1))
	}
	for _, c := range []struct{ name, file, source, want string }{
		{"package", "internal/utils/a.go", "package utils\n", "the package name fits any content"},
		{"file", "internal/a/misc.go", "package a\n", "the file name fits any content"},
		{"test file", "internal/a/helpers_test.go", "package a\n", "the file name fits any content"},
		{"function", "internal/a/b.go", "package a\nfunc there() {}\n", "function there"},
		{"method", "internal/a/b.go", "package a\ntype t int\nfunc (t) Elsewhere() {}\n", "function Elsewhere"},
		{"test", "internal/a/b_test.go", "package a\nfunc TestMain() {}\nfunc TestOpen() {}\nfunc TestOpen_Fails() {}\n", "test TestOpen"},
		{"scenario", "test/e2e/b_test.go", "package e2e\nfunc TestCreate() {}\n", ""},
		{"share", "internal/a/b.go", many, "20 of 20 functions have a name of one word"},
		{"none", "internal/a/b.go", "package a\nfunc Open() {}\nfunc findHost() {}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree, err := loadTree(fstest.MapFS{c.file: {Data: []byte(c.source)}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range nameFindings(tree) {
				got = append(got, f.text)
			}
			if s := strings.Join(got, "; "); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
}
