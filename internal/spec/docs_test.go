package spec

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// TestClusterPage_RowsMatchHeader requires that each row of a table in docs/spec/v1alpha1/cluster.md has as
// many cells as the header of the table: otherwise a description is in a wrong column.
func TestClusterPage_RowsMatchHeader(t *testing.T) {
	want := 0
	for i, line := range strings.Split(readPage(t, "../../docs/spec/v1alpha1/cluster.md"), "\n") {
		cells := strings.Count(line, "|")
		if !strings.HasPrefix(line, "|") {
			want = 0
		} else if want == 0 {
			want = cells
		} else if cells != want {
			t.Errorf("line %d of docs/spec/v1alpha1/cluster.md has %d cells, the header of the table has %d:\n%s", i+1, cells-1, want-1, line)
		}
	}
}

// fieldPaths returns the paths below t. The page does not repeat the fields of a bastion
// or of a host's SSH settings: it refers to the defaults, which have the same fields.
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
	for name, at := range yamlfile.FieldsOf(t) {
		child := yamlfile.JoinPath(path, name)
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

func sortedCopy(list []string) []string {
	slices.Sort(list)
	return list
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
