package hostroles

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestPorts_FollowRolesAndEtcdType(t *testing.T) {
	worker, control := []v1alpha1.Role{v1alpha1.RoleWorker}, []v1alpha1.Role{v1alpha1.RoleControlPlane}
	tests := map[string]struct {
		reason string
		spec   v1alpha1.ClusterSpec
		roles  []v1alpha1.Role
		want   []int
	}{
		"worker": {"no part of the control plane", v1alpha1.ClusterSpec{}, worker, []int{8472, 10248, 10249, 10250, 10256}},
		"control plane": {
			"etcd is stacked unless said otherwise",
			v1alpha1.ClusterSpec{},
			control,
			[]int{2379, 2380, 2381, 6443, 8472, 10248, 10249, 10250, 10256, 10257, 10259},
		},
		"external etcd": {
			"it is elsewhere",
			v1alpha1.ClusterSpec{Etcd: v1alpha1.Etcd{Type: "external"}},
			control,
			[]int{6443, 8472, 10248, 10249, 10250, 10256, 10257, 10259},
		},
		"etcd host": {
			"a member by its role, and no kubelet",
			v1alpha1.ClusterSpec{Etcd: v1alpha1.Etcd{Type: "managed"}},
			[]v1alpha1.Role{v1alpha1.RoleEtcd},
			[]int{2379, 2380, 2381},
		},
		"no proxy, no tunnel": {
			"who is not there does not listen",
			v1alpha1.ClusterSpec{Kubernetes: v1alpha1.Kubernetes{ProxyMode: "none"}, Network: v1alpha1.Network{Plugin: "none"}},
			worker,
			[]int{10248, 10250},
		},
		"flannel without tunnel": {
			"host-gw sets routes",
			v1alpha1.ClusterSpec{Network: v1alpha1.Network{Flannel: v1alpha1.Flannel{Backend: "host-gw"}}},
			worker,
			[]int{10248, 10249, 10250, 10256},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, p := range RequiredPorts(&v1alpha1.Cluster{Spec: tt.spec}, tt.roles) {
				got = append(got, p.Number)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}
