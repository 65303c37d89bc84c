package spec

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/diag"
)

// A Foreign is a file of another program, read with the place of every field. Its
// documents are the non-empty ones, in order.
type Foreign struct {
	Documents []ForeignDocument
}

// A ForeignDocument is one document of such a file.
type ForeignDocument struct {
	APIVersion, Kind string
	// Line and Column are its start, from 1.
	Line, Column int

	file      string
	root      *yaml.Node
	positions positions
}

// ReadForeign parses a file. The error is a diag.List: the file is empty, or not valid
// YAML.
func ReadForeign(file string, data []byte) (*Foreign, error) {
	docs, problem := documents(file, data)
	if problem != nil {
		return nil, diag.List{*problem}
	}
	f := &Foreign{}
	for _, doc := range docs {
		root := doc.Content[0]
		f.Documents = append(f.Documents, ForeignDocument{
			APIVersion: topLevel(root, "apiVersion"), Kind: topLevel(root, "kind"),
			Line: root.Line, Column: root.Column, file: file, root: root,
		})
	}
	return f, nil
}

// topLevel returns the text of a field of a mapping, "" if it does not exist.
func topLevel(root *yaml.Node, name string) string {
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == name && root.Content[i+1].Kind == yaml.ScalarNode {
			return root.Content[i+1].Value
		}
	}
	return ""
}

// Decode fills out, a pointer to a struct, by its JSON names, in any case. Errors are
// values of another type and duplicate keys; an unknown field is a warning, because most
// programs ignore it.
func (f *ForeignDocument) Decode(out any) diag.List {
	d := &decoder{file: f.file, positions: positions{}, foreign: true}
	d.decode(f.root, out)
	f.positions = d.positions
	for i := range d.diags {
		if d.diags[i].ID == idUnknownField {
			d.diags[i].Severity = diag.Warning
		}
	}
	return d.diags
}

// Position returns the place of the field at path, from 1: the field itself, or its
// parent if the field is not written. A document must be decoded first.
func (f *ForeignDocument) Position(path string) (line, col int) {
	p := f.positions.of(path)
	return p.line, p.column
}

// Written reports whether the field at path is in the document.
func (f *ForeignDocument) Written(path string) bool {
	_, ok := f.positions[path]
	return ok
}

// Within reports whether the field at path is the one at outer, or a part of it.
func Within(path, outer string) bool { return within(path, outer) }

// Suggest returns a hint for an unknown word: a similar word, else all known words.
func Suggest(word string, known []string) string { return suggest(word, known) }

// FieldPath returns a path in the form of the documentation, without list indexes:
// "spec.hosts[].name".
func FieldPath(path string) string {
	var b strings.Builder
	for path != "" {
		before, rest, ok := strings.Cut(path, "[")
		b.WriteString(before)
		if !ok {
			break
		}
		_, path, _ = strings.Cut(rest, "]")
		b.WriteString("[]")
	}
	return b.String()
}
