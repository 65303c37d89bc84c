package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kindsDir has the table of operation kinds.
const kindsDir = "internal/lifecycle/operation"

// kindFiles lists the files outside the table that may name operation kinds, with the
// reason.
var kindFiles = map[string]string{
	"internal/lifecycle/kinds.go":        "has the behaviour of each kind",
	"internal/lifecycle/prepare.go":      "asks for an apply on behalf of a saved plan and of a precheck",
	"internal/lifecycle/forget_nodes.go": "makes one kind into another",
	"internal/lifecycle/upgrade.go":      "reports whether an upgrade begins",

	"internal/lifecycle/next_operation.go":     "selects the operation for a wanted state",
	"internal/controller/clusters/deletion.go": "requests the deletion of a cluster",
	"internal/controller/schedule/due.go":      "selects the operations that are due",
}

// kindWords lists the packages in which a literal with the name of a kind means that
// kind, whatever it looks like. In others, only names with a hyphen do.
var kindWords = []string{
	"internal/lifecycle/...", "internal/plan", "internal/status", "internal/pipeline", "internal/module/precheck", "internal/cli/view",
}

// otherWords lists the files whose literals are other things with the same names.
var otherWords = map[string]string{
	"internal/plan/text.go":            "words of summaries of node operations",
	"internal/node/op/etcd_defrag.go":  "a kind of node operation",
	"internal/node/op/etcd_restore.go": "a kind of node operation",

	"internal/node/op/etcd_snapshot.go":    "a kind of node operation",
	"internal/node/op/etcd_restoretest.go": "a kind of node operation",
}

// mostKindFiles limits how many files outside the table name one kind.
const mostKindFiles = 4

// TestOperationKind_IsNamedOnlyInAllowedFiles fails if a file outside the table of operation kinds
// names a kind, or switches on one: such places are forgotten when a kind is added.
func TestOperationKind_IsNamedOnlyInAllowedFiles(t *testing.T) {
	tree := theTree(t)
	kinds := map[string]string{}
	for _, f := range tree.files {
		if f.dir == kindsDir && !f.test {
			maps.Copy(kinds, declaredKinds(f.syntax))
		}
	}
	if len(kinds) == 0 {
		t.Fatalf("no operation kinds found in %s", kindsDir)
	}
	namedIn, naming := map[string][]string{}, map[string]bool{}
	for _, f := range tree.files {
		if f.test || f.dir == kindsDir {
			continue
		}
		words := slices.ContainsFunc(kindWords, func(tree string) bool { return coversPath(tree, f.dir) })
		named, problems := namedKinds(f.syntax, kinds, words && otherWords[f.name] == "", otherWords[f.name] == "")
		for _, p := range problems {
			t.Errorf("%s: %s", f.name, p)
		}
		for _, k := range named {
			namedIn[k] = append(namedIn[k], f.name)
		}
		if naming[f.name] = len(named) > 0; naming[f.name] && kindFiles[f.name] == "" {
			t.Errorf("%s names the operation kinds %v: add a fact to %s and ask for that", f.name, named, kindsDir)
		}
	}
	for name := range kindFiles {
		if !naming[name] {
			t.Errorf("%s names no operation kind: remove it from kindFiles", name)
		}
	}
	for k, files := range namedIn {
		if len(files) > mostKindFiles {
			t.Errorf("operation kind %s is named in %d files outside its table, at most %d may: %v", k, len(files), mostKindFiles, files)
		}
	}
}

// declaredKinds returns the names of the constants of type Kind, with their values.
func declaredKinds(file *ast.File) map[string]string {
	kinds := map[string]string{}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				continue
			}
			typ, isKind := v.Type.(*ast.Ident)
			lit, isLit := v.Values[0].(*ast.BasicLit)
			if !isKind || !isLit || typ.Name != "Kind" || !v.Names[0].IsExported() {
				continue
			}
			if text, err := strconv.Unquote(lit.Value); err == nil {
				kinds[v.Names[0].Name] = text
			}
		}
	}
	return kinds
}

// namedKinds returns the kinds that a file names by their constants, and the problems of
// the file: cases of switches, and literals. words reports whether every literal with
// the name of a kind counts, hyphens whether a literal with a hyphen does.
func namedKinds(file *ast.File, kinds map[string]string, words, hyphens bool) (named, problems []string) {
	pkg := ""
	for _, i := range file.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil && path == module+"/"+kindsDir {
			if pkg = "operation"; i.Name != nil {
				pkg = i.Name.Name
			}
		}
	}
	constant := func(n ast.Node) string {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && pkg != "" && x.Name == pkg && kinds[sel.Sel.Name] != "" {
				return sel.Sel.Name
			}
		}
		return ""
	}
	values := slices.Collect(maps.Values(kinds))
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if k := constant(n); k != "" && !slices.Contains(named, k) {
				named = append(named, k)
			}
		case *ast.CaseClause:
			for _, e := range n.List {
				if k := constant(e); k != "" {
					problems = append(problems, "switches on operation kind "+k+": add a fact or a behaviour to its table")
				}
			}
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			is := n.Kind == token.STRING && err == nil && slices.Contains(values, text)
			if is && (words || hyphens && strings.Contains(text, "-")) {
				problems = append(problems, "has the name of an operation kind as a literal: "+n.Value)
			}
		}
		return true
	})
	return named, problems
}

// TestNamedKinds_FindsConstantsSwitchesAndLiterals checks that each way to name an
// operation kind in code is found.
func TestNamedKinds_FindsConstantsSwitchesAndLiterals(t *testing.T) {
	kinds := map[string]string{"Create": "create", "InitOS": "init-os"}
	for _, tt := range []struct {
		name, body      string
		named, problems []string
	}{
		{"constants", `f(operation.Create, operation.Create, other.InitOS)`, []string{"Create"}, nil},
		{"a fact", `k.CreatesCluster()`, nil, nil},
		{
			"a switch", `switch k { case operation.InitOS: }`,
			[]string{"InitOS"},
			[]string{"switches on operation kind InitOS: add a fact or a behaviour to its table"},
		},
		{"a literal", `f("init-os", "init")`, nil, []string{`has the name of an operation kind as a literal: "init-os"`}},
		{"a word", `f("create")`, nil, []string{`has the name of an operation kind as a literal: "create"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := fmt.Sprintf("package p\nimport \"%s/%s\"\nfunc g() { %s }\n", module, kindsDir, tt.body)
			file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
			if err != nil {
				t.Fatal(err)
			}
			named, problems := namedKinds(file, kinds, true, true)
			if diff := cmp.Diff(tt.named, named); diff != "" {
				t.Errorf("named (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
