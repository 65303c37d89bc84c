package admission

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/hostclaims"
)

// newCluster returns a Cluster that can be stored. Its Secret does not exist.
func newCluster(name, address string) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"}}
	c.Namespace, c.Name, c.UID = "team", name, types.UID("uid-"+name)
	c.Spec.FilesFrom = []v1alpha1.FilesSource{{SecretRef: &v1alpha1.LocalReference{Name: "ssh"}}}
	c.Spec.SSH.PrivateKeyFile = "id_ed25519"
	c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Address: address, Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
	return c
}

// newChecker returns a checker that knows one stored Cluster.
func newChecker(stored *v1alpha1.Cluster) *Checker {
	claims := hostclaims.NewIndex(time.Now)
	claims.Set(hostclaims.New(stored))
	claims.SetComplete()
	list := func(_ context.Context, namespace string) (out []v1alpha1.Cluster, err error) {
		if namespace == stored.Namespace {
			out = append(out, *stored)
		}
		return out, nil
	}
	return &Checker{Claims: claims, ListClusters: list, DefaultVersion: "v1.37.1", Supported: func(v string) error {
		if v != "v1.37.1" {
			return errors.New(v + " is not supported")
		}
		return nil
	}}
}

// change returns a changed copy of a Cluster.
func change(c *v1alpha1.Cluster, f func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
	c = c.DeepCopy()
	f(c)
	return c
}

