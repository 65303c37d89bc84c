package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDaemonSets_ReturnsErrorIfListIsForbidden(t *testing.T) {
	f := newFakeAPI(
		t,
		call{request: "GET /apis/apps/v1/daemonsets", answer: `{"kind":"DaemonSetList","apiVersion":"apps/v1","items":[
			{"metadata":{"namespace":"kube-system","name":"kube-proxy"}},{"metadata":{"namespace":"kube-flannel","name":"kube-flannel"}}]}`},
		call{request: "GET /apis/apps/v1/daemonsets", status: 403},
	)
	c := f.newClient()
	got, err := c.DaemonSets(t.Context())
	if d := cmp.Diff([]string{"kube-flannel/kube-flannel", "kube-system/kube-proxy"}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err := c.DaemonSets(t.Context()); err == nil {
		t.Error("a forbidden list gives no error")
	}
}
