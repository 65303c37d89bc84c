//go:build e2e && long

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestLongRotateCluster rotates the CA of a running cluster, under a client that writes
// and a client that sends requests to a workload. The rotation stops at a pod without a
// controller, continues without it, and a node joins afterwards.
func TestLongRotateCluster(t *testing.T) {
	b := newRotatable(t, "e2e-rotateca")
	before := b.mustExec(t, b.controlPlanes[0], "cat", "/etc/kubernetes/pki/ca.crt")
	given := b.mustExec(t, b.controlPlanes[0], "cat", "/etc/kubernetes/admin.conf")

	b.rotateAll(t, b.writingBy(t, "rotating", b.byToken(t, given)), "cluster", "ca-still-needed", func() {
		b.mustKubectl(t, b.name, "get", "nodes") // with the saved kubeconfig
	})

	now := b.mustExec(t, b.controlPlanes[0], "cat", "/etc/kubernetes/pki/ca.crt")
	for _, m := range b.nodesOf() {
		if is := b.mustExec(t, m, "cat", "/etc/kubernetes/pki/ca.crt"); is == before || is != now || strings.Count(is, "BEGIN") != 1 {
			t.Errorf("%s trusts\n%s", m, is)
		}
		if left := b.mustExec(t, m, "sh", "-c",
			"find /etc/slipway/rotate /etc/kubernetes/pki/ca-signing.crt /etc/kubernetes/bootstrap-kubelet.conf -type f 2>/dev/null; true"); left !=
			"" {
			t.Errorf("on %s there is left: %s", m, left)
		}
	}
	b.requireLockedOut(t, given)
	b.joinNode(t)
}

// byToken returns a kubeconfig for a worker, with the token of a service account and with
// the CAs that the worker trusts at present.
func (b *balanced) byToken(t *testing.T, admin string) string {
	t.Helper()
	b.mustKubectl(t, b.name, "create", "serviceaccount", "writes")
	b.mustKubectl(t, b.name, "create", "clusterrolebinding", "writes", "--clusterrole=cluster-admin", "--serviceaccount=default:writes")
	token := strings.TrimSpace(b.mustKubectl(t, b.name, "create", "token", "writes", "--duration=3h"))
	_, server, _ := strings.Cut(admin, "server: ")
	server, _, _ = strings.Cut(server, "\n")
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority: /etc/kubernetes/pki/ca.crt}}]
users: [{name: u, user: {token: %s}}]
`, strings.TrimSpace(server), token)
}

// requireLockedOut wants a kubeconfig from before to be worth nothing.
func (b *balanced) requireLockedOut(t *testing.T, kubeconfig string) {
	t.Helper()
	cp := b.controlPlanes[0]
	r := b.runWithInput(t, strings.NewReader(kubeconfig), "sandbox", "exec", cp, "--", "sh", "-c",
		"cat >/root/old.conf; kubectl --kubeconfig=/root/old.conf --insecure-skip-tls-verify --certificate-authority= "+
			"get --raw=/api/v1/nodes; code=$?; rm /root/old.conf; exit $code")
	if r.code == 0 {
		t.Errorf("a certificate of the old authority is taken:\n%s", textTail(r.stdout))
	}
}
