package precheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIDs_AreComplete: each constant is either in IDs or in fatalIDs.
func TestIDs_AreComplete(t *testing.T) {
	if d := cmp.Diff(sorted(declared(t)), sorted(append(IDs(), fatalIDs()...))); d != "" {
		t.Errorf("ids differ (-declared +listed):\n%s", d)
	}
}

// TestUnreachableIDs_AreComplete: each reason of package remote is in unreachableIDs.
func TestUnreachableIDs_AreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../remote/remote.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Reason" {
				want = append(want, literals(t, v)...)
			}
		}
		return true
	})
	if d := cmp.Diff(sorted(want), sorted(unreachableIDs())); d != "" {
		t.Errorf("reasons differ (-remote +precheck):\n%s", d)
	}
}

// declared returns the constants of ids.go.
func declared(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "ids.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			out = append(out, literals(t, v)...)
		}
		return true
	})
	return out
}

func literals(t *testing.T, v *ast.ValueSpec) []string {
	t.Helper()
	var out []string
	for _, value := range v.Values {
		if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, s)
		}
	}
	return out
}

func sorted(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return out
}
