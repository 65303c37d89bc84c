package crdstest

import (
	"fmt"
	"testing"
)

// limitCases has values at the limits of durations and numbers, and beyond them.
func limitCases(t *testing.T) (out []Case) {
	t.Helper()
	for _, tc := range []struct{ text, field, good, bad string }{
		{"  addons: [{name: a, timeout: %s}]", "spec.addons[0].timeout", "1s", "0s"},
		{"  etcd: {backup: {every: %s}}", "spec.etcd.backup.every", "1m", "59s"},
		{"  hooks: [{name: a, phase: preInstall, script: /a, timeout: %s}]", "spec.hooks[0].timeout", "1s", "0s"},
		{"  kubernetes: {certificates: {validity: %s}}", "spec.kubernetes.certificates.validity", "1h", "0s"},
		{"  kubernetes: {certificates: {caValidity: %s}}", "spec.kubernetes.certificates.caValidity", "1h", "0s"},
		{`  maintenance: {windows: [{start: "22:30", duration: %s}]}`, "spec.maintenance.windows[0].duration", "24h", "24h1s"},
		{"  retryPolicy: {attempts: 3, backoff: %s}", "spec.retryPolicy.backoff", "10m", "10m1s"},
		{"  network: {flannel: {mtu: %s}}", "spec.network.flannel.mtu", "576", "575"},
	} {
		out = append(out,
			Case{Name: tc.good + " for " + tc.field, New: decodeCluster(t, fmt.Sprintf(tc.text, tc.good))},
			Case{Name: tc.bad + " for " + tc.field, New: decodeCluster(t, fmt.Sprintf(tc.text, tc.bad)), Field: tc.field})
	}
	return out
}
