// Package filesfrom resolves spec.filesFrom of a Cluster object: the keys of Secrets and
// ConfigMaps are the files that other fields of the object name.
//
// An object that Resolve accepts is safe to use, except for the duties in the documentation of
// package apicheck. One of them belongs to the Reader: the user of the object must be allowed to
// read its Secrets.
package filesfrom

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/apicheck"
)

// idTooLarge also reports too many files, in package apicheck.
const idTooLarge = "object-files-too-large"

// A Reader reads Secrets and ConfigMaps. An error for a missing object matches *NotFoundError.
type Reader interface {
	ReadSecret(ctx context.Context, namespace, name string) (Object, error)
	ReadConfigMap(ctx context.Context, namespace, name string) (Object, error)
}

// An Object is the content of a Secret or a ConfigMap.
type Object struct {
	// Data has the content by key: the fields data and binaryData of a ConfigMap, and the decoded
	// field data of a Secret. Resolve does not change it and keeps no reference to it.
	Data            map[string][]byte
	ResourceVersion string
}

// A NotFoundError reports that a Secret or ConfigMap does not exist.
type NotFoundError struct {
	Kind            Kind
	Namespace, Name string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s %s in namespace %s does not exist", e.Kind, e.Name, e.Namespace)
}

// Kind is the kind of a source.
type Kind string

// The kinds of sources.
const (
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
)

// A Source names an object that was read, in the version from which the files come.
type Source struct {
	Kind            Kind
	Name            string
	ResourceVersion string
}

// Resolved has the files of an object, and its sources without repetitions, in the order of
// spec.filesFrom.
type Resolved struct {
	Files   Files
	Sources []Source
}

// Resolve reads the sources of a cluster that spec.Validate accepts, each once, and checks the
// cluster with their files. The files have the keys of all sources; later sources override
// earlier ones.
//
// The error is a diag.List of all problems if the user has to change the cluster or its sources:
// see apicheck.Check. Any other error is an error of the Reader, or a missing namespace.
func Resolve(ctx context.Context, r Reader, c *v1alpha1.Cluster) (*Resolved, error) {
	if n := len(c.Spec.FilesFrom); n > spec.MaxFilesFrom {
		return nil, diag.List{{
			ID: idTooLarge, Severity: diag.Error, Path: "spec.filesFrom", Message: strconv.Itoa(n) + " sources are too many",
			Hint: "name at most " + strconv.Itoa(spec.MaxFilesFrom) + " Secrets and ConfigMaps",
		}}
	}
	if c.Namespace == "" && len(c.Spec.FilesFrom) > 0 {
		return nil, fmt.Errorf("resolving the files of cluster %s: the object has no namespace", c.Name)
	}
	q := query{reader: r, namespace: c.Namespace, known: map[Source]apicheck.Source{}}
	sources := make([]apicheck.Source, len(c.Spec.FilesFrom))
	var failed []error
	for i, source := range c.Spec.FilesFrom {
		var err error
		if sources[i], err = q.readSource(ctx, source); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil { // all others would fail, too
			break
		}
	}
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("resolving the files of cluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	if err := apicheck.Check(c, sources).Err(); err != nil {
		return nil, err
	}
	out := &Resolved{Files: Files{}, Sources: q.read}
	for name, content := range apicheck.MergeFiles(sources) {
		out.Files[name] = secret.New(string(content))
	}
	return out, nil
}

// A query reads the sources of one cluster.
type query struct {
	reader    Reader
	namespace string
	known     map[Source]apicheck.Source // by kind and name
	read      []Source
}

// readSource reads the object of an entry of spec.filesFrom, unless it is known already. A
// missing object is not an error: package apicheck reports it.
func (q *query) readSource(ctx context.Context, s v1alpha1.FilesSource) (apicheck.Source, error) {
	source, ok := sourceOf(s)
	if !ok {
		return apicheck.Source{}, nil
	}
	if known, ok := q.known[source]; ok {
		return known, nil
	}
	read := q.reader.ReadSecret
	if source.Kind == ConfigMap {
		read = q.reader.ReadConfigMap
	}
	object, err := read(ctx, q.namespace, source.Name)
	if errors.As(err, new(*NotFoundError)) {
		q.known[source] = apicheck.Source{}
		return apicheck.Source{}, nil
	}
	if err != nil {
		return apicheck.Source{}, fmt.Errorf("reading %s %s: %w", source.Kind, source.Name, err)
	}
	found := apicheck.Source{Found: true, Data: object.Data}
	q.known[source] = found
	source.ResourceVersion = object.ResourceVersion
	q.read = append(q.read, source)
	return found, nil
}

// sourceOf returns the kind and the name of an entry; false if no object can have the name.
func sourceOf(s v1alpha1.FilesSource) (Source, bool) {
	var out Source
	switch {
	case s.SecretRef != nil && s.ConfigMapRef == nil:
		out = Source{Kind: Secret, Name: s.SecretRef.Name}
	case s.ConfigMapRef != nil && s.SecretRef == nil:
		out = Source{Kind: ConfigMap, Name: s.ConfigMapRef.Name}
	}
	return out, len(validation.IsDNS1123Subdomain(out.Name)) == 0
}
