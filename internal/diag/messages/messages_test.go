package messages_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag/messages"
	"slipway.dev/slipway/internal/testutil/golden"
)

// TestPage_IsGeneratedFromTable fails if docs/guide/errors.md was edited by hand, or was
// not generated after a change of the table.
func TestPage_IsGeneratedFromTable(t *testing.T) {
	golden.Check(t, "../../../docs/guide/errors.md", messages.Page())
}

// TestCodeTable_IsGeneratedFromTable fails if the table of package errorcode was not
// generated after a change of the table.
func TestCodeTable_IsGeneratedFromTable(t *testing.T) {
	text, err := messages.CodeTable()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "../errorcode/table.go", text)
}

// codes lists all error codes.
var codes = []v1alpha1.ErrorCode{
	v1alpha1.ErrorUserInput, v1alpha1.ErrorCredentials, v1alpha1.ErrorUnreachable,
	v1alpha1.ErrorCapacity, v1alpha1.ErrorConflict, v1alpha1.ErrorInternal,
}

func TestTable_HasCodeOfEachError(t *testing.T) {
	for _, s := range messages.Table() {
		for _, m := range s.Messages {
			switch {
			case m.IsWarning && m.Code != "":
				t.Errorf("%s is a warning, which ends no operation, but has the code %s", m.ID, m.Code)
			case !m.IsWarning && !slices.Contains(codes, m.Code):
				t.Errorf("%s has the code %q, want one of %v", m.ID, m.Code, codes)
			}
		}
	}
}

func TestTable_EntriesAreComplete(t *testing.T) {
	const longest = 100 // a summary is one line of the page
	seen := map[string]bool{}
	for _, s := range messages.Table() {
		if s.Title == "" || len(s.Messages) == 0 {
			t.Errorf("section %q has no title or no messages", s.Title)
		}
		for _, m := range s.Messages {
			if seen[m.ID] {
				t.Errorf("%s is in the table twice", m.ID)
			}
			seen[m.ID] = true
			if m.Summary == "" || m.Remedy == "" {
				t.Errorf("%s has no summary or no remedy", m.ID)
			}
			if len(m.Summary) > longest || !strings.HasSuffix(m.Summary, ".") || strings.Contains(m.Summary, ". ") {
				t.Errorf("%s: the summary is not one sentence of at most %d characters: %s", m.ID, longest, m.Summary)
			}
		}
	}
}

// TestTable_HasEveryIDOfTheCode compares the table with the ids that packages declare.
func TestTable_HasEveryIDOfTheCode(t *testing.T) {
	declared, used := declaredIDs(t)
	inTable := map[string]bool{}
	for _, s := range messages.Table() {
		for _, m := range s.Messages {
			inTable[m.ID] = true
			if len(declared[m.ID]) == 0 {
				t.Errorf("%s is in the table, but no package declares it", m.ID)
			}
		}
	}
	for id, constants := range declared {
		if !inTable[id] {
			t.Errorf("%s is declared as %s, but is not in the table", id, constants[0])
		}
		if !slices.ContainsFunc(constants, func(name string) bool { return used[name] > 1 }) {
			t.Errorf("%s is declared as %s, but is never reported", id, constants[0])
		}
	}
}

var (
	// constantName matches the name of a constant that is an id.
	constantName = regexp.MustCompile(`^(id|ID)[A-Z]`)
	// idForm matches an id.
	idForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

// declaredIDs returns the names of the constants of each id, and how often each identifier
// occurs in the code. It reports ids that are not constants.
func declaredIDs(t *testing.T) (constants map[string][]string, used map[string]int) {
	t.Helper()
	constants, used = map[string][]string{}, map[string]int{}
	for _, tree := range []string{"../../../internal", "../../../cmd"} {
		err := filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					used[n.Name]++
				case *ast.ValueSpec:
					for name, id := range idsOf(n) {
						constants[id] = append(constants[id], name)
					}
				case *ast.CompositeLit:
					if id := literalID(n); id != "" {
						t.Errorf("%s: the id %s is not a constant", files.Position(n.Pos()), id)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return constants, used
}

// idsOf returns the ids of a declaration by the names of their constants. A constant is an
// id by its name, or by its type Reason: the reason why a host or a file cannot be used.
func idsOf(v *ast.ValueSpec) map[string]string {
	out := map[string]string{}
	typ, _ := v.Type.(*ast.Ident)
	for i, value := range v.Values {
		id, name := stringValue(value), v.Names[i].Name
		isReason := typ != nil && typ.Name == "Reason" && idForm.MatchString(id)
		if id != "" && (constantName.MatchString(name) || isReason) {
			out[name] = id
		}
	}
	return out
}

// literalID returns the id of a diagnostic that has a string literal as its id.
func literalID(lit *ast.CompositeLit) string {
	fields := map[string]ast.Expr{}
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			fields[fmt.Sprint(pair.Key)] = pair.Value
		}
	}
	if fields["Severity"] == nil {
		return ""
	}
	return stringValue(fields["ID"])
}

// stringValue returns the value of a string literal, or "".
func stringValue(e ast.Expr) string {
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
