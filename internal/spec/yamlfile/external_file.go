package yamlfile

import (
	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/diag"
)

// An ExternalFile is a file of another program, read with the place of every field. Its
// documents are the non-empty ones, in order.
type ExternalFile struct {
	Documents []ExternalDocument
}

// An ExternalDocument is one document of such a file.
type ExternalDocument struct {
	APIVersion, Kind string
	// Line and Column are its start, from 1.
	Line, Column int

	file      string
	root      *yaml.Node
	positions Positions
}

// ReadExternalFile parses a file. The error is a diag.List: the file is empty, or not valid
// YAML.
func ReadExternalFile(file string, data []byte) (*ExternalFile, error) {
	docs, problem := ReadDocuments(file, data)
	if problem != nil {
		return nil, diag.List{*problem}
	}
	f := &ExternalFile{}
	for _, doc := range docs {
		root := doc.Content[0]
		f.Documents = append(f.Documents, ExternalDocument{
			APIVersion: scalarField(root, "apiVersion"), Kind: scalarField(root, "kind"),
			Line: root.Line, Column: root.Column, file: file, root: root,
		})
	}
	return f, nil
}

// scalarField returns the text of a field of a mapping, "" if it does not exist.
func scalarField(root *yaml.Node, name string) string {
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
func (f *ExternalDocument) Decode(out any) diag.List {
	d := &Decoder{File: f.file, Positions: Positions{}, FoldCase: true}
	d.Decode(f.root, out)
	f.positions = d.Positions
	for i := range d.Problems {
		if d.Problems[i].ID == idUnknownField {
			d.Problems[i].Severity = diag.Warning
		}
	}
	return d.Problems
}

// Position returns the place of the field at path, from 1: the field itself, or its
// parent if the field is not written. A document must be decoded first.
func (f *ExternalDocument) Position(path string) (line, col int) {
	p := f.positions.At(path)
	return p.Line, p.Column
}

// IsWritten reports whether the field at path is in the document.
func (f *ExternalDocument) IsWritten(path string) bool {
	_, ok := f.positions[path]
	return ok
}
