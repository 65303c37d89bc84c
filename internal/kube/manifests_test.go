package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestDecodeObjects_ReadsOrRefusesManifests(t *testing.T) {
	tests := map[string]struct {
		reason string
		in     string
		want   []string
		err    string
	}{
		"documents": {
			"several, some of them empty or comments alone",
			"---\n# nothing\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\napiVersion: " +
				"v1\nkind: ConfigMap\nmetadata: {name: b, namespace: a}\n---\n",
			[]string{"Namespace a", "ConfigMap a/b"},
			"",
		},
		"list": {
			"kubectl get -o yaml gives lists",
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n- {apiVersion: " +
				"v1, kind: Secret, metadata: {name: b}}\n",
			[]string{"Secret a", "Secret b"},
			"",
		},
		"JSON":      {"JSON is YAML", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, []string{"Namespace a"}, ""},
		"nothing":   {"an empty text is valid", "", nil, ""},
		"no name":   {"it could not be read again", "apiVersion: v1\nkind: Pod\nmetadata: {}\n", nil, "document 1: Pod has no metadata.name"},
		"made name": {"each apply would create another object", "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", nil, "generateName"},
		"name n": {
			"YAML reads it as false", "apiVersion: v1\nkind: Pod\nmetadata: {name: n}\n", nil,
			"metadata.name of this Pod is not text",
		},
		"namespace 1": {"and this as a number", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 1}\n", nil, "metadata.namespace"},
		"label 1": {
			"one that is a number hid all of them",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: web, version: 1}}\n",
			nil, `document 1: "version" in metadata.labels of Pod a is not text`,
		},
		"annotation 5": {
			"a hook of Helm's became an ordinary object",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: 5}}\n",
			nil, `"helm.sh/hook-weight" in metadata.annotations of Pod a is not text`,
		},
		"label null": {
			"kubectl refuses it as well", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: }}\n",
			nil, `"app" in metadata.labels`,
		},
		"labels null": {"an empty map is valid", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: }\n", []string{"Pod a"}, ""},
		"labels a list": {
			"labels must be a mapping", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: [1]}\n",
			nil, "metadata.labels of Pod a is not a mapping",
		},
		"name with NUL": {"API servers refuse it", "apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\0\"}\n", nil, `"a\x00" cannot name a Pod`},
		"long name": {
			"API servers refuse it", "apiVersion: v1\nkind: Pod\nmetadata: {name: " + strings.Repeat("a", 254) + "}\n",
			nil, "cannot name a Pod",
		},
		"name a/b": {"API servers refuse it", "apiVersion: v1\nkind: Pod\nmetadata: {name: a/b}\n", nil, "cannot name a Pod"},
		"name a:b": {
			"roles have such names", "apiVersion: v1\nkind: ClusterRole\nmetadata: {name: \"a:b\"}\n",
			[]string{"ClusterRole a:b"},
			"",
		},
		"no kind":       {"it is not an object", "apiVersion: v1\nmetadata: {name: a}\n", nil, "document 1"},
		"no version":    {"the kind alone is ambiguous", "kind: Pod\nmetadata: {name: a}\n", nil, "apiVersion is missing"},
		"twice":         {"one of the two would be lost", "apiVersion: v1\nkind: Pod\nkind: Pod\n", nil, "already"},
		"scalar":        {"text is not an object", "hello", nil, "document 1"},
		"second is bad": {"the error names the document", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n{", nil, "document 2"},
		"bad item": {
			"the error names the item",
			"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {}}]", nil, "item 0",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objs, err := DecodeObjects([]byte(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("%s: error is %v, want it to say %q", tt.reason, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if diff := cmp.Diff(tt.want, objectNames(objs)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

func objectNames(objs []*unstructured.Unstructured) []string {
	var out []string
	for _, o := range objs {
		out = append(out, objectName(o))
	}
	return out
}

// FuzzObjects: whatever the text, an object that is decoded can be applied.
func FuzzObjects(f *testing.F) {
	f.Add("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]")
	f.Add("---\n---\n{}")
	f.Add("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: [1]")
	f.Add("apiVersion: v1\nkind: List\nitems: [null, 1]")
	f.Fuzz(func(t *testing.T, in string) {
		objs, err := DecodeObjects([]byte(in))
		if err != nil {
			return
		}
		for _, o := range objs {
			if err := checkComplete(o); err != nil {
				t.Errorf("an invalid object was decoded: %v", err)
			}
			if _, err := compareObjects(nil, o); err != nil {
				t.Errorf("the object cannot be encoded: %v", err)
			}
		}
	})
}

func TestSortByDependency_PutsNamespacesAndDefinitionsFirst(t *testing.T) {
	objs, err := DecodeObjects([]byte(`
{apiVersion: a.dev/v1, kind: Thing, metadata: {name: t}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: d}}
---
{apiVersion: a.dev/v1, kind: Namespace, metadata: {name: foreign}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ns}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Namespace ns", "CustomResourceDefinition d", "Thing t", "ConfigMap ns/c", "Namespace foreign"}
	if diff := cmp.Diff(want, objectNames(sortByDependency(objs))); diff != "" {
		t.Errorf("the order: -want +got\n%s", diff)
	}
	if objectName(objs[0]) != "Thing t" {
		t.Error("the caller's list was reordered")
	}
}

// TestDecodeObjects_KeepsContentOutOfErrors: text that is not an object can still be part
// of a Secret.
func TestDecodeObjects_KeepsContentOutOfErrors(t *testing.T) {
	for _, text := range []string{
		"apiVersion: v1\nstringData: {password: hunter2}\n", "hunter2: hunter2\n",
		"kind: {hunter2: hunter2}\napiVersion: v1\n",
	} {
		_, err := DecodeObjects([]byte(text))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func decodeObjects(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	objs, err := DecodeObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

func decodeObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objs, err := DecodeObjects([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objs[0]
}
