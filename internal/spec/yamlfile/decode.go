package yamlfile

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

// A Decoder fills Go values from YAML by their json tags, and records every problem and
// the place of every field.
type Decoder struct {
	// File is the name of the file in diagnostics.
	File string
	// FoldCase reports whether field names match in any case, as in encoding/json.
	FoldCase bool
	// FieldParents, if set, returns the paths below which a field with a name exists.
	// The hint for a misplaced field lists them.
	FieldParents func(name string) []string

	// Problems lists the diagnostics so far.
	Problems diag.List
	// Positions has the places of the fields that were decoded; it must not be nil.
	Positions Positions
	// Unreadable reports whether there is nothing to validate.
	Unreadable bool

	// broken lists the paths whose values could not be decoded.
	broken []string

	values, depth int
	tooLarge      bool
}

// Report adds an error at a node and marks the value at path as broken.
func (d *Decoder) Report(at *yaml.Node, path, id, message, hint string) {
	if len(d.Problems) >= maxProblems {
		d.tooLarge = true
		return
	}
	d.Problems = append(d.Problems, diag.Diagnostic{
		ID: id, Severity: diag.Error, File: d.File, Line: at.Line, Column: at.Column,
		Path: path, Message: message, Hint: hint,
	})
	d.broken = append(d.broken, path)
}

// DropEchoes removes findings about values that could not be decoded, or about values
// that contain them: the value is not the written one.
func (d *Decoder) DropEchoes(found diag.List) diag.List {
	var out diag.List
next:
	for _, f := range found {
		for _, path := range d.broken {
			if IsWithin(path, f.Path) || IsWithin(f.Path, path) {
				continue next
			}
		}
		out = append(out, f)
	}
	return out
}

// Decode fills out, a pointer to a struct.
func (d *Decoder) Decode(root *yaml.Node, out any) {
	d.Positions[""] = Position{1, 1}
	d.decodeValue(root, reflect.ValueOf(out).Elem(), "")
	d.Unreadable = d.Unreadable || d.tooLarge
}

// followAlias follows aliases and counts values; nil means that the value must not be visited.
func (d *Decoder) followAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.values += 1 + len(n.Content)
	if d.tooLarge {
		return nil
	}
	if d.values > maxValues || d.depth > maxDepth {
		d.tooLarge = true
		d.Report(n, "", idTooLarge, "the file has too many values, or is nested too deeply, after its aliases are expanded",
			"write the file without aliases (&name, *name)")
		return nil
	}
	return n
}

// decodeValue decodes one node. A null leaves the zero value, as in Kubernetes.
func (d *Decoder) decodeValue(n *yaml.Node, v reflect.Value, path string) {
	d.depth++
	defer func() { d.depth-- }()
	if n = d.followAlias(n); n == nil || n.ShortTag() == "!!null" {
		return
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); ok && v.Kind() != reflect.Pointer {
		d.decodeJSON(n, u, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decodeValue(n, v.Elem(), path)
	case reflect.Struct:
		d.decodeStruct(n, v, path)
	case reflect.Slice:
		d.decodeList(n, v, path)
	case reflect.Map:
		d.decodeMap(n, v, path)
	case reflect.Interface:
		if x, ok := d.decodeAny(n, path); ok && x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		d.decodeScalar(n, v, path)
	}
}

func (d *Decoder) decodeStruct(n *yaml.Node, v reflect.Value, path string) {
	fields := FieldsOf(v.Type())
	for _, e := range d.listEntries(n, v.Type(), path) {
		name := e.key.Value
		at, ok := fields[name]
		if !ok && d.FoldCase {
			name, at, ok = findFieldFold(fields, name)
		}
		if !ok {
			d.reportUnknownField(e.key, v.Type(), path)
			continue
		}
		child := JoinPath(path, name)
		d.recordField(child, e.key, e.value)
		d.decodeValue(e.value, v.FieldByIndex(at), child)
	}
}

func (d *Decoder) decodeMap(n *yaml.Node, v reflect.Value, path string) {
	entries := d.listEntries(n, v.Type(), path)
	v.Set(reflect.MakeMapWithSize(v.Type(), len(entries)))
	for _, e := range entries {
		child := KeyPath(path, e.key.Value)
		d.Positions[child] = Position{e.key.Line, e.key.Column}
		item := reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(e.value, item, child)
		v.SetMapIndex(reflect.ValueOf(e.key.Value).Convert(v.Type().Key()), item)
	}
}

func (d *Decoder) decodeList(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.reportWrongType(n, v.Type(), path)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		child := IndexPath(path, i)
		d.Positions[child] = Position{item.Line, item.Column}
		d.decodeValue(item, v.Index(i), child)
		if d.tooLarge {
			return
		}
	}
}

