package yamlfile

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/diag"
)

// FieldsOf returns the fields of a struct by their JSON names, with the fields of inlined
// structs.
func FieldsOf(t reflect.Type) map[string][]int {
	out := map[string][]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && strings.Contains(options, "inline"):
			for inner, at := range FieldsOf(f.Type) {
				out[inner] = append([]int{i}, at...)
			}
		case name != "":
			out[name] = []int{i}
		}
	}
	return out
}

// findFieldFold finds a field whose name differs only in case.
func findFieldFold(fields map[string][]int, key string) (name string, at []int, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if strings.EqualFold(name, key) {
			return name, fields[name], true
		}
	}
	return "", nil, false
}

func fieldNames(t reflect.Type) []string {
	var out []string
	for name := range FieldsOf(t) {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// childPath returns the path of a key in a struct or a map.
func childPath(t reflect.Type, path, key string) string {
	if t.Kind() == reflect.Struct {
		return JoinPath(path, key)
	}
	return KeyPath(path, key)
}

// reportUnknownField suggests a sibling with a similar name, else the place in the file for a
// field with this name. The sibling is marked as broken, so that it is not also reported
// as missing.
func (d *Decoder) reportUnknownField(key *yaml.Node, t reflect.Type, path string) {
	hint := ""
	near := diag.NearestWords(key.Value, fieldNames(t))
	if len(near) > 0 {
		hint = diag.DidYouMean(key.Value, fieldNames(t))
		d.broken = append(d.broken, JoinPath(path, near[0]))
	} else if places := d.parentsOf(key.Value); len(places) > 0 {
		hint = "move it under " + strings.Join(places, " or ")
	} else if len(fieldNames(t)) <= 12 {
		hint = "use one of these fields: " + strings.Join(fieldNames(t), ", ")
	}
	where := path
	if where == "" {
		where = "the file"
	}
	d.Report(key, JoinPath(path, key.Value), idUnknownField, "there is no field "+strconv.Quote(key.Value)+" in "+where, hint)
}

func (d *Decoder) parentsOf(field string) []string {
	if d.FieldParents == nil {
		return nil
	}
	return d.FieldParents(field)
}

// FindFieldParents returns the parents of the fields with a name in a struct at path, at
// most three. It searches the types of the struct's package only.
func FindFieldParents(root reflect.Type, path, name string) []string {
	var out []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			if t.Kind() == reflect.Slice {
				path += "[]"
			}
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.PkgPath() != root.PkgPath() {
			return
		}
		for _, field := range fieldNames(t) {
			if field == name {
				out = append(out, path)
			}
			walk(t.FieldByIndex(FieldsOf(t)[field]).Type, JoinPath(path, field))
		}
	}
	walk(root, path)
	return out[:min(len(out), 3)]
}

// reportWrongType reports the found and the expected type, and how to write the value.
func (d *Decoder) reportWrongType(n *yaml.Node, t reflect.Type, path string) {
	want, hint := ExpectedType(t)
	found := describeNode(n, path)
	scalar := n.Kind == yaml.ScalarNode
	switch {
	case holdsSecret(path):
		hint = "put it in quotes"
	case scalar && t.Kind() == reflect.String && n.ShortTag() != "!!binary":
		hint = "put it in quotes: \"" + n.Value + "\""
	case scalar && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		hint = "write a list: [" + n.Value + "]"
	case scalar && n.ShortTag() != "!!str" && isWholeNumber(t) && decimal.MatchString(n.Value):
		found, hint = "the number "+n.Value+", which is too large", "write a smaller number"
	case scalar && QuotedHint(n.Value, t) != "":
		hint = QuotedHint(n.Value, t)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Slice:
		hint = "begin each item with '- '"
	}
	d.Report(n, path, IDWrongType, "found "+found+", expected "+want, hint)
}

func isWholeNumber(t reflect.Type) bool {
	return t.Kind() == reflect.Int || t.Kind() == reflect.Int32 || t.Kind() == reflect.Int64
}

// QuotedHint returns a hint for a number or a boolean that is written as text, "" for other
// texts.
func QuotedHint(text string, t reflect.Type) string {
	switch lower := strings.ToLower(text); t.Kind() {
	case reflect.Bool:
		switch {
		case slices.Contains([]string{"yes", "on", "y", "1"}, lower):
			return "write true"
		case slices.Contains([]string{"no", "off", "n", "0"}, lower):
			return "write false"
		case slices.Contains([]string{"true", "false"}, lower):
			return "remove the quotes: " + lower
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if decimal.MatchString(text) {
			return "remove the quotes: " + text
		}
	}
	return ""
}

// ExpectedType returns the name of a type for people, and a hint how to write a value.
func ExpectedType(t reflect.Type) (want, hint string) {
	if t == reflect.TypeFor[metav1.Duration]() {
		return "a duration", "write a number and a unit, h, m or s: 90s, 10m, 8760h (a year)"
	}
	if t == reflect.TypeFor[metav1.Time]() {
		return "a time", "write a time such as 2026-11-26T08:00:00Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "text", ""
	case reflect.Bool:
		return "true or false", "write true or false, without quotes"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number", "write decimal digits, without quotes"
	case reflect.Slice:
		return "a list", ""
	case reflect.Map:
		return "a mapping of keys to values", ""
	case reflect.Struct:
		return "a mapping", "use these fields: " + strings.Join(fieldNames(t), ", ")
	}
	return "of type " + t.String(), ""
}

// holdsSecret reports whether the value at path must not be printed.
func holdsSecret(path string) bool {
	return strings.HasSuffix(path, ".password") || strings.HasSuffix(path, ".privateKey")
}

func describeNode(n *yaml.Node, path string) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	name := map[string]string{
		"!!str": "text", "!!int": "a number", "!!float": "a number", "!!bool": "true or false",
		"!!timestamp": "a date",
	}[n.ShortTag()]
	if name == "" {
		name = n.ShortTag()
	}
	if holdsSecret(path) {
		return name
	}
	text := []rune(n.Value)
	if len(text) > 40 {
		text = append(text[:40], '…')
	}
	return name + " (" + strconv.Quote(string(text)) + ")"
}
