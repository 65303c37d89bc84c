package spec

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// TestDocumentedExamples_AreValid loads what the documentation shows of cluster files:
// whole ones, a spec, or some fields of one.
func TestDocumentedExamples_AreValid(t *testing.T) {
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
	block := regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)```") // a block of a numbered step is indented
	loaded := map[string]int{}
	for _, page := range pages {
		for _, e := range block.FindAllStringSubmatch(readPage(t, page), -1) {
			text := wholeExample(strings.ReplaceAll("\n"+e[2], "\n"+e[1], "\n")[1:])
			if text == "" {
				continue
			}
			loaded[filepath.Base(page)]++
			if _, err := loader.Load(page, []byte(text)); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
	want := map[string]int{
		"README.md": 1, "addons.md": 2, "audit.md": 1, "backup.md": 2, "bundle.md": 1,
		"certificates.md":    2,
		"cluster-objects.md": 3, "cluster.md": 12, "encryption.md": 1, "endpoint.md": 1, "errors.md": 1, "etcd.md": 2,
		"hardening.md": 1, "hooks.md": 1, "registry.md": 3, "runtimes.md": 1,
	}
	if d := cmp.Diff(want, loaded); d != "" {
		t.Errorf("examples by page (-want +got):\n%s", d)
	}
}

// wholeExample makes a cluster file of an example; "" is one of another file.
func wholeExample(text string) string {
	const head = "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\n"
	const host = "    - {name: cp, address: 10.0.0.10, roles: [control-plane]}\n"
	first, _, _ := strings.Cut(text, ":")
	switch {
	case strings.Contains(text, "kind: Cluster\n"):
		return text
	case first != "spec" && yamlfile.FieldsOf(reflect.TypeFor[v1alpha1.ClusterSpec]())[first] == nil:
		return ""
	case first != "spec":
		text = "spec:\n  " + strings.TrimRight(strings.ReplaceAll(text, "\n", "\n  "), " ")
	}
	const hosts = "\n  hosts:\n"
	switch {
	case strings.Contains(text, "roles: [control-plane]"):
		return head + text
	case strings.Contains(text, hosts):
		return head + strings.Replace(text, hosts, hosts+host, 1)
	}
	return head + strings.TrimRight(text, " \n") + hosts + host
}
