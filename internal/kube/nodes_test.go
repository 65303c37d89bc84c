package kube

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestNodeDiff_ChangesOnlyOwnLabelsAndTaints(t *testing.T) {
	node := func(labels, notes map[string]string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "5", Labels: labels, Annotations: notes},
			Spec:       corev1.NodeSpec{Taints: taints},
		}
	}
	type m = map[string]string
	gpu := v1alpha1.Taint{Key: "gpu", Value: "1", Effect: "NoSchedule"}
	foreign := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	tests := map[string]struct {
		reason  string
		node    *corev1.Node
		want    NodeWant
		patch   string
		changes []string
	}{
		"nothing wanted, nothing recorded": {"labels and taints of others are kept", node(m{"a": "b"}, nil, foreign), NodeWant{}, "", nil},
		"as wanted": {
			"an unchanged node is not written",
			node(m{"disk": "ssd"}, m{LabelsAnnotation: "disk", TaintsAnnotation: "gpu:NoSchedule"},
				corev1.Taint{Key: "gpu", Value: "1", Effect: "NoSchedule"}),
			NodeWant{Labels: m{"disk": "ssd"}, Taints: []v1alpha1.Taint{gpu}},
			"", nil,
		},
		"label set": {
			"what is ours is recorded beside it",
			node(m{"zone": "a"}, nil),
			NodeWant{Labels: m{"zone": "b", "disk": "ssd"}},
			`{"metadata":{"annotations":{"slipway.dev/labels":"disk,zone"},"labels":{"disk":"ssd","zone":"b"}}}`,
			[]string{"label disk=ssd", "label zone=b (was a)", "annotation slipway.dev/labels=disk,zone"},
		},
		"label recorded only": {
			"it was there already, and is ours from now on",
			node(m{"disk": "ssd"}, nil),
			NodeWant{Labels: m{"disk": "ssd"}},
			`{"metadata":{"annotations":{"slipway.dev/labels":"disk"}}}`,
			[]string{"annotation slipway.dev/labels=disk"},
		},
		"label removed": {
			"a label taken out of the file is taken off the node; another's stays",
			node(m{"disk": "ssd", "theirs": "x"}, m{LabelsAnnotation: "disk,gone"}),
			NodeWant{},
			`{"metadata":{"annotations":{"slipway.dev/labels":null},"labels":{"disk":null}}}`,
			[]string{"remove label disk=ssd", "remove annotation slipway.dev/labels"},
		},
		"label owned without record": {
			"what kubeadm sets for us can be taken off too",
			node(m{"made": ""}, nil),
			NodeWant{OwnedLabels: []string{"made", "other"}},
			`{"metadata":{"labels":{"made":null}}}`,
			[]string{"remove label made="},
		},
		"taint added": {
			"the list is replaced as a whole, so the patch holds for this version alone",
			node(nil, nil, foreign),
			NodeWant{Taints: []v1alpha1.Taint{gpu, gpu}},
			`{"metadata":{"annotations":{"slipway.dev/taints":"gpu:NoSchedule,gpu:NoSchedule"},"resourceVersion":"5"},` +
				`"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"},{"key":"gpu","value":"1","effect":"NoSchedule"}]}}`,
			[]string{"taint gpu=1:NoSchedule", "annotation slipway.dev/taints=gpu:NoSchedule,gpu:NoSchedule"},
		},
		"taint changed": {
			"key and effect are its identity",
			node(nil, m{TaintsAnnotation: "gpu:NoSchedule"}, corev1.Taint{Key: "gpu", Value: "0", Effect: "NoSchedule"}),
			NodeWant{Taints: []v1alpha1.Taint{gpu}},
			`{"metadata":{"resourceVersion":"5"},"spec":{"taints":[{"key":"gpu","value":"1","effect":"NoSchedule"}]}}`,
			[]string{"taint gpu=1:NoSchedule (was gpu=0:NoSchedule)"},
		},
		"taint removed": {
			"ours goes, the controller's stays; the last one leaves null, not a list",
			node(nil, m{TaintsAnnotation: "gpu:NoSchedule"}, corev1.Taint{Key: "gpu", Value: "1", Effect: "NoSchedule"}),
			NodeWant{},
			`{"metadata":{"annotations":{"slipway.dev/taints":null},"resourceVersion":"5"},"spec":{"taints":null}}`,
			[]string{"remove taint gpu=1:NoSchedule", "remove annotation slipway.dev/taints"},
		},
		"kubeadm's taint": {
			"a control plane that is a worker too must lose it",
			node(nil, nil, corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}, foreign),
			NodeWant{OwnedTaints: []string{"node-role.kubernetes.io/control-plane:NoSchedule"}},
			`{"metadata":{"resourceVersion":"5"},"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}]}}`,
			[]string{"remove taint node-role.kubernetes.io/control-plane:NoSchedule"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch, changes := NodeDiff(tt.node, tt.want)
			if diff := cmp.Diff(tt.patch, string(patch)); diff != "" {
				t.Errorf("%s: patch: -want +got\n%s", tt.reason, diff)
			}
			if diff := cmp.Diff(tt.changes, changes); diff != "" {
				t.Errorf("%s: changes: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

func TestNodesPatch_RetriesAfterConflictAndMissingNode(t *testing.T) {
	const path = "/api/v1/nodes/n"
	was := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","resourceVersion":"5"}}`
	f := newFakeAPI(t,
		call{request: "GET " + path, status: 404}, // its kubelet has begun, and it is not there yet
		call{request: "GET " + path, answer: was},
		call{request: "PATCH " + path + "?fieldManager=slipway", body: `"resourceVersion":"5"`, status: 409},
		call{request: "GET " + path, answer: strings.Replace(was, `"5"`, `"6"`, 1)},
		call{request: "PATCH " + path + "?fieldManager=slipway", body: `"resourceVersion":"6"`, answer: was},
	)
	c := f.newClient()
	changes, err := c.Nodes().Patch(t.Context(), "n", NodeWant{Taints: []v1alpha1.Taint{{Key: "a", Effect: "NoSchedule"}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"taint a:NoSchedule", "annotation slipway.dev/taints=a:NoSchedule"}, changes); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestNodeStateOf_ReadsConditionsAndTaints(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{MachineID: "m", KubeletVersion: "v1.37.1"},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "n"},
				{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
				{Type: corev1.NodeInternalIP, Address: "fd00::1"},
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "fine"}},
		},
	}
	want := NodeState{
		Name: "n", Ready: true, MachineID: "m", InternalIP: "10.0.0.1", Version: "v1.37.1",
		Labels: map[string]string{"a": "b"}, Taints: []v1alpha1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}, Unschedulable: true,
	}
	if diff := cmp.Diff(want, NodeStateOf(n)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	n.Status.Conditions = nil
	if s := NodeStateOf(n); s.Ready || s.Message == "" {
		t.Errorf("the state of a node that never reported: %+v", s)
	}
}

func TestNodesWaitReady_ReportsEachChangeOnce(t *testing.T) {
	node := func(ready, message, at string) string {
		return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"` + ready +
			`","message":"` + message + `","lastHeartbeatTime":"` + at + `"}]}}`
	}
	const (
		get    = "GET /api/v1/nodes/a"
		before = "2026-01-02T03:04:05Z"
		after  = "2026-01-02T03:04:07Z"
	)
	f := newFakeAPI(t,
		call{request: get, status: 404, answer: statusAnswer(404, "no such node")},
		call{request: get, answer: node("True", "", before)},
		call{request: get, status: 503},
		call{request: get, answer: node("False", "no network", after)},
		call{request: get, answer: node("False", "no network", after)},
		call{
			request: get,
			answer: strings.Replace(node("True", "", after), `"status"`,
				`"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]},"status"`, 1),
		},
		call{request: get, answer: node("True", "", after)},
		call{request: get, status: 403, answer: statusAnswer(403, "nodes is forbidden")},
	)
	c := f.newClient()
	var said []string
	// A node tells whole seconds.
	started := time.Date(2026, 1, 2, 3, 4, 7, 900e6, time.UTC)
	if err := c.Nodes().WaitReady(t.Context(), "a", started, func(s string) { said = append(said, s) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the node has not registered", "the kubelet has not reported since it was started",
		"the node is not Ready: no network", "the node still has the not-ready taint",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("reported changes: -want +got\n%s", diff)
	}
	wantReason(t, c.Nodes().WaitReady(t.Context(), "a", started, nil), ReasonForbidden)
}

func TestNodesWaitReady_ReturnsMissingPartWhenContextEnds(t *testing.T) {
	f := newFakeAPI(t, call{request: "GET /api/v1/nodes/a", status: 404, answer: statusAnswer(404, "no such node")})
	c := f.newClient()
	c.first, c.interval = time.Hour, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := c.Nodes().WaitReady(ctx, "a", time.Time{}, func(string) { cancel() })
	wantReason(t, err, ReasonTimeout)
	if err == nil || !strings.Contains(err.Error(), "stopped waiting: the node has not registered") {
		t.Errorf("the error does not name the missing part: %v", err)
	}
}
