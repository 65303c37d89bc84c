package carotation

import (
	"errors"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
)

// TestFindProgress_RefusesOtherEtcdCA checks that the rotation of a CA that Slipway does not manage is
// refused before anything is touched.
func TestFindProgress_RefusesOtherEtcdCA(t *testing.T) {
	t.Parallel()
	q := Query{Env: module.Env{Cluster: &v1alpha1.Cluster{}}}
	q.Env.Cluster.Spec.Etcd.External = &v1alpha1.ExternalEtcd{}
	var list diag.List
	if _, err := q.FindProgress(t.Context(), certs.Etcd, "", &certs.Rotations{}); !errors.As(err, &list) || list[0].ID != "etcd-external" {
		t.Errorf("an external etcd: %v", err)
	}
	q.Env.Cluster.Spec.Etcd.External = nil
	q.Env.Cluster.Spec.Kubernetes.APIServer.ExtraArgs = map[string]string{"etcd-cafile": "/else"}
	q.Env.Cluster.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
	_, err := q.FindProgress(t.Context(), certs.Etcd, "", &certs.Rotations{})
	if !errors.As(err, &list) || list[0].ID != idAuthorityElsewhere {
		t.Errorf("a CA in another file: %v", err)
	}
}
