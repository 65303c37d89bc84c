package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

const (
	firstHost  = "{name: cp-1, address: 10.0.0.11, roles: [control-plane]}"
	secondHost = "{name: w-1, address: 10.0.0.12, roles: [worker]}"
)

// TestApply_MergesHostsOfTwoManagers applies hosts by two field managers. A conflict names the
// other manager and the field.
func TestApply_MergesHostsOfTwoManagers(t *testing.T) {
	at := newDynamic(t, server.Admin).Resource(clusterResource).Namespace(server.NewNamespace(t))
	apply := func(manager, hosts string) (*unstructured.Unstructured, error) {
		return at.Apply(t.Context(), "prod", newCluster(t, "prod", hosts), metav1.ApplyOptions{FieldManager: manager})
	}
	if _, err := apply("anna", firstHost); err != nil {
		t.Fatal(err)
	}
	if _, err := apply("ben", secondHost); err != nil {
		t.Fatal(err)
	}
	_, err := apply("ben", secondHost+", {name: cp-1, address: 10.9.9.9, roles: [control-plane]}")
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `"anna"`) || !hasField(err, `spec.hosts[name="cp-1"].address`) {
		t.Errorf("a conflict must name the manager and the field: %v, %q", err, fieldsOf(err))
	}
	got, err := at.Get(t.Context(), "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hosts, _, _ := unstructured.NestedSlice(got.Object, "spec", "hosts")
	var names []string
	for _, h := range hosts {
		names = append(names, fmt.Sprint(h.(map[string]any)["name"], " ", h.(map[string]any)["address"]))
	}
	if diff := cmp.Diff([]string{"cp-1 10.0.0.11", "w-1 10.0.0.12"}, names); diff != "" {
		t.Error(diff)
	}
}

// manyHosts returns n hosts, with fields as a real cluster has them.
func manyHosts(n int) string {
	var out []string
	for i := range n {
		role := "worker"
		if i < 5 {
			role = "control-plane"
		}
		out = append(out, fmt.Sprintf("{name: host-%d, address: 10.0.%d.%d, roles: [%s], labels: {rack: r%d}}", i, i/250, i%250+1, role, i/20))
	}
	return strings.Join(out, ", ")
}

