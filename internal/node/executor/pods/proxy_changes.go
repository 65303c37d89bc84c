//go:build linux

package pods

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// ProxyChangesOp executes op.ProxyChanges.
type ProxyChangesOp struct{ Op op.ProxyChanges }

func (*ProxyChangesOp) Check(ctx context.Context, _ *host.Host) (host.CheckResult, error) {
	return proxyChanges(ctx, proxyMetrics)
}

const (
	// proxyMetrics is the address of kube-proxy's metrics, unless its configuration has
	// another one.
	proxyMetrics = "http://127.0.0.1:10249/metrics"
	// maxMetrics limits how much of them is read, in bytes.
	maxMetrics = 8 << 20

	metricReceived = "kubeproxy_sync_proxy_rules_endpoint_changes_total"
	metricPending  = "kubeproxy_sync_proxy_rules_endpoint_changes_pending"
)

// proxyChanges reads the counters of the kube-proxy that serves metrics at url.
func proxyChanges(ctx context.Context, url string) (host.CheckResult, error) {
	bounded, cancel := context.WithTimeout(ctx, health.ProbeTimeout)
	defer cancel()
	counters, err := proxyCounters(bounded, url)
	if err != nil {
		return host.CheckResult{Missing: true, Output: []byte(err.Error())}, ctx.Err()
	}
	out, err := json.Marshal(counters)
	return host.CheckResult{Output: out}, err
}

func proxyCounters(ctx context.Context, url string) (op.ProxyCounters, error) {
	var c op.ProxyCounters
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return c, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return c, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return c, fmt.Errorf("%s returned %s", url, res.Status)
	}
	want := map[string]*float64{metricReceived: &c.Received, metricPending: &c.Pending}
	for lines := bufio.NewScanner(io.LimitReader(res.Body, maxMetrics)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		into := want[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return c, fmt.Errorf("%s has an invalid value for %s: %w", url, name, err)
		}
		delete(want, name)
	}
	for name := range want {
		return c, fmt.Errorf("%s has no metric %s", url, name)
	}
	return c, nil
}
