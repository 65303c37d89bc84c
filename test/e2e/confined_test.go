//go:build e2e && long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// updaterHeld tries what the holder of the updater's token might.
func (b *balanced) updaterHeld(t *testing.T) {
	slice := func(name, service string) string {
		return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [], metadata: {name: " + name +
			", namespace: kube-system, labels: {kubernetes.io/service-name: " + service + "}}}\n"
	}
	lease := "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-scheduler-2, namespace: kube-system}}\n"
	file := filepath.Join(b.home, "stolen.yaml")
	for _, tc := range []struct{ verb, reason, text string }{
		{"create", "a slice of the cluster's DNS", slice("stolen", "kube-dns")},
		{"create", "a slice by another name", slice("stolen", "apiserver")},
		{"create", "a Lease of others", lease},
		{"replace", "its own slice becomes one of the cluster's DNS", slice("apiserver-ipv4", "kube-dns")},
	} {
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := b.runSlipway(t, "kubectl", b.name, "--", "--as=system:serviceaccount:kube-system:apiserver-updater", tc.verb, "-f", file)
		if r.code == 0 || !strings.Contains(r.stderr, "the apiserver-updater") {
			t.Errorf("%s: %d, %s", tc.reason, r.code, textTail(r.stdout+r.stderr))
		}
	}
	b.mustKubectl(t, b.name, "-n", "kube-system", "delete", "endpointslice", "apiserver-ipv4")
	b.mustKubectl(t, b.name, "-n", "kube-system", "wait", "--for=create", "--timeout=60s", "endpointslice/apiserver-ipv4")
}
