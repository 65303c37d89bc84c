package install

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/manifests"
)

// A world is a fake Kubernetes cluster. Its Deployments are ready at once.
type world struct {
	t       *testing.T
	client  *dynamicfake.FakeDynamicClient
	i       *Installer
	applied []string // objects in the order of their creation
	said    []string
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{
		manifests.GroupVersion.WithResource("clusters"): "ClusterList", manifests.GroupVersion.WithResource("operations"): "OperationList",
		manifests.GroupVersion.WithResource("operationlogs"): "OperationLogList", manifests.LeaseResource: "LeaseList",
		{Version: "v1", Resource: "pods"}: "PodList", manifests.JobResource: "JobList",
	}
	all, err := manifests.Objects(manifests.Options{Version: "v1.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		lists[resource] = o.GetKind() + "List"
	}
	w := &world{t: t, client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)}
	w.client.PrependReactor("patch", "*", w.apply)
	w.i = &Installer{client: w.client, url: "https://api", Report: func(text string) { w.said = append(w.said, text) }}
	return w
}

// apply makes an object as an API server does for server-side apply by its only client.
func (w *world) apply(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchAction) //nolint:forcetypeassert // the reactor is for patches
	o := new(unstructured.Unstructured)
	if err := o.UnmarshalJSON(patch.GetPatch()); err != nil {
		return true, nil, err
	}
	if o.GetKind() == manifests.KindDeployment {
		replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		o.Object["status"] = map[string]any{"replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas}
	}
	_, err := w.client.Tracker().Get(patch.GetResource(), patch.GetNamespace(), patch.GetName())
	if apierrors.IsNotFound(err) {
		w.applied = append(w.applied, describe(o))
		return true, o, w.client.Tracker().Create(patch.GetResource(), o, patch.GetNamespace())
	}
	return true, o, errors.Join(err, w.client.Tracker().Update(patch.GetResource(), o, patch.GetNamespace()))
}

// install installs a version.
func (w *world) install(version string) error {
	w.t.Helper()
	return w.i.Install(w.t.Context(), manifests.Options{Version: version}, false)
}

// exists reports whether an object exists.
func (w *world) exists(kind, name string) bool {
	w.t.Helper()
	all, err := manifests.Objects(manifests.Options{Version: "v1"})
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if i < 0 {
		w.t.Fatalf("the operator has no object of kind %s", kind)
	}
	_, err = w.i.resource(all[i]).Get(w.t.Context(), name, metav1.GetOptions{})
	return err == nil
}

func requireID(t *testing.T, err error, want string) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestInstall_AppliesInOrder(t *testing.T) {
	w := newWorld(t)
	if err := w.install("v1.1.0"); err != nil {
		t.Fatal(err)
	}
	if first, last := w.applied[0], w.applied[len(w.applied)-1]; !strings.HasPrefix(first, "CustomResourceDefinition") ||
		!strings.HasPrefix(last, "ValidatingWebhookConfiguration") {
		t.Errorf("applied are %q", w.applied)
	}
	if len(w.said) != len(w.applied) {
		t.Errorf("%d lines for %d objects", len(w.said), len(w.applied))
	}
	w.said = nil
	if err := w.install("v1.1.0"); err != nil || len(w.said) > 0 {
		t.Errorf("a second installation: %v, %q", err, w.said)
	}
	if err := w.i.Install(t.Context(), manifests.Options{Version: "v1.2.0"}, true); err != nil || len(w.said) == 0 {
		t.Errorf("an upgrade: %v, %q", err, w.said)
	}
}

