package spec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// ownSections are the sections of docs/guide/errors.md about this package.
var ownSections = []string{
	"Reading the cluster file", "Values in the cluster file", "Files that the cluster file names",
	"Naming hosts on the command line", "Changing a cluster that exists",
}

// TestErrorsPage holds ids.go and docs/guide/errors.md together.
func TestErrorsPage(t *testing.T) {
	page := read(t, "../../docs/guide/errors.md")
	var documented []string
	section, last := "", ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if id, ok := strings.CutPrefix(line, "### "); ok && slices.Contains(ownSections, section) {
			documented = append(documented, strings.Trim(id, "`"))
		}
		if strings.HasPrefix(line, "#") && strings.HasPrefix(last, "### ") {
			t.Errorf("%s has no text", last)
		}
		if line != "" {
			last = line
		}
	}
	if d := cmp.Diff(declaredIDs(t), sorted(documented)); d != "" {
		t.Errorf("ids of the code and of docs/guide/errors.md differ (-code +page):\n%s", d)
	}
}

// declaredIDs are the constants of ids.go, each of which the code must use.
func declaredIDs(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "ids.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if value, ok := n.(*ast.ValueSpec); ok {
			id, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, id)
		}
		return true
	})
	return sorted(out)
}

// TestClusterPage wants every field of a Cluster in docs/spec/cluster.md, as
// the first cell of a table's row, and no other.
func TestClusterPage(t *testing.T) {
	var documented []string
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "../../docs/spec/cluster.md"), -1) {
		documented = append(documented, m[1])
	}
	want := append(fieldPaths(reflect.TypeFor[v1alpha1.ClusterSpec](), "spec"), fieldPaths(reflect.TypeFor[v1alpha1.ClusterStatus](), "status")...)
	want = append(want, "apiVersion", "kind", "metadata.name", "metadata.labels", "metadata.annotations")
	if d := cmp.Diff(sorted(want), sorted(documented)); d != "" {
		t.Errorf("fields of the types and of docs/spec/cluster.md differ (-types +page):\n%s", d)
	}
}

// fieldPaths are the paths below t. The fields of a bastion or a host's SSH
// are those of the defaults; the page says so instead of repeating them.
func fieldPaths(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[v1alpha1.Cluster]().PkgPath() || path == "spec.hosts[].ssh" {
		return nil
	}
	if t == reflect.TypeFor[v1alpha1.SecretSource]() && path != "spec.ssh.passwordFrom" {
		return nil
	}
	var out []string
	for name, at := range fieldsOf(t) {
		child := joinPath(path, name)
		f := t.FieldByIndex(at).Type
		suffix := ""
		for f.Kind() == reflect.Slice {
			f, suffix = f.Elem(), suffix+"[]"
		}
		out = append(out, child+suffix)
		out = append(out, fieldPaths(f, child+suffix)...)
	}
	return out
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
