//go:build e2e && long

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestLongRotateCluster exchanges the authority of a cluster that serves, under a
// client that writes and one that asks a workload: it stops at a pod that nobody makes
// anew, goes on without it, and a node joins afterwards.
func TestLongRotateCluster(t *testing.T) {
	b := upgradable(t, "e2e-rotateca", 3, 1, "v1.37.1")
	b.kubectl(t, b.name, "patch", "deployment", "web", "--patch", `{"spec":{"replicas":1}}`)
	b.kubectl(t, b.name, "rollout", "status", "deployment/web", "--timeout=120s")
	b.kubectl(t, b.name, "run", "lone", "--image=slipway.dev/echo:1")
	b.kubectl(t, b.name, "wait", "--for=condition=Ready", "pod/lone", "--timeout=60s")
	before := b.inside(t, b.controlPlanes[0], "cat", "/etc/kubernetes/pki/ca.crt")
	given := b.inside(t, b.controlPlanes[0], "cat", "/etc/kubernetes/admin.conf")

	w := b.writingBy(t, "rotating", b.byToken(t, given))
	r := b.exits(t, 1, "certs", "rotate-ca", b.name, "--which", "cluster", "--yes")
	if said := r.stdout + r.stderr; !strings.Contains(said, "[ca-still-needed]") || !strings.Contains(said, "Pod default/lone") {
		t.Errorf("nobody says what trusts the old authority alone:\n%s", tail(said))
	}
	t.Logf("figure: as far as the pod that holds it up in %.0f s", r.took.Seconds())
	b.kubectl(t, b.name, "get", "nodes") // with what is kept
	b.kubectl(t, b.name, "delete", "pod", "lone", "--wait")
	r = b.exits(t, 0, "resume", b.name, "--yes")
	n, gap := w.stop(t)
	t.Logf("figure: the rest in %.0f s: %d writes acknowledged and none lost, %.1f s without one, %d failed", r.took.Seconds(), n, gap.Seconds(), w.failures)
	if gap > longestGap {
		t.Errorf("nothing was written for %s", gap)
	}

	now := b.inside(t, b.controlPlanes[0], "cat", "/etc/kubernetes/pki/ca.crt")
	for _, m := range b.nodesOf() {
		if is := b.inside(t, m, "cat", "/etc/kubernetes/pki/ca.crt"); is == before || is != now || strings.Count(is, "BEGIN") != 1 {
			t.Errorf("%s trusts\n%s", m, is)
		}
		if left := b.inside(t, m, "sh", "-c", "ls -A /etc/slipway/rotate /etc/kubernetes/pki/ca-signing.crt /etc/kubernetes/bootstrap-kubelet.conf 2>/dev/null; true"); left != "" {
			t.Errorf("on %s there is left: %s", m, left)
		}
	}
	b.locked(t, given)
	b.back(t)
	b.checks(t, 0)
	b.unchanged(t, b.file)
	b.hosts[b.spare].(map[string]any)["roles"] = []any{"worker"}
	b.of(t, b.controlPlanes, append(b.workers[:1:1], b.spare))
	b.exits(t, 0, "add", "nodes", "-f", b.file, "--yes")
	b.smoke(t, b.name, b.user.nodes(t, b.name, b.nodesOf()...))
	b.unchanged(t, b.file)
	b.gone(t)
}

// byToken is a kubeconfig for a worker, by the token of a service account and by the
// authorities that the worker trusts, as they are.
func (b *balanced) byToken(t *testing.T, admin string) string {
	t.Helper()
	b.kubectl(t, b.name, "create", "serviceaccount", "writes")
	b.kubectl(t, b.name, "create", "clusterrolebinding", "writes", "--clusterrole=cluster-admin", "--serviceaccount=default:writes")
	token := strings.TrimSpace(b.kubectl(t, b.name, "create", "token", "writes", "--duration=3h"))
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

// locked wants a kubeconfig from before to be worth nothing.
func (b *balanced) locked(t *testing.T, kubeconfig string) {
	t.Helper()
	cp := b.controlPlanes[0]
	r := b.feed(t, strings.NewReader(kubeconfig), "sandbox", "exec", cp, "--", "sh", "-c",
		"cat >/root/old.conf; kubectl --kubeconfig=/root/old.conf --insecure-skip-tls-verify --certificate-authority= get nodes; code=$?; rm /root/old.conf; exit $code")
	if r.code == 0 {
		t.Errorf("a certificate of the old authority is taken:\n%s", tail(r.stdout))
	}
}
