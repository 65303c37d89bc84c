package crdstest

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

// decodeOperation returns an Operation with a spec, "{…}".
func decodeOperation(t *testing.T, spec string) map[string]any {
	t.Helper()
	return definition.DecodeObject(t, "apiVersion: slipway.dev/v1alpha1\nkind: Operation\nmetadata: {name: x}\nspec: "+spec+"\n")
}

// OperationCases returns cases of Operations. All objects have the name x. An
// object with all fields names a number of hosts.
func OperationCases(t *testing.T, hosts int) []Case {
	t.Helper()
	return append(append(requestCases(t), oneWayCases(t)...), optionalFieldCases(t, hosts)...)
}

// requestCases has good and bad requests.
func requestCases(t *testing.T) (out []Case) {
	t.Helper()
	for _, tc := range []struct{ name, spec, field string }{
		{"small", "{clusterRef: {name: prod}, kind: upgrade}", ""},
		{"deadline", "{clusterRef: {name: prod}, kind: upgrade, deadline: 1h30m}", ""},
		{"without cluster", "{kind: upgrade}", "spec.clusterRef"},
		{"without kind", "{clusterRef: {name: prod}}", "spec.kind"},
		{"unknown kind", "{clusterRef: {name: prod}, kind: reinstall}", "spec.kind"},
		{"unknown executor", "{clusterRef: {name: prod}, kind: upgrade, executor: Pod}", "spec.executor"},
		{"bad deadline", "{clusterRef: {name: prod}, kind: upgrade, deadline: soon}", "spec.deadline"},
		{"negative retry", "{clusterRef: {name: prod}, kind: upgrade, retry: -1}", "spec.retry"},
	} {
		out = append(out, Case{Name: "request " + tc.name, New: decodeOperation(t, tc.spec), Field: tc.field})
	}
	for _, name := range []string{"x.y", strings.Repeat("x", 64)} {
		object := decodeOperation(t, "{clusterRef: {name: prod}, kind: upgrade}")
		object["metadata"].(map[string]any)["name"] = name
		out = append(out, Case{Name: "request named " + name, New: object, Field: "<nil>"})
	}
	return out
}

// oneWayCases changes requests. Each row has fields of the request before and after the change.
func oneWayCases(t *testing.T) []Case {
	t.Helper()
	old := decodeOperation(t, "{clusterRef: {name: prod}, kind: upgrade}")
	out := []Case{
		{Name: "other cluster", Old: old, New: decodeOperation(t, "{clusterRef: {name: lab}, kind: upgrade}"), Field: "spec.clusterRef.name"},
		{Name: "other kind", Old: old, New: decodeOperation(t, "{clusterRef: {name: prod}, kind: apply}"), Field: "spec.kind"},
	}
	const spec = "{clusterRef: {name: prod}, kind: upgrade, %s}"
	for _, tc := range []struct{ name, old, new, field string }{
		{"approval without plan", "", "approvedPlan: sha256:a", "spec.approvedPlan"},
		{"other approval", "approvedPlan: sha256:a", "approvedPlan: sha256:b", "spec.approvedPlan"},
		{"approval removed", "approvedPlan: sha256:a", "", "spec.approvedPlan"},
		{"approval kept", "approvedPlan: sha256:a", "approvedPlan: sha256:a, cancelled: true", ""},
		{"cancel", "", "cancelled: true", ""},
		{"not cancelled", "", "cancelled: false", ""},
		{"cancellation undone", "cancelled: true", "cancelled: false", "spec.cancelled"},
		{"cancellation gone", "cancelled: true", "", "spec.cancelled"},
		{"retry", "", "retry: 1", ""},
		{"retry again", "retry: 1", "retry: 2", ""},
		{"retry less", "retry: 2", "retry: 1", "spec.retry"},
		{"retry gone", "retry: 2", "", "spec.retry"},
		{"same duration", "parameters: {drainTimeout: 90m}", "parameters: {drainTimeout: 1h30m0s}", ""},
		{"empty parameters", "parameters: {}", "", ""},
		{"version", "parameters: {version: v1.37.1}", "parameters: {version: v1.37.2}", "spec.parameters.version"},
	} {
		out = append(out, Case{
			Name: "change of " + tc.name, Old: decodeOperation(t, fmt.Sprintf(spec, tc.old)), New: decodeOperation(t, fmt.Sprintf(spec, tc.new)),
			Field: tc.field,
		})
	}
	return out
}

// optionalFieldCases adds and removes each optional field that cannot change. An empty value is
// the same as an absent field: a client in Go does not write it.
func optionalFieldCases(t *testing.T, hosts int) []Case {
	t.Helper()
	out := []Case{{Name: "the same request", Old: fullOperation(t, hosts), New: fullOperation(t, hosts)}}
	for _, path := range pathsOf(reflect.TypeFor[v1alpha1.OperationSpec](), "") {
		if slices.Contains([]string{"clusterRef.name", "kind", "approvedPlan", "cancelled", "retry"}, path) {
			continue
		}
		without, empty := fullOperation(t, hosts), fullOperation(t, hosts)
		fields := strings.Split("spec."+path, ".")
		value, found, err := unstructured.NestedFieldNoCopy(empty, fields...)
		if err != nil || !found {
			t.Fatalf("no value of %s: %v", path, err)
		}
		unstructured.RemoveNestedField(without, fields...)
		out = append(out,
			Case{Name: path + " removed", Old: fullOperation(t, hosts), New: without, Field: "spec." + path},
			Case{Name: path + " added", Old: without, New: fullOperation(t, hosts), Field: "spec." + path})
		if path == "executor" { // an empty word is refused anyway
			continue
		}
		if err := unstructured.SetNestedField(empty, emptyValue(value), fields...); err != nil {
			t.Fatal(err)
		}
		out = append(out,
			Case{Name: path + " emptied", Old: without, New: empty},
			Case{Name: path + " was empty", Old: empty, New: without})
	}
	return out
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

// fullOperation returns a request with a value in each field that cannot change.
func fullOperation(t *testing.T, hosts int) map[string]any {
	t.Helper()
	boots := map[string]string{}
	for i := range hosts {
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
				TakeOver:     true,
				DrainTimeout: minute, MaxUnavailable: "1", Version: "v1.37.1", File: "f", Certificates: []string{"a"},
				AllCertificates: true, Within: minute, Backup: "b", Identity: "i", Restores: "r", SignedBy: "s", Unverified: true,
				WithKeys: true, Verified: true, Rotates: map[string]string{"cluster": "a"}, Boots: boots,
				Operation: "o", Recipients: []string{"a"}, FromHost: "h", FromCopy: "c", Member: "m",
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	object := definition.DecodeObject(t, string(text))
	delete(object, "status")
	return object
}
