package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
	got, err := f.newClient().APIServer().ReadMetrics(t.Context())
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
