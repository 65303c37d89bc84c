package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodsListImages_ReturnsEachImageOnce(t *testing.T) {
	f := newFakeAPI(
		t,
		call{request: "GET /api/v1/pods", answer: `{"kind":"PodList","apiVersion":"v1","items":[
			{"metadata":{"namespace":"a","name":"one"},"spec":{"initContainers":[{"name":"i","image":"busybox"}],` +
			`"containers":[{"name":"c","image":"nginx:1.29"}]},
			 "status":{"containerStatuses":[{"name":"c","imageID":"docker.io/library/nginx@sha256:1"}]}},
			{"metadata":{"namespace":"a","name":"two"},"spec":{"containers":[{"name":"c","image":"nginx:1.29"}]},
			 "status":{"containerStatuses":[{"name":"c","imageID":""}]}}]}`},
		call{request: "GET /api/v1/pods", status: 403},
	)
	c := f.newClient()
	got, err := c.Pods().ListImages(t.Context())
	want := []PodImage{{"busybox", ""}, {"nginx:1.29", "docker.io/library/nginx@sha256:1"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err := c.Pods().ListImages(t.Context()); err == nil {
		t.Error("a forbidden list gives no error")
	}
}

// All pods of a node that no longer exists are deleted at once. A new pod with the same
// name is kept.
func TestPodsDeleteOnNode_KeepsPodsThatWereRecreated(t *testing.T) {
	const at = "DELETE /api/v1/namespaces/ns/pods/"
	answer := func(code int, reason string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, code, reason)
	}
	ours := `"gracePeriodSeconds":0,"preconditions":{"uid":"uid-`
	f := newFakeAPI(t,
		call{
			request: listPods,
			answer:  listJSON(aPod("db", "StatefulSet", ""), aPod("web", "ReplicaSet", ""), aPod("proxy", "DaemonSet", ""), aPod("mine", "", "")),
		},
		call{request: at + "db", body: ours + "db", status: 409, answer: answer(409, "Conflict")},
		call{request: at + "web", body: ours + "web", status: 404, answer: answer(404, "NotFound")},
		call{request: at + "proxy", body: ours + "proxy", answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
		call{request: at + "mine", body: ours + "mine", status: 500, answer: answer(500, "InternalError")},
	)
	if err := f.newClient().Pods().DeleteOnNode(t.Context(), "w1"); err == nil || !strings.Contains(err.Error(), "deleting pod ns/mine") {
		t.Errorf("the error names no pod: %v", err)
	}
}
