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

// ListReferences returns the references at which the mirrors of a registry have the content of ref, in the order of the mirrors.
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
			if err != nil || u.Scheme != "https" && !slices.Contains(plain, u.Host) {
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

// findNamespace returns the namespace in the path of a mirror, "" or "/team".
func findNamespace(path string) (namespace string, ok bool) {
	path = strings.TrimSuffix(path, "/")
	if path == "" || path == "/v2" {
		return "", true
	}
	namespace, ok = strings.CutPrefix(path, "/v2/")
	return "/" + namespace, ok
}

// suffixOf returns ":tag" or "@digest".
func suffixOf(ref name.Reference) string {
	if _, ok := ref.(name.Digest); ok {
		return "@" + ref.Identifier()
	}
	return ":" + ref.Identifier()
}

// Open opens the first reference that open accepts. err is the error of the registry. If no mirror has the content, it is
// returned with the errors of the mirrors.
func Open[T any](err error, references []string, open func(reference string) (T, error)) (T, error) {
	var list diag.List
	isKnown := errors.As(err, &list) && len(list) > 0
	list = slices.Clone(list)
	for _, reference := range references {
		is, failed := open(reference)
		if failed == nil {
			return is, nil
		}
		if isKnown {
			list[0].Message += "; from a mirror: " + failed.Error()
		}
	}
	var none T
	if isKnown {
		return none, list
	}
	return none, err
}
