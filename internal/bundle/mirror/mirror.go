// Package mirror finds the references at which mirrors of a registry have its content.
package mirror

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/registryname"
)

// ListReferences returns the references at which the mirrors of a registry have what ref names, in the order of the mirrors.
// mirrors maps registries to URLs: https://host has the same repositories, and https://host/v2/team has them in a namespace. A
// mirror with another path has no reference. A mirror without TLS is used only if its host is in plain.
func ListReferences(ref name.Reference, mirrors map[string][]string, plain []string) (out []string) {
	registry := registryname.InImages(ref.Context().RegistryStr())
	for key, urls := range mirrors {
		if !registryname.Equal(key, registry) {
			continue
		}
		for _, text := range urls {
			u, err := url.Parse(text)
			if err != nil || u.Scheme != "https" && !slices.ContainsFunc(plain, isHost(u.Host)) {
				continue
			}
			namespace, ok := findNamespace(u.Path)
			if ok {
				out = append(out, u.Host+namespace+"/"+ref.Context().RepositoryStr()+suffixOf(ref))
			}
		}
	}
	return out
}

// isHost returns a function that reports whether a name is of a host.
func isHost(host string) func(name string) bool {
	return func(name string) bool { return registryname.Host(name) == registryname.Host(host) }
}

// findNamespace returns the namespace in the path of a mirror, "" or "/team".
func findNamespace(path string) (namespace string, ok bool) {
	path = strings.TrimSuffix(path, "/")
	if path == "" || path == "/v2" {
		return "", true
	}
	return strings.CutPrefix(path, "/v2")
}

// suffixOf returns ":tag" or "@digest".
func suffixOf(ref name.Reference) string {
	if _, ok := ref.(name.Digest); ok {
		return "@" + ref.Identifier()
	}
	return ":" + ref.Identifier()
}

// AddProblems adds the errors of mirrors to the error of a registry, nil for none.
func AddProblems(err error, mirrors []error) error {
	var list diag.List
	if !errors.As(err, &list) || len(list) == 0 || len(mirrors) == 0 {
		return err
	}
	list = slices.Clone(list)
	for _, problem := range mirrors {
		list[0].Message += "; from a mirror: " + problem.Error()
	}
	return list
}
