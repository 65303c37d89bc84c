package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestCompareObjects_IgnoresServerFields(t *testing.T) {
	tests := map[string]struct {
		reason    string
		was, will string
		want      *Change
	}{
		"same but for the server's fields": {
			"what the server keeps in an object is no change",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, resourceVersion: "1", uid: x, generation: 1, managedFields: [], ` +
				`annotations: {deployment.kubernetes.io/revision: "1"}}, status: {a: 1}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, resourceVersion: "1", generation: 2}}`,
			nil,
		},
		"update": {
			"the difference alone, with what is around it",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns}, data: {x: "1"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns}, data: {x: "2"}}`,
			&Change{
				Kind: "ConfigMap", Namespace: "ns", Name: "a", Action: Update,
				Diff: "--- live\n+++ wanted\n@@ -1,6 +1,6 @@\n apiVersion: v1\n data:\n-  x: \"1\"\n+  x: \"2\"\n " +
					"kind: ConfigMap\n metadata:\n   name: a\n",
			},
		},
		"create": {
			"all of it is new",
			"",
			`{apiVersion: v1, kind: Namespace, metadata: {name: a}}`,
			&Change{
				Kind: "Namespace", Name: "a", Action: Create,
				Diff: "--- live\n+++ wanted\n@@ -0,0 +1,4 @@\n+apiVersion: v1\n+kind: Namespace\n+metadata:\n+  name: a\n",
			},
		},
		"secret": {
			"which values change is told, the values are not",
			`{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {gone: aHVudGVy, same: aHVudGVy, other: aHVudGVy}}`,
			`{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {same: aHVudGVy, other: aHVudGVyMg==, new: aHVudGVy}}`,
			&Change{
				Kind: "Secret", Name: "a", Action: Update,
				Diff: "--- live\n+++ wanted\n@@ -1,7 +1,7 @@\n apiVersion: v1\n data:\n-  gone: (secret)\n-  other: " +
					"(secret)\n+  new: (secret)\n+  other: (secret, changed)\n   same: (secret)\n kind: Secret\n metadata:\n",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			will := decodeObjects(t, tt.will)
			var got *Change
			var err error
			if tt.was == "" {
				got, err = compareObjects(nil, will[0])
			} else {
				got, err = compareObjects(decodeObjects(t, tt.was)[0], will[0])
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

// TestCompareObjects_HidesSecretValues plants a value in every place of a secret that can hold
// one.
func TestCompareObjects_HidesSecretValues(t *testing.T) {
	const canary = "Y2FuYXJ5LWNhbmFyeQ"
	for name, manifest := range map[string]string{
		"data":       `{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {x: CANARY}}`,
		"stringData": `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {x: CANARY}}`,
		"not a map":  `{apiVersion: v1, kind: Secret, metadata: {name: a}, data: CANARY}`,
		"list":       `{apiVersion: v1, kind: Secret, metadata: {name: a}, data: [CANARY]}`,
		"last applied": `{apiVersion: v1, kind: Secret, metadata: {name: a, ` +
			`annotations: {kubectl.kubernetes.io/last-applied-configuration: CANARY}}}`,
	} {
		obj := decodeObjects(t, strings.ReplaceAll(manifest, "CANARY", canary))[0]
		empty := decodeObjects(t, `{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {a: b}}}`)[0]
		for _, pair := range [][2]*unstructured.Unstructured{{nil, obj}, {obj, empty}, {empty, obj}} {
			got, err := compareObjects(pair[0], pair[1])
			if err != nil {
				t.Fatal(err)
			}
			if got != nil && strings.Contains(got.Diff, canary) {
				t.Errorf("%s: the value shows:\n%s", name, got.Diff)
			}
		}
	}
}
