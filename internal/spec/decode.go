package spec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/diag"
)

// Limits of a file after its aliases are expanded, so that a few lines cannot become a
// billion. A cluster of a thousand hosts has about 30,000 values.
const (
	maxValues = 1_000_000
	maxDepth  = 100
	maxPath   = 400
	// More problems than this would not help anyone.
	maxProblems = 1000
)

// A decoder fills Go values from YAML by their json tags, and records every problem and
// the place of every field.
type decoder struct {
	file      string
	diags     diag.List
	positions positions
	// broken lists the paths whose values could not be decoded.
	broken []string
	// unreadable reports whether there is nothing to validate.
	unreadable bool
	// foreign reports whether the fields belong to another program, whose names are
	// matched in any case, as in encoding/json.
	foreign bool

	values, depth int
	tooLarge      bool
}

func (d *decoder) report(at *yaml.Node, path, id, message, hint string) {
	if len(d.diags) >= maxProblems {
		d.tooLarge = true
		return
	}
	d.diags = append(d.diags, diag.Diagnostic{
		ID: id, Severity: diag.Error, File: d.file, Line: at.Line, Column: at.Column,
		Path: path, Message: message, Hint: hint,
	})
	d.broken = append(d.broken, path)
}

// withoutEchoes removes findings about values that could not be decoded, or about values
// that contain them: the value is not the written one.
func (d *decoder) withoutEchoes(found diag.List) diag.List {
	var out diag.List
next:
	for _, f := range found {
		for _, path := range d.broken {
			if within(path, f.Path) || within(f.Path, path) {
				continue next
			}
		}
		out = append(out, f)
	}
	return out
}

// within reports whether path is outer or a part of it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

// decode fills out, a pointer to a struct.
func (d *decoder) decode(root *yaml.Node, out any) {
	d.positions[""] = position{1, 1}
	d.value(root, reflect.ValueOf(out).Elem(), "")
	d.unreadable = d.unreadable || d.tooLarge
}

// enter follows aliases and counts values; nil means that the value must not be visited.
func (d *decoder) enter(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.values += 1 + len(n.Content)
	if d.tooLarge {
		return nil
	}
	if d.values > maxValues || d.depth > maxDepth {
		d.tooLarge = true
		d.report(n, "", idTooLarge, "the file has too many values, or is nested too deeply, after its aliases are expanded",
			"write the file without aliases (&name, *name)")
		return nil
	}
	return n
}

// value decodes one node. A null leaves the zero value, as in Kubernetes.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	d.depth++
	defer func() { d.depth-- }()
	if n = d.enter(n); n == nil || n.ShortTag() == "!!null" {
		return
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); ok && v.Kind() != reflect.Pointer {
		d.unmarshal(n, u, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Interface:
		if x, ok := d.any(n, path); ok && x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	for _, e := range d.entries(n, v.Type(), path) {
		name := e.key.Value
		at, ok := fields[name]
		if !ok && d.foreign {
			name, at, ok = foldedField(fields, name)
		}
		if !ok {
			d.unknownField(e.key, v.Type(), path)
			continue
		}
		child := joinPath(path, name)
		d.mark(child, e.key, e.value)
		d.value(e.value, v.FieldByIndex(at), child)
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	entries := d.entries(n, v.Type(), path)
	v.Set(reflect.MakeMapWithSize(v.Type(), len(entries)))
	for _, e := range entries {
		child := keyed(path, e.key.Value)
		d.positions[child] = position{e.key.Line, e.key.Column}
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, item, child)
		v.SetMapIndex(reflect.ValueOf(e.key.Value).Convert(v.Type().Key()), item)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.wrongType(n, v.Type(), path)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		child := indexed(path, i)
		d.positions[child] = position{item.Line, item.Column}
		d.value(item, v.Index(i), child)
		if d.tooLarge {
			return
		}
	}
}

// mark records the place of a field: its value, or its name if a block follows.
func (d *decoder) mark(path string, key, value *yaml.Node) {
	at := value
	if value.Kind == yaml.MappingNode || value.Kind == yaml.SequenceNode || value.Line == 0 {
		at = key
	}
	d.positions[path] = position{at.Line, at.Column}
}

// unmarshal is for types with a separate JSON form: durations, times.
func (d *decoder) unmarshal(n *yaml.Node, u json.Unmarshaler, path string) {
	x, ok := d.any(n, path)
	if !ok {
		return
	}
	data, err := json.Marshal(x)
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		d.wrongType(n, reflect.TypeOf(u).Elem(), path)
	}
}

