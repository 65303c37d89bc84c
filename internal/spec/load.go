// Package spec converts a cluster file into API types: strict, with the place of every
// field, defaults, and a validation that reports all problems at once. Load, Default and
// Validate work the same for a file, an object and a request.
package spec

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// Kind is the kind of a cluster file.
const Kind = "Cluster"

// A Loader reads cluster files. The zero value leaves a missing version empty and accepts
// every well-formed version.
type Loader struct {
	// KubernetesVersion is the default of spec.kubernetes.version.
	KubernetesVersion string
	// Supported returns an error for an unsupported Kubernetes version, which lists the
	// supported ones. Nil supports all.
	Supported func(version string) error
	// Files, if set, also checks the files that the cluster names.
	Files *Paths
	// Recorded, if set, returns the existing cluster with a name, nil if there is none:
	// it can keep settings that are rejected for a new cluster.
	Recorded func(name string) *v1alpha1.Cluster
}

// Loaded is a cluster from a file: valid, with its defaults.
type Loaded struct {
	Cluster *v1alpha1.Cluster
	// Source is the file as it was read; it can contain inline secrets.
	Source []byte
	File   string
	// Warnings lists the diagnostics with which the file is still accepted.
	Warnings diag.List

	positions positions
}

// Load calls Loader.Load of the zero Loader.
func Load(file string, data []byte) (*Loaded, error) { return Loader{}.Load(file, data) }

// Load reads a cluster from data; file is its name in diagnostics. The error is a
// diag.List of all problems, with warnings, in the order of the file. Without Files it
// reads no other file. Missing fields get their defaults, except the endpoint mode and
// the kubelet configuration, which an existing cluster can keep.
func (l Loader) Load(file string, data []byte) (*Loaded, error) {
	d := &decoder{file: file, positions: positions{}}
	c := &v1alpha1.Cluster{}
	if root := d.document(data); root != nil {
		d.cluster(root, c)
	}
	c.Status = v1alpha1.ClusterStatus{} // past state; files from "get -o yaml" have it
	loaded := &Loaded{Cluster: c, Source: data, File: file, positions: d.positions}
	all := d.diags
	if !d.unreadable {
		said := Copy(c).Spec
		Default(c, DefaultOptions{KubernetesVersion: l.KubernetesVersion})
		options := ValidateOptions{Supported: l.Supported}
		if l.Recorded != nil {
			options.Recorded = l.Recorded(c.Name)
		}
		found := Validate(c, options)
		if l.Files != nil {
			found = append(found, CheckFiles(c, *l.Files)...)
		}
		all = append(all, loaded.Place(d.withoutEchoes(found))...)
		// An existing cluster can keep its settings.
		c.Spec.ControlPlaneEndpoint.Mode = said.ControlPlaneEndpoint.Mode
		c.Spec.Kubernetes.Kubelet.Config = said.Kubernetes.Kubelet.Config
	}
	all.Sort()
	loaded.Warnings = all.Warnings()
	if len(all.Errors()) > 0 {
		return nil, all
	}
	return loaded, nil
}

// Position returns the place of the field at path, from 1: the field itself, or its
// parent if the field is not written; 0, 0 for a path outside the file.
func (l *Loaded) Position(path string) (line, col int) {
	p := l.positions.of(path)
	return p.line, p.column
}

// Place adds file, line and column to diagnostics.
func (l *Loaded) Place(list diag.List) diag.List {
	out := make(diag.List, len(list))
	for i, d := range list {
		d.File = l.File
		d.Line, d.Column = l.Position(d.Path)
		out[i] = d
	}
	return out
}

// A position is a place in the file, from 1.
type position struct{ line, column int }

type positions map[string]position

// of falls back to the nearest parent that is in the file.
func (p positions) of(path string) position {
	for {
		if at, ok := p[path]; ok || path == "" {
			return at
		}
		path = parentPath(path)
	}
}

// parentPath removes the last field, index or [key].
func parentPath(path string) string {
	if strings.HasSuffix(path, "]") {
		if i := strings.LastIndex(path, "["); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(strings.LastIndex(path, "."), 0)]
}

// document returns the only non-empty document, or nil with diagnostics that explain why.
func (d *decoder) document(data []byte) *yaml.Node {
	docs, problem := documents(d.file, data)
	switch {
	case problem != nil:
		d.unreadable = true
		d.diags = append(d.diags, *problem)
		return nil
	case len(docs) > 1:
		d.unreadable = true
		d.report(docs[1], "", idMultipleDocuments, "a second document begins here, but a cluster file has only one Cluster",
			"write each cluster to its own file")
		return nil
	}
	return docs[0].Content[0]
}

// documents returns the non-empty documents of a file, at least one, or a diagnostic.
func documents(file string, data []byte) ([]*yaml.Node, *diag.Diagnostic) {
	var found []*yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			problem := syntaxError(file, data, err)
			return nil, &problem
		}
		if len(doc.Content) > 0 && doc.Content[0].ShortTag() != "!!null" {
			found = append(found, &doc)
		}
	}
	if len(found) == 0 {
		return nil, &diag.Diagnostic{
			ID: idEmptyFile, Severity: diag.Error, File: file,
			Message: "the file is empty", Hint: "run 'slipway create config' to write a complete file",
		}
	}
	return found, nil
}

// cluster decodes a document of kind Cluster. Another kind gets only that one diagnostic,
// because its fields are unknown.
func (d *decoder) cluster(root *yaml.Node, c *v1alpha1.Cluster) {
	if root.Kind == yaml.MappingNode && !d.isCluster(root) {
		d.unreadable = true
		return
	}
	d.unreadable = root.Kind != yaml.MappingNode
	d.decode(root, c)
}

// isCluster compares apiVersion and kind; if they are missing, Validate reports it.
func (d *decoder) isCluster(root *yaml.Node) bool {
	ok := true
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i].Value, root.Content[i+1]
		want := map[string]string{"apiVersion": v1alpha1.APIVersion, "kind": Kind}[key]
		if want != "" && value.Kind == yaml.ScalarNode && value.Value != want {
			hint := "begin the file with 'apiVersion: " + v1alpha1.APIVersion + "' and 'kind: " + Kind + "'"
			if strings.HasPrefix(value.Value, "kubekey.kubesphere.io/") {
				hint = "convert this KubeKey file: slipway convert -f FILE"
			}
			d.report(value, key, idUnknownKind, "found "+strconv.Quote(value.Value)+", expected "+strconv.Quote(want), hint)
			ok = false
		}
	}
	return ok
}

var syntaxLine = regexp.MustCompile(`line (\d+): `)

// syntaxError adds a place to an error of the YAML parser, which has only a line.
func syntaxError(file string, data []byte, err error) diag.Diagnostic {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	out := diag.Diagnostic{
		ID: idSyntax, Severity: diag.Error, File: file,
		Hint: "check the indentation, colons and quotes on this line and above it",
	}
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		out.Line, _ = strconv.Atoi(m[1]) // digits by the expression
		text = strings.Replace(text, m[0], "", 1)
	}
	out.Message = "the file is not valid YAML: " + text
	lines := strings.Split(string(data), "\n")
	if out.Line > 0 && out.Line <= len(lines) {
		line := lines[out.Line-1]
		plain := strings.TrimLeft(line, " \t")
		out.Column = len(line) - len(plain) + 1
		if strings.Contains(line[:out.Column-1], "\t") {
			out.Hint = "use spaces to indent: YAML does not allow tabs"
		}
	}
	return out
}
