package spec

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// changeable are the sections of a description whose settings may change.
var changeable = []string{"kubernetes", "etcd", "containerRuntime", "registry", "system"}

// documentedClasses returns the effect of a change of each field, according to
// docs/guide/settings.md.
func documentedClasses(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(spec[^`]+)` \\| ([^|]+) \\|")
	for _, m := range row.FindAllStringSubmatch(readPage(t, "../../docs/guide/settings.md"), -1) {
		if out[m[1]] != "" {
			t.Errorf("%s stands twice", m[1])
		}
		out[m[1]] = m[2]
	}
	return out
}

// leafSections returns the fields that have no subfields.
func leafSections() (out []string) {
	all := fieldPaths(reflect.TypeFor[v1alpha1.ClusterSpec](), "spec")
	for _, path := range all {
		section, _, _ := strings.Cut(strings.TrimPrefix(path, "spec."), ".")
		if !slices.Contains(changeable, section) || slices.ContainsFunc(all, func(p string) bool { return strings.HasPrefix(p, path+".") }) {
			continue
		}
		out = append(out, path)
	}
	return out
}

// TestSettingsPage_HasEveryField requires a class for every field of these sections: the author of a
// new field documents the effect of a change on a running cluster.
func TestSettingsPage_HasEveryField(t *testing.T) {
	is := documentedClasses(t)
	var documented []string
	known := []string{"kubelet", "containerd", "etcd", "API server", "control plane", "node", "kube-proxy", "nothing", "fixed", "not yet"}
	for path, class := range is {
		documented = append(documented, path)
		for one := range strings.SplitSeq(class, ", ") {
			if !slices.Contains(known, one) {
				t.Errorf("%s restarts %q, which is none of %q", path, one, known)
			}
		}
	}
	if d := cmp.Diff(sortedCopy(leafSections()), sortedCopy(documented)); d != "" {
		t.Errorf("fields of the types and of docs/guide/settings.md differ (-types +page):\n%s", d)
	}
}

// TestSettingsChange_MatchesThePage changes each field: exactly the fields that cannot be changed
// according to the page are rejected.
func TestSettingsChange_MatchesThePage(t *testing.T) {
	for path, class := range documentedClasses(t) {
		old := &v1alpha1.Cluster{}
		old.Name = "prod"
		if strings.HasPrefix(path, "spec.etcd.external") {
			old.Spec.Etcd.External = &v1alpha1.ExternalEtcd{Endpoints: []string{"https://192.0.2.1:2379"}}
		}
		if strings.HasPrefix(path, "spec.registry.private") {
			old.Spec.Registry.Private = &v1alpha1.PrivateRegistry{Directory: "/srv/images"}
		}
		wanted := old.DeepCopy()
		at := reflect.ValueOf(&wanted.Spec)
		for _, name := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "spec."), "[]"), ".") {
			at = reflect.Indirect(at)
			name, listed := strings.CutSuffix(name, "[]")
			at = at.FieldByIndex(yamlfile.FieldsOf(at.Type())[name])
			if listed { // another one, with this field
				at.Set(reflect.MakeSlice(at.Type(), 1, 1))
				at = at.Index(0)
			}
			if at.Kind() == reflect.Pointer && at.IsNil() {
				at.Set(reflect.New(at.Type().Elem()))
			}
		}
		changeValue(t, path, at)
		found := FindForbiddenChanges(old, wanted)
		if cannot := class == "fixed" || class == "not yet"; cannot != (len(found) > 0) {
			t.Errorf("%s restarts %s; a change of it is refused by %v", path, class, found)
		}
	}
}

// changeValue gives a field another value.
func changeValue(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch to := v.Interface().(type) {
	case *metav1.Duration:
		to.Duration = time.Hour
		return
	case *bool:
		*to = true
		return
	case *v1alpha1.SecretSource:
		to.Env = "OTHER"
		return
	case []string:
		v.Set(reflect.ValueOf(append(to, "https://192.0.2.99:2379")))
		return
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"v": "2"}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("other")
	case reflect.Int:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.New(v.Type().Elem()).Elem())
	default:
		t.Fatalf("%s is of kind %s: say how it is changed", path, v.Kind())
	}
}