// TestClusters_AllowThousandHosts creates, applies and changes an object with 1,000 hosts.
func TestClusters_AllowThousandHosts(t *testing.T) {
	at := newDynamic(t, server.Admin).Resource(clusterResource).Namespace(server.NewNamespace(t))
	object := newCluster(t, "big", manyHosts(1000))
	if _, err := at.Apply(t.Context(), "big", object, metav1.ApplyOptions{FieldManager: "anna"}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec": {"approval": "Manual"}}`)
	if _, err := at.Patch(t.Context(), "big", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	setCreated(t, at, "big")
	object = newCluster(t, "big", strings.Replace(manyHosts(1000), "rack: r7}", "rack: r8}", 1))
	if _, err := at.Apply(t.Context(), "big", object, metav1.ApplyOptions{FieldManager: "anna", Force: true}); err != nil {
		t.Error(err)
	}
	object = newCluster(t, "big", strings.Replace(manyHosts(1000), "roles: [worker]", "roles: [etcd]", 1))
	_, err := at.Apply(t.Context(), "big", object, metav1.ApplyOptions{FieldManager: "anna", Force: true})
	if !apierrors.IsInvalid(err) || !hasField(err, "spec.hosts[5].roles") {
		t.Errorf("the roles of a host cannot change: %v", err)
	}
}

// TestClusters_RefuseBadHosts has lists of hosts that cannot be stored. The refusal names the
// entry.
func TestClusters_RefuseBadHosts(t *testing.T) {
	at := newDynamic(t, server.Admin).Resource(clusterResource).Namespace(server.NewNamespace(t))
	for _, tc := range []struct{ name, reason, hosts, field string }{
		{"one name", "the name is the key of the list", firstHost + ", " + firstHost, "spec.hosts[1]"},
		{"one address", "an address is one machine", firstHost + ", {name: w-1, address: 10.0.0.11, roles: [worker]}", "spec.hosts[1].address"},
		{
			"one internal address", "nodes reach each other by it",
			"{name: a, address: a, internalAddress: 10.0.0.1, roles: [control-plane]}, " +
				"{name: b, address: b, internalAddress: 10.0.0.1, roles: [worker]}", "spec.hosts[1].internalAddress",
		},
		{"no host", "a cluster has hosts", "", "spec.hosts"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := at.Create(t.Context(), newCluster(t, "bad", tc.hosts), metav1.CreateOptions{})
			if err == nil {
				deleteNow(t, at, "bad")
			}
			if !apierrors.IsInvalid(err) || !hasField(err, tc.field) {
				t.Errorf("%s: got %v, want an error about %s", tc.reason, err, tc.field)
			}
		})
	}
}

// TestClusters_AllowOneAddressWithSeveralPorts creates hosts behind one address.
func TestClusters_AllowOneAddressWithSeveralPorts(t *testing.T) {
	at := newDynamic(t, server.Admin).Resource(clusterResource).Namespace(server.NewNamespace(t))
	hosts := firstHost + ", {name: w-1, address: 10.0.0.11, internalAddress: 10.1.0.12, ssh: {port: 2222}, roles: [worker]}"
	if _, err := at.Create(t.Context(), newCluster(t, "ports", hosts), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// A warningList has the warnings of responses.
type warningList struct{ texts []string }

// HandleWarningHeader saves a warning.
func (l *warningList) HandleWarningHeader(_ int, _ string, text string) {
	l.texts = append(l.texts, text)
}

// TestUnknownField_IsErrorOrWarning creates objects with an unknown field. kubectl is strict by
// default.
func TestUnknownField_IsErrorOrWarning(t *testing.T) {
	warnings := &warningList{}
	config := rest.CopyConfig(server.Admin)
	config.WarningHandler = warnings
	at := newDynamic(t, config).Resource(clusterResource).Namespace(server.NewNamespace(t))
	object := func() *unstructured.Unstructured {
		return newCluster(t, "typo", "{name: cp-1, adress: 10.0.0.12, address: 10.0.0.11, roles: [control-plane]}")
	}
	_, err := at.Create(t.Context(), object(), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `"spec.hosts[0].adress"`) {
		t.Errorf("strict: got %v, want an error that names the field", err)
	}
	if _, err := at.Create(t.Context(), object(), metav1.CreateOptions{FieldValidation: metav1.FieldValidationWarn}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{`unknown field "spec.hosts[0].adress"`}, warnings.texts); diff != "" {
		t.Error(diff)
	}
}

// TestLargeObjects_AreRefusedWithSize sends objects above the limits of a request and of the
// database.
func TestLargeObjects_AreRefusedWithSize(t *testing.T) {
	at := server.Client(t).CoreV1().ConfigMaps(server.NewNamespace(t))
	for _, tc := range []struct {
		name, reason string
		bytes        int
		want         func(error) bool
	}{
		{"below", "a ConfigMap has at most 1 MiB", 1<<20 - 100, func(err error) bool { return err == nil }},
		{"above", "a ConfigMap has at most 1 MiB", 1<<20 + 1, apierrors.IsInvalid},
		{"request", "a request has at most 3 MiB", 4 << 20, apierrors.IsRequestEntityTooLargeError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: tc.name}, Data: map[string]string{"a": strings.Repeat("a", tc.bytes)}}
			if _, err := at.Create(t.Context(), object, metav1.CreateOptions{}); !tc.want(err) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
	clusters := newDynamic(t, server.Admin).Resource(clusterResource).Namespace(server.NewNamespace(t))
	for _, bytes := range []int{3 << 19, 1 << 21} { // etcd refuses the first, and its client the second
		object := newCluster(t, "big", firstHost)
		values := map[string]any{"name": "web", "values": map[string]any{"a": strings.Repeat("a", bytes)}}
		if err := unstructured.SetNestedSlice(object.Object, []any{values}, "spec", "addons"); err != nil {
			t.Fatal(err)
		}
		_, err := clusters.Create(t.Context(), object, metav1.CreateOptions{})
		if !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("a Cluster with %d bytes: got %v (%v)", bytes, err, apierrors.ReasonForError(err))
		}
	}
}

// TestNamespace_IsDeletedWithObjects deletes a namespace with objects of several kinds.
func TestNamespace_IsDeletedWithObjects(t *testing.T) {
	t.Parallel() // it waits most of the time
	client, objects := server.Client(t), newDynamic(t, server.Admin)
	const name = "deleted"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clusters := objects.Resource(clusterResource).Namespace(name)
	if _, err := clusters.Create(t.Context(), newCluster(t, "prod", firstHost), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := client.CoreV1().Secrets(name).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the namespace is gone", isGone(objects.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), name))
	if _, err := clusters.Get(t.Context(), "prod", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Cluster: got %v, want that it does not exist", err)
	}
}

// TestOwner_DeletesItsObjects deletes a Cluster that owns an Operation and a Secret.
func TestOwner_DeletesItsObjects(t *testing.T) {
	client, objects, namespace := server.Client(t), newDynamic(t, server.Admin), server.NewNamespace(t)
	clusters, operations := objects.Resource(clusterResource).Namespace(namespace), objects.Resource(operationResource).Namespace(namespace)
	owner, err := clusters.Create(t.Context(), newCluster(t, "prod", firstHost), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reference := metav1.OwnerReference{APIVersion: "slipway.dev/v1alpha1", Kind: "Cluster", Name: "prod", UID: owner.GetUID()}
	operation := newOperation(t, "create-1", "{clusterRef: {name: prod}, kind: create}")
	operation.SetOwnerReferences([]metav1.OwnerReference{reference})
	if _, err := operations.Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "prod-pki", OwnerReferences: []metav1.OwnerReference{reference}}}
	if _, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clusters.Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the Operation is gone", isGone(operations, "create-1"))
	secrets := objects.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace)
	waitUntil(t, "the Secret is gone", isGone(secrets, "prod-pki"))
}

// newOperation returns an Operation with a spec, "{…}".
func newOperation(t testing.TB, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return decodeObject(t, fmt.Sprintf("apiVersion: slipway.dev/v1alpha1\nkind: Operation\nmetadata: {name: %s}\nspec: %s\n", name, spec))
}

// TestWatch_ResumesAtRevision ends a watch, changes objects, and watches again from the last
// revision that was seen.
func TestWatch_ResumesAtRevision(t *testing.T) {
	at := newDynamic(t, server.Admin).Resource(clusterResource).Namespace(server.NewNamespace(t))
	first, err := at.Create(t.Context(), newCluster(t, "a", firstHost), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := at.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if _, err := at.Create(t.Context(), newCluster(t, "b", firstHost), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deleteNow(t, at, "a")
	w, err = at.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []string
	for event := range w.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			t.Fatalf("got %v", event)
		}
		if got = append(got, fmt.Sprint(event.Type, " ", object.GetName())); len(got) == 2 {
			break
		}
	}
	if diff := cmp.Diff([]string{"ADDED b", "DELETED a"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestDeletion_IsForegroundOnRequest deletes an owner that waits for its objects.
func TestDeletion_IsForegroundOnRequest(t *testing.T) {
	objects, namespace := newDynamic(t, server.Admin), server.NewNamespace(t)
	clusters, operations := objects.Resource(clusterResource).Namespace(namespace), objects.Resource(operationResource).Namespace(namespace)
	owner, err := clusters.Create(t.Context(), newCluster(t, "prod", firstHost), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	operation := newOperation(t, "create-1", "{clusterRef: {name: prod}, kind: create}")
	operation.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "slipway.dev/v1alpha1", Kind: "Cluster", Name: "prod", UID: owner.GetUID(), BlockOwnerDeletion: &yes,
	}})
	if _, err := operations.Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	foreground := metav1.DeletePropagationForeground
	if err := clusters.Delete(t.Context(), "prod", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the Cluster is gone", isGone(clusters, "prod"))
	if _, err := operations.Get(t.Context(), "create-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Operation exists after its owner: %v", err)
	}
}
