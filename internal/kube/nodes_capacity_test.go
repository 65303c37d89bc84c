package kube

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodesInsufficientCapacity_ReturnsNodesWhosePodsDoNotFit(t *testing.T) {
	node := func(name, cpu string, taints ...corev1.Taint) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("4Gi")},
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
	}
	pod := func(name, owner, on, phase, requests, starts string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"ns",`+
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":%q,"name":"o","uid":"u","controller":true}]},`+
			`"spec":{"nodeName":%q,"containers":[{"name":"c","resources":{"requests":{%s}}}],"initContainers":[{"name":"i",`+
			`"resources":{"requests":{%s}}}]},"status":{"phase":%q}}`,
			name, owner, on, requests, starts, phase)
	}
	all := []corev1.Node{
		node("cp1", "2", corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}),
		node("w1", "2500m"), node("w2", "1"),
	}
	f := newFakeAPI(t, call{request: "GET /api/v1/pods", answer: listJSON(
		pod("web", "ReplicaSet", "w1", "Running", `"cpu":"500m"`, `"cpu":"700m"`),
		pod("proxy", "DaemonSet", "w1", "Running", `"cpu":"1"`, ""),
		pod("ended", "Job", "w1", "Succeeded", `"cpu":"2"`, ""),
		pod("db", "StatefulSet", "w2", "Running", `"cpu":"400m"`, ""),
		pod("waits", "ReplicaSet", "", "Pending", `"cpu":"4"`, ""),
	)})
	got, err := f.newClient().Nodes().InsufficientCapacity(t.Context(), all, []string{"w1", "w2"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"w1: its pods request 700m of cpu, but only 600m is free"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestNodesInsufficientCapacity_CountsAsScheduler has a sidecar on the node that is drained,
// and on the other node a pod that still has more than it wants since it was resized.
func TestNodesInsufficientCapacity_CountsAsScheduler(t *testing.T) {
	node := func(name string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
	}
	const owner = `"namespace":"ns","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"u","controller":true}]`
	f := newFakeAPI(t, call{request: "GET /api/v1/pods", answer: listJSON(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web",`+owner+`},"spec":{"nodeName":"w1",`+
			`"initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"100m"}}}],`+
			`"containers":[{"name":"c","resources":{"requests":{"cpu":"200m"}}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"db",`+owner+`},"spec":{"nodeName":"w2",`+
			`"containers":[{"name":"c","resources":{"requests":{"cpu":"300m"}}}]},`+
			`"status":{"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"750m"},"resources":{"requests":{"cpu":"750m"}}}]}}`,
	)})
	got, err := f.newClient().Nodes().InsufficientCapacity(t.Context(), []corev1.Node{node("w1"), node("w2")}, []string{"w1"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"w1: its pods request 300m of cpu, but only 250m is free"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