func TestInstall_IsRefused(t *testing.T) {
	t.Run("not installed", func(t *testing.T) {
		w := newWorld(t)
		requireID(t, w.i.Install(t.Context(), manifests.Options{Version: "v1.1.0"}, true), idMissing)
	})
	t.Run("later version", func(t *testing.T) {
		w := newWorld(t)
		if err := w.install("v1.10.0"); err != nil {
			t.Fatal(err)
		}
		w.said = nil
		requireID(t, w.install("v1.9.0"), idNewer)
		if len(w.said) > 0 {
			t.Errorf("a refused installation has changed %q", w.said)
		}
	})
	t.Run("definitions of a later version", func(t *testing.T) {
		w := newWorld(t)
		if err := errors.Join(w.install("v1.10.0"), w.i.Uninstall(t.Context(), false)); err != nil {
			t.Fatal(err)
		}
		requireID(t, w.install("v1.9.0"), idNewer)
	})
	t.Run("own image without an image of the new version", func(t *testing.T) {
		w := newWorld(t)
		if err := w.i.Install(t.Context(), manifests.Options{Version: "v1.0.0", Image: "registry.example.com/slipwayd:v1"}, false); err != nil {
			t.Fatal(err)
		}
		requireID(t, w.i.Install(t.Context(), manifests.Options{Version: "v1.1.0"}, true), manifests.IDFlag)
	})
	t.Run("foreign Deployment", func(t *testing.T) {
		foreign := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": manifests.Name, "namespace": manifests.Namespace},
		}}
		requireID(t, newWorld(t, foreign).install("v1.1.0"), idForeign)
	})
	t.Run("management server", func(t *testing.T) {
		w := newWorld(t)
		w.client.PrependReactor("list", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "")
		})
		requireID(t, w.install("v1.1.0"), idServerAPI)
		if len(w.applied) > 0 {
			t.Errorf("applied are %q", w.applied)
		}
	})
}

// TestInstall_KeepsOptions upgrades an operator without the flags of its installation.
func TestInstall_KeepsOptions(t *testing.T) {
	w := newWorld(t)
	o := manifests.Options{
		Version: "v1.0.0", Executor: "job", DataClaim: "data", PullSecrets: []string{"registry"}, Replicas: 3, APIURL: "https://api.example.com",
	}
	if err := w.i.Install(t.Context(), o, false); err != nil {
		t.Fatal(err)
	}
	if err := w.i.Install(t.Context(), manifests.Options{Version: "v1.1.0", Replicas: 2}, true); err != nil {
		t.Fatal(err)
	}
	d, err := w.i.loadDeployment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := manifests.Options{Version: manifests.VersionOf(d)}
	got.KeepInstalled(d)
	o.Version, o.Replicas = "v1.1.0", 2
	if diff := cmp.Diff(o, got); diff != "" || manifests.ImageOf(d) != "slipway.dev/slipwayd:v1.1.0" {
		t.Errorf("image %s, options (-want +got):\n%s", manifests.ImageOf(d), diff)
	}
}

func TestRefuseEarlier_ComparesReleases(t *testing.T) {
	for _, tc := range []struct {
		installed, wanted string
		refused           bool
	}{
		{"v1.0.0", "v1.0.0", false},
		{"v1.0.0", "v1.0.1", false},
		{"v1.10.0", "v1.9.0", true},
		{"v1.0.0", "v1.0.0-4-g1a2b3c4", false}, // a build after the release
		{"v1.0.0-4-g1a2b3c4-dirty", "v1.0.0", false},
		{"v1.1.0-4-g1a2b3c4", "v1.0.0", true},
		{"v1.1.0+build", "v1.0.0+build", true},
		{"1a2b3c4", "v1.0.0", false}, // a build without a release
	} {
		if err := refuseEarlier(tc.installed, tc.wanted); (err != nil) != tc.refused {
			t.Errorf("%s after %s: %v, refused is wanted: %t", tc.wanted, tc.installed, err, tc.refused)
		}
	}
}

