package kubekey

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// listLeaves are the paths below t that fields has to name, themselves or with
// what holds them.
func listLeaves(t reflect.Type, path string) []string {
	if _, ok := fields[path]; ok {
		return []string{path}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return listLeaves(t.Elem(), path)
	case reflect.Slice, reflect.Map:
		return listLeaves(t.Elem(), path+"[]")
	case reflect.Struct:
		var out []string
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			out = append(out, listLeaves(t.Field(i).Type, joinPath(path, name))...)
		}
		return out
	}
	return []string{path}
}

// Every field of KubeKey's has its line in the table, and the table no other.
func TestFields_ListEveryKubeKeyField(t *testing.T) {
	want := listLeaves(reflect.TypeFor[cluster](), "")
	slices.Sort(want)
	if d := cmp.Diff(want, sortedKeys(fields)); d != "" {
		t.Errorf("types and table differ (-types +table):\n%s", d)
	}
	for name, f := range fields {
		if f.text == "" {
			t.Errorf("%s has no text", name)
		}
	}
}

// sampleValue is a value of t that says something, as in JSON.
func sampleValue(t reflect.Type) any {
	switch t.Kind() {
	case reflect.Pointer:
		return sampleValue(t.Elem())
	case reflect.Bool:
		return true
	case reflect.Int, reflect.Int64:
		return 7
	case reflect.Slice:
		return []any{sampleValue(t.Elem())}
	case reflect.Map:
		return map[string]any{"a.example.com": sampleValue(t.Elem())}
	case reflect.Struct:
		out := map[string]any{}
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			out[name] = sampleValue(t.Field(i).Type)
		}
		return out
	}
	return "x"
}

// fieldAt is the type of the field at a path of the table, and a document with
// something written there.
func fieldAt(t reflect.Type, path string) (reflect.Type, func(any) any) {
	if path == "" {
		return t, func(v any) any { return v }
	}
	if rest, ok := strings.CutPrefix(path, "[]"); ok {
		inner, wrap := fieldAt(t.Elem(), strings.TrimPrefix(rest, "."))
		if t.Kind() == reflect.Map {
			return inner, func(v any) any { return map[string]any{"a.example.com": wrap(v)} }
		}
		return inner, func(v any) any { return []any{wrap(v)} }
	}
	i := strings.IndexAny(path, ".[")
	if i < 0 {
		i = len(path)
	}
	name, rest := path[:i], strings.TrimPrefix(path[i:], ".")
	for f := range t.NumField() {
		if t.Field(f).Tag.Get("json") == name {
			inner, wrap := fieldAt(t.Field(f).Type, rest)
			return inner, func(v any) any { return map[string]any{name: wrap(v)} }
		}
	}
	panic("no field " + name)
}

// Each field that is not mapped is named with its id and its place; written
// without a meaning it is passed over.
func TestConvert_NamesUnmappedFields(t *testing.T) {
	ids := map[fate]string{dropped: idNotConverted, lost: idLost, later: idNotSupportedYet}
	for name, f := range fields {
		if f.fate == mapped || name == "status" || name == "metadata.namespace" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			typ, wrap := fieldAt(reflect.TypeFor[clusterSpec](), strings.TrimPrefix(name, "spec."))
			for _, tc := range []struct {
				value any
				named bool
			}{{sampleValue(typ), true}, {reflect.Zero(typ).Interface(), false}} {
				fragment, err := json.Marshal(wrap(tc.value))
				if err != nil {
					t.Fatal(err)
				}
				if name == "spec.hosts[].timeout" {
					fragment = fmt.Appendf(nil, `{"hosts":[{"name":"a","address":"10.0.0.1","timeout":%v}],"roleGroups":{"master":["a"]}}`, tc.value)
					if !tc.named {
						fragment = []byte(strings.Replace(string(fragment), "<nil>", "null", 1))
					}
				}
				r, err := Convert(mergeIntoBase(t, string(fragment)), testOptions("kk.yaml"))
				var said diag.List
				if !errors.As(err, &said) && err == nil {
					said = r.Warnings
				}
				i := slices.IndexFunc(said, func(d diag.Diagnostic) bool { return yamlfile.DocumentedPath(d.Path) == name && d.Message == f.text })
				switch {
				case tc.named && i < 0:
					t.Fatalf("%s is not named: %v", fragment, said)
				case !tc.named && i >= 0:
					t.Fatalf("%s is named: %v", fragment, said[i])
				case tc.named:
					d := said[i]
					if d.ID != ids[f.fate] || d.Line == 0 || (d.Severity == diag.Warning) != (f.fate == dropped) {
						t.Errorf("%+v", d)
					}
				}
			}
		})
	}
}

var fateWords = map[fate]string{mapped: "is", dropped: "not needed", lost: "no", later: "not yet"}

// docs/from-kubekey.md has the table of fields, line by line.
func TestPage_HasTheFieldTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/from-kubekey.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(apiVersion|kind|status|(?:metadata|spec)\\.[^`]+)` \\| "+
		"(.*) \\|$").FindAllStringSubmatch(string(page),
		-1) {
		documented = append(documented, m[1]+" | "+m[2])
	}
	var want []string
	for name, f := range fields {
		want = append(want, name+" | "+fateWords[f.fate]+" | "+f.text)
	}
	slices.Sort(want)
	slices.Sort(documented)
	if d := cmp.Diff(want, documented); d != "" {
		t.Errorf("the table and docs/from-kubekey.md differ (-table +page):\n%s", d)
	}
}
