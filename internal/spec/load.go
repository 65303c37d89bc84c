// Package spec turns a cluster file into API types: strict, with the place of
// every field, defaults, and validation that reports all problems at once.
// Load, Default and Validate are the same call for a file, an object and a
// request.
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

// A Loader reads cluster files. The zero value leaves an unwritten version
// empty and accepts every well-formed one.
type Loader struct {
	// KubernetesVersion is the default of spec.kubernetes.version.
	KubernetesVersion string
	// Supported refuses a Kubernetes version; its error says which are
	// supported. Nil supports all.
	Supported func(version string) error
	// Files, if set, looks at the files that the cluster names, too.
	Files *Paths
	// Recorded, if set, returns the cluster of a name that exists, nil if there is none:
	// it may keep what is refused for a new one.
	Recorded func(name string) *v1alpha1.Cluster
}

// Loaded is a cluster from a file: valid, with its defaults.
type Loaded struct {
	Cluster *v1alpha1.Cluster
	// Source is the file as it was read; it may hold inline secrets.
	Source []byte
	File   string
	// Warnings are the diagnostics that do not refuse the file.
	Warnings diag.List

	positions positions
}

// Load is Loader.Load of the zero Loader.
func Load(file string, data []byte) (*Loaded, error) { return Loader{}.Load(file, data) }

// Load reads a cluster from data; file is its name in diagnostics. The error
// is a diag.List of all problems, warnings included, in the order of the file.
// Without Files it reads no other file. What the file leaves out has its default,
// but for the endpoint's mode, and for what kubelets serve with.
func (l Loader) Load(file string, data []byte) (*Loaded, error) {
	d := &decoder{file: file, positions: positions{}}
	c := &v1alpha1.Cluster{}
	if root := d.document(data); root != nil {
		d.cluster(root, c)
	}
	c.Status = v1alpha1.ClusterStatus{} // of another time; files from "get -o yaml" carry it
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
		// A cluster that exists may keep what it has.
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

// Position is where the field at path is, from 1: the field itself, or what
// holds it if it is not written; 0, 0 for a path outside the file.
func (l *Loaded) Position(path string) (line, col int) {
	p := l.positions.of(path)
	return p.line, p.column
}

// Place gives diagnostics their file, line and column.
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

// parentPath cuts the last field, index or [key].
func parentPath(path string) string {
	if strings.HasSuffix(path, "]") {
		if i := strings.LastIndex(path, "["); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(strings.LastIndex(path, "."), 0)]
}

// document is the only document that holds anything, or nil with diagnostics
// that say why.
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

// documents are those of a file that hold anything, at least one, or what is
// wrong with it.
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

// cluster decodes a document that says that it is a Cluster. One of another
// kind gets that one diagnostic: its fields are not ours to judge.
func (d *decoder) cluster(root *yaml.Node, c *v1alpha1.Cluster) {
	if root.Kind == yaml.MappingNode && !d.isCluster(root) {
		d.unreadable = true
		return
	}
	d.unreadable = root.Kind != yaml.MappingNode
	d.decode(root, c)
}

// isCluster compares apiVersion and kind; those that are missing are left to
// Validate.
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
			d.report(value, key, idUnknownKind, "found "+strconv.Quote(value.Value)+", but a cluster file has "+strconv.Quote(want), hint)
			ok = false
		}
	}
	return ok
}

var syntaxLine = regexp.MustCompile(`line (\d+): `)

// syntaxError places what the YAML parser says: it knows the line alone.
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