func TestCheckCluster_HasRulesOfCommandLine(t *testing.T) {
	own := newCluster("other", "10.0.0.2")
	old := change(own, func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Version = "v1.20.0" })
	second := change(own, func(c *v1alpha1.Cluster) { c.Spec.Hosts[0].Address = "10.0.0.1" })
	for _, tc := range []struct {
		name, reason string
		object, old  *v1alpha1.Cluster
		want         string // part of the error, "" for none
	}{
		{"valid", "its Secret can follow", own, nil, ""},
		{"version", "it is not in the catalogue", old, nil, "spec.kubernetes.version: Invalid value: v1.20.0 is not supported"},
		{
			"file of the server", "a file name is a key",
			change(own, func(c *v1alpha1.Cluster) { c.Spec.SSH.PrivateKeyFile = "/root/.ssh/id_rsa" }), nil, "spec.ssh.privateKeyFile",
		},
		{"this machine", "the server must not change itself", newCluster("other", "localhost"), nil, "spec.hosts[0].address"},
		{
			"time zone", "the definition cannot check it", change(own, func(c *v1alpha1.Cluster) {
				c.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{
					{Start: "01:00", Duration: &metav1.Duration{Duration: time.Hour}, TimeZone: "Mars"},
				}
			}), nil, "spec.maintenance.windows[0].timeZone: Invalid value: there is no time zone \"Mars\"; write a time zone",
		},
		{
			"host of another", "a host is in one cluster", second, nil,
			"spec.hosts[0].address: Invalid value: host cp1 (10.0.0.1) is in Cluster team/prod already",
		},
		{"itself", "the object is its own", newCluster("prod", "10.0.0.1"), nil, ""},
		{"host of another, by a change", "a host is in one cluster", second, own, "is in Cluster team/prod already"},
		{"known problem", "the change adds none", change(old, func(c *v1alpha1.Cluster) { c.Spec.Paused = true }), old, ""},
		{
			"one more problem", "the change adds one",
			change(old, func(c *v1alpha1.Cluster) { c.Spec.SSH.PrivateKeyFile = "/root/.ssh/id_rsa" }), old, "spec.ssh.privateKeyFile",
		},
		{"known host of another", "the controller decides", change(second, func(c *v1alpha1.Cluster) { c.Spec.Paused = true }), second, ""},
		{
			"metadata", "the spec has not changed",
			change(old, func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"a": "b"} }), old, "",
		},
		{
			"deleted", "its finalizer must be removable",
			change(second, func(c *v1alpha1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), own, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := newChecker(newCluster("prod", "10.0.0.1")).CheckCluster(tc.object, tc.old)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestCheckCluster_WithoutClaims has no other Clusters yet. The controllers compare the hosts.
func TestCheckCluster_WithoutClaims(t *testing.T) {
	for _, k := range []*Checker{{}, {Claims: hostclaims.NewIndex(time.Now)}} {
		if _, err := k.CheckCluster(newCluster("other", "10.0.0.1"), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckCluster_Warns(t *testing.T) {
	c := change(newCluster("other", "10.0.0.2"), func(c *v1alpha1.Cluster) {
		c.Spec.FilesFrom, c.Spec.SSH = nil, v1alpha1.SSH{Password: "secret"}
	})
	warnings, err := newChecker(newCluster("prod", "10.0.0.1")).CheckCluster(c, nil)
	if err != nil || len(warnings) == 0 || !strings.Contains(warnings[0], "spec.ssh.password") || strings.Contains(warnings[0], "secret") {
		t.Errorf("warnings %q, %v", warnings, err)
	}
}

func TestCheckNamespaceDeletion_KeepsWhatADeletionNeeds(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		change       func(*v1alpha1.Cluster)
		want         string // part of the error, "" for none
	}{
		{"retained", "its hosts are not changed", func(*v1alpha1.Cluster) {}, ""},
		{
			"protected", "it cannot be deleted", func(c *v1alpha1.Cluster) {
				c.Annotations = map[string]string{v1alpha1.AnnotationProtection: "true"}
			}, "prod are protected against deletion: remove the annotation slipway.dev/deletion-protection",
		},
		{
			"not protected", "the user has allowed it", func(c *v1alpha1.Cluster) {
				c.Annotations = map[string]string{v1alpha1.AnnotationProtection: "false"}
			}, "",
		},
		{
			"removed from hosts", "the deletion needs its Secrets",
			func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete },
			"prod have spec.deletionPolicy Delete: delete them first",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newChecker(change(newCluster("prod", "10.0.0.1"), tc.change))
			err := k.CheckNamespaceDeletion(t.Context(), "team")
			if (err == nil) != (tc.want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
			if err := k.CheckNamespaceDeletion(t.Context(), "empty"); err != nil {
				t.Errorf("a namespace without Clusters: %v", err)
			}
		})
	}
	unavailable := &Checker{ListClusters: func(context.Context, string) ([]v1alpha1.Cluster, error) { return nil, errors.New("no answer") }}
	if err := unavailable.CheckNamespaceDeletion(t.Context(), "team"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("Clusters that cannot be read: %v", err)
	}
}

// TestReview_IsSameAsCheck sends requests as the API server of a webhook does.
func TestReview_IsSameAsCheck(t *testing.T) {
	raw := func(c *v1alpha1.Cluster) runtime.RawExtension {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	clusters := metav1.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "clusters"}
	valid, second := newCluster("other", "10.0.0.2"), newCluster("other", "10.0.0.1")
	k := newChecker(change(newCluster("prod", "10.0.0.1"), func(c *v1alpha1.Cluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete }))
	create, update := admissionv1.Create, admissionv1.Update
	for _, tc := range []struct {
		name    string
		request admissionv1.AdmissionRequest
		code    int32 // 0 for allowed
	}{
		{"create", admissionv1.AdmissionRequest{Resource: clusters, Operation: create, Object: raw(valid)}, 0},
		{"create a second one", admissionv1.AdmissionRequest{Resource: clusters, Operation: create, Object: raw(second)}, 422},
		{"update", admissionv1.AdmissionRequest{Resource: clusters, Operation: update, Object: raw(second), OldObject: raw(valid)}, 422},
		{"status", admissionv1.AdmissionRequest{Resource: clusters, SubResource: "status", Operation: update, Object: raw(second)}, 0},
		{"delete", admissionv1.AdmissionRequest{Resource: clusters, Operation: admissionv1.Delete, OldObject: raw(second)}, 0},
		{
			"no object",
			admissionv1.AdmissionRequest{Resource: clusters, Operation: create, Object: runtime.RawExtension{Raw: []byte("[]")}},
			400,
		},
		{
			"namespace", admissionv1.AdmissionRequest{
				Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Operation: admissionv1.Delete, Name: "team",
			}, 403,
		},
		{"another kind", admissionv1.AdmissionRequest{Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.request.UID = "id"
			got := k.Review(t.Context(), &tc.request)
			var code int32
			if got.Result != nil {
				code = got.Result.Code
			}
			if got.UID != "id" || got.Allowed != (tc.code == 0) || code != tc.code {
				t.Errorf("got %+v, want code %d", got, tc.code)
			}
		})
	}
}
