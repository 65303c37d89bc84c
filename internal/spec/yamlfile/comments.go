package yamlfile

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Comments maps the path of a field to comment lines above it: "spec.hosts[0].ssh". A
// field that is not written uses the comment of its parent; "" is the top of the file.
type Comments map[string][]string

// Add appends a sentence, unless it exists already.
func (c Comments) Add(path, text string) {
	if !slices.Contains(c[path], text) {
		c[path] = append(c[path], text)
	}
}

// commentWidth is the line width of comments, without indentation.
const commentWidth = 76

// AddComments adds comments to a document of a Go type, and sorts its fields in the order
// of the type.
func AddComments(plain []byte, t reflect.Type, comments Comments) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(plain, &doc); err != nil {
		return nil, fmt.Errorf("reading the generated file: %w", err)
	}
	root := doc.Content[0]
	w := &commenter{at: map[string]*yaml.Node{"": &doc}}
	w.visitNode(root, t, "")
	for _, path := range slices.Sorted(maps.Keys(comments)) {
		place := path
		for w.at[place] == nil {
			place = parentPath(place)
		}
		var lines []string
		for _, text := range comments[path] {
			lines = append(lines, wrapComment(text, commentWidth)...)
		}
		if n := w.at[place]; n.HeadComment == "" {
			n.HeadComment = strings.Join(lines, "\n")
		} else {
			n.HeadComment += "\n" + strings.Join(lines, "\n")
		}
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, fmt.Errorf("writing the file: %w", err)
	}
	return out.Bytes(), nil
}

// wrapComment breaks a text into lines of a comment.
func wrapComment(text string, width int) []string {
	var lines []string
	line := "#"
	for _, word := range strings.Fields(text) {
		if len(line) > 1 && len(line)+1+len(word) > width {
			lines, line = append(lines, line), "#"
		}
		line += " " + word
	}
	return append(lines, line)
}

// A commenter sorts the fields of a document and finds the node for each comment.
type commenter struct{ at map[string]*yaml.Node }

func (w *commenter) visitNode(n *yaml.Node, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		if isShortList(n) {
			n.Style = yaml.FlowStyle
		}
		for i, item := range n.Content {
			child := IndexPath(path, i)
			w.at[child] = item
			w.visitNode(item, t.Elem(), child)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		sortFields(n, t)
		fields := FieldsOf(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			child := JoinPath(path, n.Content[i].Value)
			w.at[child] = n.Content[i]
			if at, ok := fields[n.Content[i].Value]; ok {
				w.visitNode(n.Content[i+1], t.FieldByIndex(at).Type, child)
			}
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			child := KeyPath(path, n.Content[i].Value)
			w.at[child] = n.Content[i]
			w.visitNode(n.Content[i+1], t.Elem(), child)
		}
	}
}

// isShortList reports whether a list is short and has only scalars, so that it fits on a
// line.
func isShortList(n *yaml.Node) bool {
	size := 0
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			return false
		}
		size += len(item.Value) + 2
	}
	return size <= commentWidth
}

// sortFields sorts the entries of a mapping in the order of the struct's fields.
func sortFields(n *yaml.Node, t reflect.Type) {
	order := map[string]int{"metadata": -1}
	rankFields(t, order)
	type pair struct{ key, value *yaml.Node }
	var pairs []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		pairs = append(pairs, pair{n.Content[i], n.Content[i+1]})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return order[a.key.Value] - order[b.key.Value] })
	n.Content = n.Content[:0]
	for _, p := range pairs {
		n.Content = append(n.Content, p.key, p.value)
	}
}

// rankFields numbers the fields of a struct. The fields of inlined structs, such as kind
// and apiVersion, come first.
func rankFields(t reflect.Type, order map[string]int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && strings.Contains(options, "inline") {
			order["apiVersion"], order["kind"] = -3, -2
			continue
		}
		if _, set := order[name]; !set {
			order[name] = i
		}
	}
}
