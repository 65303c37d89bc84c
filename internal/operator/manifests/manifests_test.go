package manifests

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.dev/slipway/internal/testutil/golden"
)

// example are the options of deploy/operator.yaml.
var example = Options{Version: "dev"}

func TestRender_IsInDeploy(t *testing.T) {
	text, err := Render(example)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "../../../deploy/operator.yaml", text)
}

func TestObjects_CanBeApplied(t *testing.T) {
	objects, err := Objects(example)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	last := 0
	for _, o := range objects {
		name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
		at := slices.Index(kinds, o.GetKind())
		if at < last {
			t.Errorf("%s comes too late", name)
		}
		last = max(last, at)
		if at < 0 {
			t.Errorf("%s has no place in the order", name)
		}
		if o.GetNamespace() != "" && o.GetNamespace() != Namespace {
			t.Errorf("%s is in another namespace", name)
		}
		if !IsOurs(o) || VersionOf(o) != "dev" {
			t.Errorf("%s has labels %v", name, o.GetLabels())
		}
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind }) {
			t.Errorf("no object has kind %s", kind)
		}
	}
}

// deploymentOf returns the Deployment for options.
func deploymentOf(t *testing.T, o Options) *appsv1.Deployment {
	t.Helper()
	objects, err := Objects(o)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == KindDeployment })
	out := new(appsv1.Deployment)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestObjects_HaveOptions(t *testing.T) {
	d := deploymentOf(t, Options{
		Version: "v1.2.3+dev", Replicas: 3, DataClaim: "data", APIURL: "https://api.example.com:6443",
	})
	if got, want := ImageOf(d), "slipway.dev/slipwayd:v1.2.3-dev"; got != want {
		t.Errorf("the image is %s, want %s", got, want)
	}
	if got := VersionOf(d); got != "v1.2.3+dev" {
		t.Errorf("the version is %s", got)
	}
	spec := d.Spec.Template.Spec
	args := strings.Join(spec.Containers[0].Args, " ")
	if *d.Spec.Replicas != 3 || !strings.Contains(args, "--api-url https://api.example.com:6443") {
		t.Errorf("%d replicas, arguments %s", *d.Spec.Replicas, args)
	}
	if claim := spec.Volumes[0].PersistentVolumeClaim; claim == nil || claim.ClaimName != "data" {
		t.Errorf("the volume is %+v", spec.Volumes[0])
	}
	const own = "registry.example.com/slipwayd:v1"
	if got := ImageOf(deploymentOf(t, Options{Version: "v1", Image: own})); got != own {
		t.Errorf("the image is %s", got)
	}
}

func TestCheckValues_RefusesWhatTheAPIRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"executor": {Executor: "pod"}, "replicas": {Replicas: -1}, "secret": {PullSecrets: []string{"My_Secret"}},
		"claim": {DataClaim: "/data"}, "URL": {APIURL: "api.example.com"}, "image": {Image: "a b"},
	} {
		if _, err := Objects(o); err == nil || !strings.Contains(err.Error(), IDFlag) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestObjects_AreRestricted checks what namespaces with the level restricted allow.
func TestObjects_AreRestricted(t *testing.T) {
	spec := deploymentOf(t, example).Spec.Template.Spec
	c := spec.Containers[0].SecurityContext
	if !*spec.SecurityContext.RunAsNonRoot || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("the Pod has the rights %+v, %+v", spec.SecurityContext, c)
	}
}

// TestRules_HaveNoWildcard reads the rights of the controllers.
func TestRules_HaveNoWildcard(t *testing.T) {
	for _, rule := range slices.Concat(ListRules(), ListNamespacedRules(), listIdentityRules()) {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			if slices.Contains(list, "*") || len(list) == 0 {
				t.Errorf("the rule %+v is not exact", rule)
			}
		}
		for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection", "approve"} {
			if slices.Contains(rule.Verbs, verb) {
				t.Errorf("the controllers do not need %s: %+v", verb, rule)
			}
		}
	}
}
