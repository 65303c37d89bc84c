//go:build linux

package pods

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestProxyChanges_ReportsCountersOrWhyTheyAreMissing checks the counters that are read
// from the metrics of kube-proxy.
func TestProxyChanges_ReportsCountersOrWhyTheyAreMissing(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       int
		want       string // the output, or part of the reason why there is none
		missing    bool
	}{
		{
			name: "counters among others", code: http.StatusOK,
			body: "# HELP kubeproxy_sync_proxy_rules_endpoint_changes_total [ALPHA] Cumulative proxy rules Endpoint changes\n" +
				"kubeproxy_sync_proxy_rules_endpoint_changes_pending 2\nkubeproxy_sync_proxy_rules_endpoint_changes_total 1.5e+06\n",
			want: `{"received":1500000,"pending":2}`,
		},
		{name: "without them", body: "up 1\n", code: http.StatusOK, missing: true, want: "has no metric"},
		{
			name: "not a number", code: http.StatusOK, missing: true, want: "an invalid value",
			body: metricReceived + " x\n" + metricPending + " 0\n",
		},
		{name: "no answer", code: http.StatusServiceUnavailable, missing: true, want: "503"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			got, err := proxyChanges(t.Context(), server.URL)
			if err != nil {
				t.Fatal(err)
			}
			if text := string(got.Output); got.Missing != c.missing || !strings.Contains(text, c.want) {
				t.Errorf("missing %t, %q; want missing %t, %q", got.Missing, text, c.missing, c.want)
			}
		})
	}
}
