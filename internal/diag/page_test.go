package diag

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestErrorsPage holds every id of the program and docs/guide/errors.md
// together: each has one entry, with a text, and there are no others.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, entry := range strings.Split(string(page), "\n### ")[1:] {
		head, text, _ := strings.Cut(entry, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		id := strings.Trim(head, "`")
		documented = append(documented, id)
		if strings.TrimSpace(text) == "" {
			t.Errorf("%s has no text", id)
		}
	}
	slices.Sort(documented)
	if d := cmp.Diff(listIDs(t), documented); d != "" {
		t.Errorf("ids of the code and of docs/guide/errors.md differ (-code +page):\n%s", d)
	}
}

var (
	// isID is how a constant is called that is an id.
	isID = regexp.MustCompile(`^(id|ID)[A-Z]`)
	// form matches a well-formed id.
	form = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

// listIDs returns the ids of all packages. An id is a string constant named id… or
// ID…, or a well-formed constant of type Reason: the reason why a host cannot be used.
func listIDs(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, tree := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, id := range declaredIDs(n) {
					found[id] = true
				}
				if id := inlineID(n); id != "" {
					t.Errorf("%s: the id %s is no constant", path, id)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// declaredIDs are the ids that a declaration makes.
func declaredIDs(n ast.Node) (out []string) {
	v, ok := n.(*ast.ValueSpec)
	if !ok {
		return nil
	}
	of, _ := v.Type.(*ast.Ident)
	for i, value := range v.Values {
		reason := of != nil && of.Name == "Reason" && form.MatchString(literalText(value))
		if id := literalText(value); id != "" && (isID.MatchString(v.Names[i].Name) || reason) {
			out = append(out, id)
		}
	}
	return out
}

// inlineID is the id of a diagnostic that is written where it is made.
func inlineID(n ast.Node) string {
	lit, ok := n.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	fields := map[string]ast.Expr{}
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				fields[key.Name] = pair.Value
			}
		}
	}
	if fields["Severity"] == nil {
		return ""
	}
	return literalText(fields["ID"])
}

// literalText is the value of a string literal, else "".
func literalText(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}
