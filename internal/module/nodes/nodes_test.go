package nodes

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
)

func TestWantedNode_PerRole(t *testing.T) {
	const cp, w = v1alpha1.RoleControlPlane, v1alpha1.RoleWorker
	ours := v1alpha1.Taint{Key: kube.ControlPlaneTaint, Effect: "NoSchedule"}
	theirs := v1alpha1.Taint{Key: "gpu", Value: "yes", Effect: "NoSchedule"}
	host := func(name string, roles ...v1alpha1.Role) v1alpha1.Host {
		return v1alpha1.Host{Name: name, Roles: roles}
	}
	for _, tc := range []struct {
		name, reason string
		hosts        []v1alpha1.Host // the first one is tested
		want         kube.NodeWant
	}{
		{
			"control plane with workers", "pods run on the workers",
			[]v1alpha1.Host{host("cp1", cp), host("w1", w)},
			kube.NodeWant{
				Labels: map[string]string{}, Taints: []v1alpha1.Taint{ours}, Marks: []string{kube.ControlPlaneTaint},
				OwnedLabels: []string{workerLabel}, OwnedTaints: []string{kube.ControlPlaneTaint + ":NoSchedule"},
			},
		},
		{
			"control plane that is a worker", "with the worker role the taint of kubeadm is removed",
			[]v1alpha1.Host{host("cp1", cp, w)},
			kube.NodeWant{
				Labels: map[string]string{workerLabel: ""}, Marks: []string{kube.ControlPlaneTaint},
				OwnedLabels: []string{workerLabel}, OwnedTaints: []string{kube.ControlPlaneTaint + ":NoSchedule"},
			},
		},
		{
			"worker with labels and taints", "the node has the settings of the file and of its role",
			[]v1alpha1.Host{{
				Name: "w1", Roles: []v1alpha1.Role{w}, Labels: map[string]string{"disk": "ssd"},
				Taints: []v1alpha1.Taint{theirs},
			}, host("cp1", cp)},
			kube.NodeWant{
				Labels: map[string]string{"disk": "ssd", workerLabel: ""}, Taints: []v1alpha1.Taint{theirs},
				OwnedLabels: []string{workerLabel},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.Hosts = tc.hosts
			got := wantedNode(module.Env{Cluster: c}, &engine.Host{Host: tc.hosts[0]})
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}
