package kube

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// DecodeObjects decodes manifests: YAML or JSON with several documents. Lists are expanded, empty
// documents are skipped, and a duplicate key is an error.
func DecodeObjects(manifests []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading manifests, document %d: %w", n, err)
		}
		objs, err := decodeDocument(doc)
		if err != nil {
			return nil, fmt.Errorf("reading manifests, document %d: %w", n, err)
		}
		out = append(out, objs...)
	}
}

// decodeDocument reads one document.
func decodeDocument(doc []byte) ([]*unstructured.Unstructured, error) {
	raw, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil, nil
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		// The original error contains the whole document, which may be a Secret.
		return nil, errors.New("this is not a Kubernetes object: its kind is missing or invalid")
	}
	if !u.IsList() {
		return []*unstructured.Unstructured{u}, checkComplete(u)
	}
	list, err := u.ToList()
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
		if err := checkComplete(out[i]); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return out, nil
}

// checkComplete returns an error if an object cannot be applied.
func checkComplete(u *unstructured.Unstructured) error {
	for _, field := range []string{"name", "namespace"} {
		// In YAML, an unquoted n, yes or 1 is not text.
		if _, _, err := unstructured.NestedString(u.Object, "metadata", field); err != nil {
			return fmt.Errorf("metadata.%s of this %s is not text; put it in quotes", field, u.GetKind())
		}
	}
	switch {
	case u.GetAPIVersion() == "":
		return errors.New("apiVersion is missing")
	case u.GetKind() == "":
		return errors.New("kind is missing")
	case u.GetName() == "" && u.GetGenerateName() != "":
		return fmt.Errorf("%s has generateName: an object without a fixed name cannot be applied twice", u.GetKind())
	case u.GetName() == "":
		return fmt.Errorf("%s has no metadata.name", u.GetKind())
	}
	for _, name := range []string{u.GetName(), u.GetNamespace()} {
		if len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) || len(content.IsPathSegmentName(name)) > 0 {
			return fmt.Errorf("%.80q cannot name a %s or its namespace", name, u.GetKind())
		}
	}
	return errors.Join(checkStringValues(u, "labels"), checkStringValues(u, "annotations"))
}

// maxName is the maximum length of an object's name, in bytes.
const maxName = 253

// checkStringValues returns an error if a label or annotation is not text: such a value would hide all
// others, including Helm hooks.
func checkStringValues(u *unstructured.Unstructured, field string) error {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", field)
	all, ok := value.(map[string]any)
	if !ok && value != nil {
		return fmt.Errorf("metadata.%s of %s is not a mapping of names to text", field, objectName(u))
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if _, ok := all[key].(string); !ok {
			return fmt.Errorf("%q in metadata.%s of %s is not text; put its value in quotes", key, field, objectName(u))
		}
	}
	return nil
}
