//go:build linux

package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/node/op"
)

// proxyChangesOp executes op.ProxyChanges.
type proxyChangesOp struct{ o op.ProxyChanges }

func (*proxyChangesOp) Check(ctx context.Context, _ *session) (verdict, error) {
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
func proxyChanges(ctx context.Context, url string) (verdict, error) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	counters, err := proxyCounters(bounded, url)
	if err != nil {
		return verdict{missing: true, output: []byte(err.Error())}, ctx.Err()
	}
	out, err := json.Marshal(counters)
	return verdict{output: out}, err
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