func TestStatus_ShowsWhatIsNotReady(t *testing.T) {
	w := newWorld(t)
	_, err := w.i.Status(t.Context())
	requireID(t, err, idMissing)
	if err := w.install("v1.1.0"); err != nil {
		t.Fatal(err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": "p", "namespace": manifests.Namespace, "labels": map[string]any{"app.kubernetes.io/name": manifests.Name},
		},
		"status": map[string]any{"containerStatuses": []any{map[string]any{
			"name": "slipwayd", "state": map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "no such image"}},
		}}},
	}}
	if err := w.client.Tracker().Create(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, pod, manifests.Namespace); err != nil {
		t.Fatal(err)
	}
	s, err := w.i.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.IsReady() || s.Version != "v1.1.0" || s.Replicas != 2 || s.Ready != 2 || s.HasWebhook || len(s.Definitions) != 3 ||
		!slices.Equal(s.Problems, []string{"Pod p: ErrImagePull: no such image"}) {
		t.Errorf("the status is %+v", s)
	}
	err = w.i.WaitUntilReady(t.Context(), 2*time.Second)
	if !errors.As(err, new(*NotReadyError)) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"no process runs the controllers", "the webhook has no certificate", "no such image"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message does not have %q: %v", part, err)
		}
	}
	lease := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{
			"name": "p", "namespace": manifests.Namespace, "labels": map[string]any{v1alpha1.LabelMembers: manifests.MembersGroup},
		},
		"spec": map[string]any{
			"holderIdentity": manifests.NewIdentity("p"), "leaseDurationSeconds": int64(15),
			"renewTime": time.Now().UTC().Format(metav1.RFC3339Micro),
		},
	}}
	if err := w.client.Tracker().Create(manifests.LeaseResource, lease, manifests.Namespace); err != nil {
		t.Fatal(err)
	}
	if s, err = w.i.Status(t.Context()); err != nil || !slices.Equal(s.Processes, []string{"p"}) {
		t.Errorf("the status is %+v, %v", s, err)
	}
	old := time.Now().Add(-time.Minute).UTC().Format(metav1.RFC3339Micro)
	if err := unstructured.SetNestedField(lease.Object, old, "spec", "renewTime"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Tracker().Update(manifests.LeaseResource, lease, manifests.Namespace); err != nil {
		t.Fatal(err)
	}
	if s, err = w.i.Status(t.Context()); err != nil || len(s.Processes) > 0 {
		t.Errorf("the process was killed: %+v, %v", s, err)
	}
}

// addCluster adds a Cluster.
func (w *world) addCluster() {
	w.t.Helper()
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "slipway.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "prod", "namespace": "team"},
	}}
	if err := w.client.Tracker().Create(manifests.GroupVersion.WithResource("clusters"), cluster, "team"); err != nil {
		w.t.Fatal(err)
	}
}

func TestUninstall_KeepsWhatClustersNeed(t *testing.T) {
	w := newWorld(t)
	requireID(t, w.i.Uninstall(t.Context(), false), idMissing)
	if err := w.install("v1.1.0"); err != nil {
		t.Fatal(err)
	}
	w.addCluster()
	w.said = nil
	requireID(t, w.i.Uninstall(t.Context(), true), idClusters)
	if len(w.said) > 0 {
		t.Errorf("a refused removal has changed %q", w.said)
	}
	if err := w.i.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{
		"Deployment": manifests.Name, "ServiceAccount": manifests.Name, "ClusterRole": manifests.Name, "ClusterRoleBinding": manifests.Name,
		"Service": manifests.WebhookName, "ValidatingWebhookConfiguration": manifests.WebhookName,
	} {
		if w.exists(kind, name) {
			t.Errorf("%s %s still exists", kind, name)
		}
	}
	kept := map[string]string{
		"CustomResourceDefinition": "clusters.slipway.dev", "Namespace": manifests.Namespace, "ClusterRole": "slipway-viewer",
		"ValidatingAdmissionPolicy": "slipway-clusters",
	}
	for kind, name := range kept {
		if !w.exists(kind, name) {
			t.Errorf("%s %s was deleted", kind, name)
		}
	}
	if err := w.client.Tracker().Delete(manifests.GroupVersion.WithResource("clusters"), "team", "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.i.Uninstall(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for kind, name := range kept {
		if w.exists(kind, name) {
			t.Errorf("%s %s still exists", kind, name)
		}
	}
}

// TestUninstall_KeepsForeignObjects has a Service with the name of the webhook that another program has made.
func TestUninstall_KeepsForeignObjects(t *testing.T) {
	w := newWorld(t)
	if err := w.install("v1.1.0"); err != nil {
		t.Fatal(err)
	}
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	is, err := w.client.Resource(services).Namespace(manifests.Namespace).Get(t.Context(), manifests.WebhookName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	is.SetLabels(nil)
	if err := w.client.Tracker().Update(services, is, manifests.Namespace); err != nil {
		t.Fatal(err)
	}
	if err := w.i.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if !w.exists("Service", manifests.WebhookName) || w.exists("Deployment", manifests.Name) {
		t.Error("the removal does not distinguish whose objects these are")
	}
}
