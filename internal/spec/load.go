// Package spec converts a cluster file into API types: strict, with the place of every
// field, defaults, and a validation that reports all problems at once. Load, SetDefaults and
// Validate work the same for a file, an object and a request.
package spec

import (
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
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

	positions yamlfile.Positions
}

// Load calls Loader.Load of the zero Loader.
func Load(file string, data []byte) (*Loaded, error) { return Loader{}.Load(file, data) }

// Load reads a cluster from data; file is its name in diagnostics. The error is a
// diag.List of all problems, with warnings, in the order of the file. Without Files it
// reads no other file. Missing fields get their defaults, except the endpoint mode and
// the kubelet configuration, which an existing cluster can keep.
func (l Loader) Load(file string, data []byte) (*Loaded, error) {
	d := &yamlfile.Decoder{File: file, Positions: yamlfile.Positions{}, FieldParents: clusterFieldParents}
	c := &v1alpha1.Cluster{}
	if root := readDocument(d, data); root != nil {
		decodeCluster(d, root, c)
	}
	c.Status = v1alpha1.ClusterStatus{} // past state; files from "get -o yaml" have it
	loaded := &Loaded{Cluster: c, Source: data, File: file, positions: d.Positions}
	all := d.Problems
	if !d.Unreadable {
		said := c.DeepCopy().Spec
		SetDefaults(c, DefaultOptions{KubernetesVersion: l.KubernetesVersion})
		options := ValidateOptions{Supported: l.Supported}
		if l.Recorded != nil {
			options.Recorded = l.Recorded(c.Name)
		}
		found := Validate(c, options)
		if l.Files != nil {
			found = append(found, CheckFiles(c, *l.Files)...)
		}
		all = append(all, loaded.AddPositions(d.DropEchoes(found))...)
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
	p := l.positions.At(path)
	return p.Line, p.Column
}

// AddPositions adds file, line and column to diagnostics.
func (l *Loaded) AddPositions(list diag.List) diag.List {
	out := make(diag.List, len(list))
	for i, d := range list {
		d.File = l.File
		d.Line, d.Column = l.Position(d.Path)
		out[i] = d
	}
	return out
}

// readDocument returns the only non-empty document, or nil with diagnostics that explain why.
func readDocument(d *yamlfile.Decoder, data []byte) *yaml.Node {
	docs, problem := yamlfile.ReadDocuments(d.File, data)
	switch {
	case problem != nil:
		d.Unreadable = true
		d.Problems = append(d.Problems, *problem)
		return nil
	case len(docs) > 1:
		d.Unreadable = true
		d.Report(docs[1], "", idMultipleDocuments, "a second document begins here, but a cluster file has only one Cluster",
			"write each cluster to its own file")
		return nil
	}
	return docs[0].Content[0]
}

// decodeCluster decodes a document of kind Cluster. Another kind gets only that one diagnostic,
// because its fields are unknown.
func decodeCluster(d *yamlfile.Decoder, root *yaml.Node, c *v1alpha1.Cluster) {
	if root.Kind == yaml.MappingNode && !checkKind(d, root) {
		d.Unreadable = true
		return
	}
	d.Unreadable = root.Kind != yaml.MappingNode
	d.Decode(root, c)
}

// checkKind reports whether the document is a Cluster, and adds an error if it is not. If
// apiVersion or kind is missing, Validate reports it.
func checkKind(d *yamlfile.Decoder, root *yaml.Node) bool {
	ok := true
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i].Value, root.Content[i+1]
		want := map[string]string{"apiVersion": v1alpha1.APIVersion, "kind": Kind}[key]
		if want != "" && value.Kind == yaml.ScalarNode && value.Value != want {
			hint := "begin the file with 'apiVersion: " + v1alpha1.APIVersion + "' and 'kind: " + Kind + "'"
			if strings.HasPrefix(value.Value, "kubekey.kubesphere.io/") {
				hint = "convert this KubeKey file: slipway convert -f FILE"
			}
			d.Report(value, key, idUnknownKind, "found "+strconv.Quote(value.Value)+", expected "+strconv.Quote(want), hint)
			ok = false
		}
	}
	return ok
}

// clusterFieldParents returns the places in a cluster file for fields with a name.
func clusterFieldParents(name string) []string {
	return yamlfile.FindFieldParents(reflect.TypeFor[v1alpha1.ClusterSpec](), "spec", name)
}
