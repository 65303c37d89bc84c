package crds

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/testutil/definition"
)

// operation returns an object with a spec, "{…}".
func operation(t *testing.T, spec string) map[string]any {
	t.Helper()
	return decode(t, "apiVersion: slipway.dev/v1alpha1\nkind: Operation\nmetadata: {name: x, namespace: default}\nspec: "+spec+"\n")
}

// wantErrors requires one error about a field, or none if want is "".
func wantErrors(t *testing.T, got []string, want string) {
	t.Helper()
	if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want+": ")) {
		t.Errorf("got %q, want an error about %q", got, want)
	}
}

// TestOperations_CheckFields has good and bad requests.
func TestOperations_CheckFields(t *testing.T) {
	d := definition.LoadDefinition(t, Operations)
	for name, tc := range map[string]struct{ spec, want string }{
		"small":            {"{clusterRef: {name: prod}, kind: upgrade}", ""},
		"deadline":         {"{clusterRef: {name: prod}, kind: upgrade, deadline: 1h30m}", ""},
		"without cluster":  {"{kind: upgrade}", "spec.clusterRef"},
		"without kind":     {"{clusterRef: {name: prod}}", "spec.kind"},
		"unknown kind":     {"{clusterRef: {name: prod}, kind: reinstall}", "spec.kind"},
		"unknown executor": {"{clusterRef: {name: prod}, kind: upgrade, executor: Pod}", "spec.executor"},
		"bad deadline":     {"{clusterRef: {name: prod}, kind: upgrade, deadline: soon}", "spec.deadline"},
		"negative retry":   {"{clusterRef: {name: prod}, kind: upgrade, retry: -1}", "spec.retry"},
	} {
		t.Run(name, func(t *testing.T) { wantErrors(t, d.CheckObject(t, operation(t, tc.spec), nil), tc.want) })
	}
}

// TestOperations_ChangeOneWay changes requests. Each row has fields of the request before and
// after the change.
func TestOperations_ChangeOneWay(t *testing.T) {
	d := definition.LoadDefinition(t, Operations)
	for name, tc := range map[string]struct{ old, new, want string }{
		"approve":             {"", "approvedPlan: sha256:a", ""},
		"other approval":      {"approvedPlan: sha256:a", "approvedPlan: sha256:b", "spec.approvedPlan"},
		"approval removed":    {"approvedPlan: sha256:a", "", "spec.approvedPlan"},
		"approval kept":       {"approvedPlan: sha256:a", "approvedPlan: sha256:a, cancelled: true", ""},
		"cancel":              {"", "cancelled: true", ""},
		"not cancelled":       {"", "cancelled: false", ""},
		"cancellation undone": {"cancelled: true", "cancelled: false", "spec.cancelled"},
		"cancellation gone":   {"cancelled: true", "", "spec.cancelled"},
		"retry":               {"", "retry: 1", ""},
		"retry again":         {"retry: 1", "retry: 2", ""},
		"retry less":          {"retry: 2", "retry: 1", "spec.retry"},
		"retry gone":          {"retry: 2", "", "spec.retry"},
		"same duration":       {"parameters: {drainTimeout: 90m}", "parameters: {drainTimeout: 1h30m0s}", ""},
		"empty parameters":    {"parameters: {}", "", ""},
		"version":             {"parameters: {version: v1.37.1}", "parameters: {version: v1.37.2}", "spec.parameters.version"},
	} {
		t.Run(name, func(t *testing.T) {
			const spec = "{clusterRef: {name: prod}, kind: upgrade, %s}"
			got := d.CheckObject(t, operation(t, fmt.Sprintf(spec, tc.new)), operation(t, fmt.Sprintf(spec, tc.old)))
			wantErrors(t, got, tc.want)
		})
	}
	old := operation(t, "{clusterRef: {name: prod}, kind: upgrade}")
	wantErrors(t, d.CheckObject(t, operation(t, "{clusterRef: {name: lab}, kind: upgrade}"), old), "spec.clusterRef.name")
	wantErrors(t, d.CheckObject(t, operation(t, "{clusterRef: {name: prod}, kind: apply}"), old), "spec.kind")
}

// TestOperations_KeepOptionalFields adds and removes each optional field that cannot change. An
// empty value is the same as an absent field: a client in Go does not write it.
func TestOperations_KeepOptionalFields(t *testing.T) {
	d := definition.LoadDefinition(t, Operations)
	if got := d.CheckObject(t, fullOperation(t), fullOperation(t)); len(got) > 0 {
		t.Fatalf("the same request is refused: %q", got)
	}
	for _, path := range pathsOf(reflect.TypeFor[v1alpha1.OperationSpec](), "") {
		if slices.Contains([]string{"clusterRef.name", "kind", "approvedPlan", "cancelled", "retry"}, path) {
			continue
		}
		t.Run(path, func(t *testing.T) {
			full, without, empty := fullOperation(t), fullOperation(t), fullOperation(t)
			fields := strings.Split("spec."+path, ".")
			value, found, err := unstructured.NestedFieldNoCopy(full, fields...)
			if err != nil || !found {
				t.Fatalf("the test sets no value: %v", err)
			}
			unstructured.RemoveNestedField(without, fields...)
			wantErrors(t, d.CheckObject(t, without, full), "spec."+path)
			wantErrors(t, d.CheckObject(t, full, without), "spec."+path)
			if path == "executor" { // an empty word is refused anyway
				return
			}
			if err := unstructured.SetNestedField(empty, emptyValue(value), fields...); err != nil {
				t.Fatal(err)
			}
			wantErrors(t, d.CheckObject(t, empty, without), "")
			wantErrors(t, d.CheckObject(t, without, empty), "")
		})
	}
}

// emptyValue returns the empty value of the type of a decoded value.
func emptyValue(value any) any {
	switch value := value.(type) {
	case bool:
		return false
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	case string:
		if _, err := time.ParseDuration(value); err == nil {
			return "0s"
		}
	}
	return ""
}

// pathsOf returns the JSON names of the fields of a spec, such as parameters.nodes.
func pathsOf(typ reflect.Type, under string) (out []string) {
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == typ.PkgPath() {
			out = append(out, pathsOf(f.Type, name+".")...)
		} else {
			out = append(out, under+name)
		}
	}
	return out
}

// fullOperation returns a request with a value in each field that cannot change, for 1,000 hosts.
func fullOperation(t *testing.T) map[string]any {
	t.Helper()
	boots := map[string]string{}
	for i := range 1000 {
		boots[fmt.Sprintf("host-%d", i)] = "0f1e2d3c-0f1e-0f1e-0f1e-0f1e2d3c4b5a"
	}
	minute := metav1.Duration{Duration: time.Minute}
	text, err := json.Marshal(v1alpha1.Operation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Operation"},
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: v1alpha1.OperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod", UID: "1"}, Kind: "upgrade",
			IntentDigest: "sha256:a", Deadline: minute, Executor: v1alpha1.ExecutorJob,
			Parameters: v1alpha1.OperationParameters{
				IgnoredChecks: []string{"a"}, Nodes: slices.Sorted(maps.Keys(boots)), Force: true, Forget: true, KeepFailed: true,
				DrainTimeout: minute, MaxUnavailable: "1", Version: "v1.37.1", File: "f", Certificates: []string{"a"},
				AllCertificates: true, Within: minute, Backup: "b", Identity: "i", Restores: "r", SignedBy: "s", Unverified: true,
				WithKeys: true, Verified: true, Rotates: map[string]string{"cluster": "a"}, Boots: boots,
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	object := decode(t, string(text))
	delete(object, "status")
	return object
}
