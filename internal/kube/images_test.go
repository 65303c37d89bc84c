package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodImages_ReturnsEachImageOnce(t *testing.T) {
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
	got, err := c.PodImages(t.Context())
	want := []PodImage{{"busybox", ""}, {"nginx:1.29", "docker.io/library/nginx@sha256:1"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err := c.PodImages(t.Context()); err == nil {
		t.Error("a forbidden list gives no error")
	}
}