var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	tag := n.ShortTag()
	ok := n.Kind == yaml.ScalarNode
	switch v.Kind() {
	case reflect.String:
		// A plain date is text here.
		if ok = ok && (tag == "!!str" || tag == "!!timestamp"); ok {
			v.SetString(n.Value)
		}
	case reflect.Bool:
		if ok = ok && tag == "!!bool"; ok {
			v.SetBool(strings.EqualFold(n.Value, "true"))
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		// Other forms are rejected: YAML reads 022 as 18.
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if ok = ok && tag == "!!int" && decimal.MatchString(n.Value) && err == nil && !v.OverflowInt(i); ok {
			v.SetInt(i)
		}
	default:
		ok = false
	}
	if !ok {
		d.wrongType(n, v.Type(), path)
	}
}

// any decodes a value without a Go type into JSON types: map[string]any, []any, string,
// bool, int64, float64, nil.
func (d *decoder) any(n *yaml.Node, path string) (any, bool) {
	d.depth++
	defer func() { d.depth-- }()
	if n = d.enter(n); n == nil {
		return nil, false
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		v := reflect.ValueOf(out)
		for _, e := range d.entries(n, v.Type(), path) {
			child := deeper(path, keyed(path, e.key.Value))
			d.place(child, e.key)
			out[e.key.Value], _ = d.any(e.value, child)
		}
		return out, !d.tooLarge
	case yaml.SequenceNode:
		out := []any{}
		for i, item := range n.Content {
			child := deeper(path, indexed(path, i))
			d.place(child, item)
			x, _ := d.any(item, child)
			out = append(out, x)
			if d.tooLarge {
				return nil, false
			}
		}
		return out, true
	}
	x, ok := plainScalar(n)
	if !ok {
		d.report(n, path, idWrongType, "found "+foundName(n, path)+", which cannot be kept as a number",
			"write a plain decimal number, or put the value in quotes")
	}
	return x, ok
}

// place records where a path begins in the file.
func (d *decoder) place(path string, n *yaml.Node) {
	if _, known := d.positions[path]; !known {
		d.positions[path] = position{n.Line, n.Column}
	}
}

// deeper returns child, or path if it is long enough for a person: nested values must not
// cost the square of their depth.
func deeper(path, child string) string {
	if len(child) > maxPath {
		return path
	}
	return child
}

func plainScalar(n *yaml.Node) (any, bool) {
	switch n.ShortTag() {
	case "!!null":
		return nil, true
	case "!!str", "!!timestamp":
		return n.Value, true
	case "!!bool":
		return strings.EqualFold(n.Value, "true"), true
	case "!!int":
		i, err := strconv.ParseInt(n.Value, 10, 64)
		return i, err == nil && decimal.MatchString(n.Value)
	case "!!float":
		f, err := strconv.ParseFloat(n.Value, 64)
		_, jsonErr := json.Marshal(f) // no infinity, no NaN
		return f, err == nil && jsonErr == nil
	}
	return nil, false
}

// An entry is one key of a mapping.
type entry struct{ key, value *yaml.Node }

// entries returns the entries of a mapping in order, with merges ("<<"): written entries
// have precedence over merged ones. Duplicates are reported and left out.
func (d *decoder) entries(n *yaml.Node, t reflect.Type, path string) []entry {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, t, path)
		return nil
	}
	var out []entry
	seen := map[string]*yaml.Node{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch first := seen[key.Value]; {
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			d.report(n.Content[i], path, idWrongType, "a key must be text", "")
		case first != nil:
			d.report(n.Content[i], childPath(t, path, key.Value), idDuplicateKey,
				fmt.Sprintf("%q is given more than once; it is first set on line %d", key.Value, first.Line), "keep one of the two")
		default:
			seen[key.Value] = n.Content[i]
			out = append(out, entry{key, value})
		}
	}
	for _, m := range merged {
		for _, e := range d.merge(m, t, path) {
			if seen[e.key.Value] == nil {
				seen[e.key.Value] = e.key
				out = append(out, e)
			}
		}
	}
	return out
}

// merge returns the entries of "<<: *name" or "<<: [*a, *b]"; the first has precedence.
func (d *decoder) merge(n *yaml.Node, t reflect.Type, path string) []entry {
	d.depth++
	defer func() { d.depth-- }()
	if n = d.enter(n); n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return d.entries(n, t, path)
	}
	var out []entry
	for _, item := range n.Content {
		out = append(out, d.merge(item, t, path)...)
	}
	return out
}
