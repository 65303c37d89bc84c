package kube

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const someMetrics = `# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="resource.k8s.io",removed_release="1.38",resource="resourceclaims",subresource="",` +
	`version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="resource.k8s.io",removed_release="1.38",resource="resourceclaims",` +
	`subresource="status",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="x",removed_release="1.38",resource="ys",subresource="",version="v1"} 0
apiserver_admission_webhook_fail_open_count{name="may.guard.io",type="validating"} 3
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="pods.guard.io",operation="CREATE",` +
	`rejection_code="0",type="admit"} 1
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="pods.guard.io",operation="UPDATE",` +
	`rejection_code="0",type="admit"} 2
apiserver_admission_webhook_rejection_count{error_type="no_error",name="strict.guard.io",operation="CREATE",rejection_code="403",` +
	`type="validating"} 7
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="well.guard.io",operation="CREATE",` +
	`rejection_code="0",type="validating"} 0
apiserver_request_total{code="200"} 12
`

func TestParseAPIMetrics_ReturnsDeprecatedAPIsAndFailedCalls(t *testing.T) {
	f := newFakeAPI(t, call{request: "GET /metrics", answer: someMetrics})
	got, err := f.newClient().ReadAPIMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := APIMetrics{
		Deprecated: []DeprecatedAPI{{Resource: "resourceclaims", Group: "resource.k8s.io", Version: "v1beta1", Removed: "1.38"}},
		Failed:     []FailedCall{{Webhook: "may.guard.io"}, {Webhook: "pods.guard.io", Mutates: true, Refused: true}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the metrics (-want +got):\n%s", d)
	}
	if n := got.Deprecated[0].FullName(); n != "resourceclaims.v1beta1.resource.k8s.io" {
		t.Errorf("the name is %s", n)
	}
}

func TestListBlockingBudgets_ReturnsBudgetsOfPodsOnNodes(t *testing.T) {
	f := newFakeAPI(t, call{request: listBudgets, answer: listJSON(
		aBudget("free", "a", `"minAvailable":1`, `"expectedPods":2,"desiredHealthy":1,"currentHealthy":2,"disruptionsAllowed":1`),
		aBudget("empty", "b", `"minAvailable":1`, `"expectedPods":0`),
		aBudget("ill", "c", `"minAvailable":1`, `"expectedPods":2,"desiredHealthy":1,"currentHealthy":1`),
		aBudget("never", "d", `"maxUnavailable":0`, `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`),
		aBudget("elsewhere", "on-other-nodes", `"maxUnavailable":0`, `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`),
		aBudget("every", "proxy", `"maxUnavailable":0`, `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`),
	)}, call{
		request: listPods,
		answer: listJSON(aPod("a", "ReplicaSet", ""), aPod("b", "ReplicaSet", ""), aPod("c", "ReplicaSet", ""),
			aPod("d", "ReplicaSet", ""), aPod("proxy", "DaemonSet", "")),
	})
	got, err := f.newClient().ListBlockingBudgets(t.Context(), []string{"w1"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ns/ill: 1 of its 2 pods are healthy, but 1 must be", "ns/never: maxUnavailable is 0"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// WaitBudgets waits for budgets that refuse evictions because pods are not healthy yet.
// It does not wait for budgets that never allow an eviction.
func TestWaitBudgets_IgnoresBudgetsThatNeverAllowEviction(t *testing.T) {
	const never = `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`
	pods := call{request: listPods, answer: listJSON(aPod("c", "ReplicaSet", ""), aPod("d", "ReplicaSet", ""))}
	is := func(status string) call {
		return call{
			request: listBudgets,
			answer:  listJSON(aBudget("ill", "c", `"minAvailable":1`, status), aBudget("never", "d", `"maxUnavailable":0`, never)),
		}
	}
	ill, well := is(`"expectedPods":2,"desiredHealthy":1,"currentHealthy":1`), is(`"expectedPods":2,"desiredHealthy":1,`+
		`"currentHealthy":2,"disruptionsAllowed":1`)
	f := newFakeAPI(t, ill, pods, call{request: listBudgets, status: 503}, ill, pods, well, pods, ill, pods)
	c := f.newClient()
	var said []string
	if err := c.WaitBudgets(t.Context(), []string{"w1"}, func(s string) { said = append(said, s) }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ns/ill: 1 of its 2 pods are healthy, but 1 must be"}, said); d != "" {
		t.Errorf("reported changes (-want +got):\n%s", d)
	}
	c.first, c.interval = time.Hour, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wantReason(t, c.WaitBudgets(ctx, []string{"w1"}, func(string) { cancel() }), ReasonTimeout)
}

func TestInsufficientCapacity_ReturnsNodesWhosePodsDoNotFit(t *testing.T) {
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
	got, err := f.newClient().InsufficientCapacity(t.Context(), all, []string{"w1", "w2"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"w1: its pods request 700m of cpu, but only 600m is free"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestListWebhooks_ReportsWhetherServicesAreReady(t *testing.T) {
	hook := func(name, policy, service string) string {
		return `{"name":"` + name + `"` + policy + `,"clientConfig":{"service":{"namespace":"ns","name":"` + service + `"}}}`
	}
	slice := func(ready string) string {
		return `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s","namespace":"ns"},` +
			`"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":` + ready + `}}]}`
	}
	const admission = "GET /apis/admissionregistration.k8s.io/v1/"
	f := newFakeAPI(t,
		call{request: admission + "validatingwebhookconfigurations", answer: listJSON(`{"apiVersion":"admissionregistration.k8s.io/v1",` +
			`"kind":"ValidatingWebhookConfiguration","metadata":{"name":"v"},"webhooks":[` +
			hook("well", "", "well") + "," + hook("ill", "", "ill") + "," + hook("never-mind", `,"failurePolicy":"Ignore"`, "ill") + `,` +
			`{"name":"url","clientConfig":{"url":"https://example.com"}}]}`)},
		call{
			request: "GET /apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dwell",
			answer:  listJSON(slice("true")),
		},
		call{
			request: "GET /apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dill",
			answer:  listJSON(slice("false")),
		},
		call{request: admission + "mutatingwebhookconfigurations", answer: listJSON(`{"apiVersion":"admissionregistration.k8s.io/v1",` +
			`"kind":"MutatingWebhookConfiguration","metadata":{"name":"m"},"webhooks":[` +
			hook("well", `,"failurePolicy":"Ignore"`, "ill") + `]}`)},
	)
	got, err := f.newClient().ListWebhooks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Webhook{
		{Config: "m", Name: "well", Mutates: true},
		{Config: "v", Name: "ill", Dead: "Service ns/ill has no ready endpoint"},
		{Config: "v", Name: "never-mind"},
		{Config: "v", Name: "url"},
		{Config: "v", Name: "well"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if f := (FailedCall{Webhook: "well"}); f.IsOf(got[0]) || !f.IsOf(got[4]) || f.IsOf(got[1]) {
		t.Error("the call matches another webhook")
	}
}

func TestListNames_ReturnsNoneIfKindIsNotServed(t *testing.T) {
	const path = "GET /apis/storagemigration.k8s.io/v1/storageversionmigrations"
	f := newFakeAPI(t,
		call{request: path, answer: listJSON(`{"apiVersion":"storagemigration.k8s.io/v1","kind":"StorageVersionMigration",` +
			`"metadata":{"name":"m"}}`)},
		call{request: path, status: 404},
	)
	c := f.newClient()
	got, err := c.ListNames(t.Context(), "storagemigration.k8s.io/v1/storageversionmigrations")
	if d := cmp.Diff([]string{"m"}, got); d != "" || err != nil {
		t.Errorf("(-want +got):\n%s %v", d, err)
	}
	if got, err = c.ListNames(t.Context(), "storagemigration.k8s.io/v1/storageversionmigrations"); got != nil || err != nil {
		t.Errorf("names of a kind that is not served: %v, %v", got, err)
	}
	if _, err = c.ListNames(t.Context(), "pods"); err == nil {
		t.Error("want an error")
	}
}

func TestSetImage_ChangesImageOfContainer(t *testing.T) {
	const path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
	f := newFakeAPI(t,
		call{request: "GET " + path, answer: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"coredns"},` +
			`"spec":{"template":{"spec":{"containers":[{"name":"coredns","image":"c:2"}]}}}}`},
		call{request: "GET " + path, status: 404},
		call{request: "PATCH " + path, body: `"containers":[{"image":"c:1","name":"coredns"}]`, answer: `{"apiVersion":"apps/v1",` +
			`"kind":"Deployment","metadata":{"name":"coredns"}}`},
		call{request: "GET /apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy", answer: `{"apiVersion":"apps/v1",` +
			`"kind":"DaemonSet","metadata":{"name":"kube-proxy"},"spec":{"template":{"spec":{"containers":[{"name":"kube-proxy",` +
			`"image":"p:2"}]}}}}`},
	)
	c := f.newClient()
	if is, err := c.GetImage(t.Context(), "Deployment", "kube-system", "coredns", "coredns"); is != "c:2" || err != nil {
		t.Errorf("the image is %q, %v", is, err)
	}
	if is, err := c.GetImage(t.Context(), "Deployment", "kube-system", "coredns", "coredns"); is != "" || err != nil {
		t.Errorf("the image of a missing Deployment is %q, %v", is, err)
	}
	if err := c.SetImage(t.Context(), "Deployment", "kube-system", "coredns", "coredns", "c:1"); err != nil {
		t.Error(err)
	}
	if is, err := c.GetImage(t.Context(), "DaemonSet", "kube-system", "kube-proxy", "kube-proxy"); is != "p:2" || err != nil {
		t.Errorf("the image of a DaemonSet is %q, %v", is, err)
	}
}
