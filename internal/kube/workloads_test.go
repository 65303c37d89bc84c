package kube

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWorkloadsListDaemonSets_ReturnsErrorIfListIsForbidden(t *testing.T) {
	f := newFakeAPI(
		t,
		call{request: "GET /apis/apps/v1/daemonsets", answer: `{"kind":"DaemonSetList","apiVersion":"apps/v1","items":[
			{"metadata":{"namespace":"kube-system","name":"kube-proxy"}},{"metadata":{"namespace":"kube-flannel","name":"kube-flannel"}}]}`},
		call{request: "GET /apis/apps/v1/daemonsets", status: 403},
	)
	c := f.newClient()
	got, err := c.Workloads().ListDaemonSets(t.Context())
	if d := cmp.Diff([]string{"kube-flannel/kube-flannel", "kube-system/kube-proxy"}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err := c.Workloads().ListDaemonSets(t.Context()); err == nil {
		t.Error("a forbidden list gives no error")
	}
}

func TestWorkloadsGetReplicas_ReturnsWantedNumberOrZero(t *testing.T) {
	const path = "GET /apis/apps/v1/namespaces/kube-system/deployments/coredns"
	f := newFakeAPI(t,
		call{request: path, status: 404},
		call{request: path, answer: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"coredns"},"spec":{"replicas":5}}`},
		call{request: path, answer: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"coredns"},"spec":{"replicas":0}}`},
		call{request: path, answer: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"coredns"},"spec":{}}`},
	)
	c := f.newClient()
	for _, want := range []int64{0, 5, 0, 1} {
		if n, err := c.Workloads().GetReplicas(t.Context(), "kube-system", "coredns"); n != want || err != nil {
			t.Errorf("got %d, %v, want %d", n, err, want)
		}
	}
}

func TestWorkloadsSetImage_ChangesImageOfContainer(t *testing.T) {
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
	if is, err := c.Workloads().GetImage(t.Context(), "Deployment", "kube-system", "coredns", "coredns"); is != "c:2" || err != nil {
		t.Errorf("the image is %q, %v", is, err)
	}
	if is, err := c.Workloads().GetImage(t.Context(), "Deployment", "kube-system", "coredns", "coredns"); is != "" || err != nil {
		t.Errorf("the image of a missing Deployment is %q, %v", is, err)
	}
	if err := c.Workloads().SetImage(t.Context(), "Deployment", "kube-system", "coredns", "coredns", "c:1"); err != nil {
		t.Error(err)
	}
	if is, err := c.Workloads().GetImage(t.Context(), "DaemonSet", "kube-system", "kube-proxy", "kube-proxy"); is != "p:2" || err != nil {
		t.Errorf("the image of a DaemonSet is %q, %v", is, err)
	}
}

// getCall returns the request for an object that exists with a spec, does not exist, or
// is terminating.
func getCall(path, kind, is string) call {
	meta := `"name":"x","namespace":"n"`
	switch is {
	case "gone":
		return call{request: "GET " + path, status: 404}
	case "ending":
		meta, is = meta+`,"deletionTimestamp":"2026-11-20T18:00:00Z"`, "{}"
	}
	return call{request: "GET " + path, answer: fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{%s},"spec":%s}`, kind, meta, is)}
}

// TestWorkloadsIsDeleted_IsTrueIfGoneOrTerminating: a workload or a bare pod is deleted if it does
// not exist or is terminating. For custom kinds the answer is false.
func TestWorkloadsIsDeleted_IsTrueIfGoneOrTerminating(t *testing.T) {
	const apps = "/apis/apps/v1/namespaces/n/"
	for _, tc := range []struct{ kind, at string }{
		{"Deployment", apps + "deployments/x"},
		{"StatefulSet", apps + "statefulsets/x"},
		{"DaemonSet", apps + "daemonsets/x"},
		{"ReplicaSet", apps + "replicasets/x"},
		{"Job", "/apis/batch/v1/namespaces/n/jobs/x"},
		{"Pod", "/api/v1/namespaces/n/pods/x"},
		{"Database", ""},
	} {
		for is, want := range map[string]bool{"gone": true, "ending": true, "{}": false} {
			t.Run(tc.kind+" "+is, func(t *testing.T) {
				var calls []call
				if tc.at != "" {
					calls = []call{getCall(tc.at, tc.kind, is)}
				}
				got, err := newFakeAPI(t, calls...).newClient().Workloads().IsDeleted(t.Context(), Workload{tc.kind, "n", "x"})
				if err != nil || got != (want && tc.at != "") {
					t.Errorf("%t: %v", got, err)
				}
			})
		}
	}
}
