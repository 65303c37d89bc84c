package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unbounded are the packages that may read without a limit, each with its reason.
var unbounded = map[string]string{
	"internal/bounded":                  "it has the limits",
	"internal/testutil/golden":          "reads what is in this repository, for tests",
	"internal/node/embedded/pack":       "reads what was just built",
	"internal/remote/remotetest":        "for tests",
	"internal/backup/copies/copiestest": "for tests",
	"internal/lifecycle/lifecycletest":  "for tests",
	"internal/records/conformance":      "for tests",
	"internal/sandbox":                  "reads /proc and its own state; its machines run as root of this host anyway",
}

// TestReads_AreBounded checks that the program reads files and responses of
// others with a limit of package bounded.
func TestReads_AreBounded(t *testing.T) {
	for _, f := range theTree(t).files {
		program := strings.HasPrefix(f.name, "cmd/") || strings.HasPrefix(f.name, "internal/")
		if !program || strings.HasSuffix(f.name, "_test.go") || unbounded[f.dir] != "" {
			continue
		}
		for _, call := range unboundedReads(f.syntax) {
			t.Errorf("%s calls %s: use package bounded, or say in reads_test.go why not", f.name, call)
		}
	}
}

// unboundedReads returns the calls in a file that read without a limit.
func unboundedReads(file *ast.File) (calls []string) {
	names := map[string]string{} // of imports, in this file
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = path
	}
	called := func(n ast.Node) string {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return ""
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok {
				return names[pkg.Name] + "." + sel.Sel.Name
			}
		}
		return ""
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch name := called(n); name {
		case "io.ReadAll":
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 && called(call.Args[0]) == "io.LimitReader" {
				break
			}
			calls = append(calls, name)
		case "os.ReadFile", "io/ioutil.ReadAll", "io/ioutil.ReadFile":
			calls = append(calls, name)
		}
		return true
	})
	return calls
}

func TestUnboundedReads_FindsEachCall(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{"a limit", `io.ReadAll(io.LimitReader(r, 10))`, nil},
		{"none", `io.ReadAll(r)`, []string{"io.ReadAll"}},
		{"a file", `files.ReadFile("x")`, []string{"os.ReadFile"}},
		{"embedded", `embedded.ReadFile("x")`, nil},
		{"within", `f(io.ReadAll(r))`, []string{"io.ReadAll"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := fmt.Sprintf("package p\nimport (\"io\"; files \"os\")\nfunc g() { %s }\n", tt.body)
			file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, unboundedReads(file)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