// recordField records the place of a field: its value, or its name if a block follows.
func (d *Decoder) recordField(path string, key, value *yaml.Node) {
	at := value
	if value.Kind == yaml.MappingNode || value.Kind == yaml.SequenceNode || value.Line == 0 {
		at = key
	}
	d.Positions[path] = Position{at.Line, at.Column}
}

// decodeJSON decodes types with a separate JSON form: durations, times.
func (d *Decoder) decodeJSON(n *yaml.Node, u json.Unmarshaler, path string) {
	x, ok := d.decodeAny(n, path)
	if !ok {
		return
	}
	data, err := json.Marshal(x)
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		d.reportWrongType(n, reflect.TypeOf(u).Elem(), path)
	}
}

var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

func (d *Decoder) decodeScalar(n *yaml.Node, v reflect.Value, path string) {
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
		d.reportWrongType(n, v.Type(), path)
	}
}

// decodeAny decodes a value without a Go type into JSON types: map[string]any, []any, string,
// bool, int64, float64, nil.
func (d *Decoder) decodeAny(n *yaml.Node, path string) (any, bool) {
	d.depth++
	defer func() { d.depth-- }()
	if n = d.followAlias(n); n == nil {
		return nil, false
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		v := reflect.ValueOf(out)
		for _, e := range d.listEntries(n, v.Type(), path) {
			child := limitPath(path, KeyPath(path, e.key.Value))
			d.recordPosition(child, e.key)
			out[e.key.Value], _ = d.decodeAny(e.value, child)
		}
		return out, !d.tooLarge
	case yaml.SequenceNode:
		out := []any{}
		for i, item := range n.Content {
			child := limitPath(path, IndexPath(path, i))
			d.recordPosition(child, item)
			x, _ := d.decodeAny(item, child)
			out = append(out, x)
			if d.tooLarge {
				return nil, false
			}
		}
		return out, true
	}
	x, ok := parseScalar(n)
	if !ok {
		d.Report(n, path, IDWrongType, "found "+describeNode(n, path)+", which is not a finite 64-bit decimal number",
			"write a plain decimal number, or put the value in quotes")
	}
	return x, ok
}

// recordPosition records where a path begins in the file.
func (d *Decoder) recordPosition(path string, n *yaml.Node) {
	if _, known := d.Positions[path]; !known {
		d.Positions[path] = Position{n.Line, n.Column}
	}
}

// limitPath returns child, or path if it is long enough for a person: nested values must not
// cost the square of their depth.
func limitPath(path, child string) string {
	if len(child) > maxPath {
		return path
	}
	return child
}

func parseScalar(n *yaml.Node) (any, bool) {
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

// listEntries returns the entries of a mapping in order, with merges ("<<"): written entries
// have precedence over merged ones. Duplicates are reported and left out.
func (d *Decoder) listEntries(n *yaml.Node, t reflect.Type, path string) []entry {
	if n.Kind != yaml.MappingNode {
		d.reportWrongType(n, t, path)
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
			d.Report(n.Content[i], path, IDWrongType, "a key must be text", "")
		case first != nil:
			d.Report(n.Content[i], childPath(t, path, key.Value), idDuplicateKey,
				fmt.Sprintf("%q is given more than once; it is first set on line %d", key.Value, first.Line), "keep one of the two")
		default:
			seen[key.Value] = n.Content[i]
			out = append(out, entry{key, value})
		}
	}
	for _, m := range merged {
		for _, e := range d.mergeEntries(m, t, path) {
			if seen[e.key.Value] == nil {
				seen[e.key.Value] = e.key
				out = append(out, e)
			}
		}
	}
	return out
}

// mergeEntries returns the entries of "<<: *name" or "<<: [*a, *b]"; the first has precedence.
func (d *Decoder) mergeEntries(n *yaml.Node, t reflect.Type, path string) []entry {
	d.depth++
	defer func() { d.depth-- }()
	if n = d.followAlias(n); n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return d.listEntries(n, t, path)
	}
	var out []entry
	for _, item := range n.Content {
		out = append(out, d.mergeEntries(item, t, path)...)
	}
	return out
}
