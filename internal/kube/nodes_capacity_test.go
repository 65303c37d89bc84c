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

// TestPodRequests_CountsAsTheScheduler: the cases of PodRequests in
// k8s.io/component-helpers/resource.
func TestPodRequests_CountsAsTheScheduler(t *testing.T) {
	cpu := func(q string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
	}
	container := func(q string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: cpu(q)}}
	}
	sidecar := func(q string) corev1.Container {
		c := container(q)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		return c
	}
	web := []corev1.Container{container("300m"), container("200m")}
	for _, tc := range []struct {
		name, reason string
		spec         corev1.PodSpec
		want         string
	}{
		{"containers", "all run at once", corev1.PodSpec{Containers: web}, "500m"},
		{
			"overhead", "the runtime needs it at all times",
			corev1.PodSpec{Containers: web, InitContainers: []corev1.Container{container("600m")}, Overhead: cpu("50m")},
			"650m",
		},
		{
			"init containers", "one runs after the other",
			corev1.PodSpec{Containers: web, InitContainers: []corev1.Container{container("400m"), container("400m")}},
			"500m",
		},
		{
			"sidecar", "it runs next to the containers",
			corev1.PodSpec{Containers: web, InitContainers: []corev1.Container{sidecar("100m")}},
			"600m",
		},
		{
			"init container before a sidecar", "the sidecar does not run yet",
			corev1.PodSpec{Containers: web, InitContainers: []corev1.Container{container("700m"), sidecar("100m")}},
			"700m",
		},
		{
			"init container after sidecars", "all sidecars before it run",
			corev1.PodSpec{Containers: web, InitContainers: []corev1.Container{sidecar("100m"), sidecar("50m"), container("700m")}},
			"850m",
		},
		{
			"sidecar after an init container", "it counts only from its start on",
			corev1.PodSpec{
				Containers:     web,
				InitContainers: []corev1.Container{sidecar("100m"), container("500m"), sidecar("300m")},
			},
			"900m",
		},
		{
			"pod", "its requests replace the sum",
			corev1.PodSpec{
				Containers: web, Overhead: cpu("50m"),
				Resources: &corev1.ResourceRequirements{Requests: cpu("2")},
			},
			"2050m",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := podRequests(&corev1.Pod{Spec: tc.spec})[corev1.ResourceCPU]
			if got.Cmp(resource.MustParse(tc.want)) != 0 {
				t.Errorf("requests %s, want %s: %s", got.String(), tc.want, tc.reason)
			}
		})
	}
}
