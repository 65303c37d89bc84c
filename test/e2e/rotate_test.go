//go:build e2e && long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongRotateCA exchanges the key of service accounts of a cluster that serves,
// under a client that writes and one that asks a workload: it stops at a pod that
// nobody makes anew, and goes on without it.
func TestLongRotateCA(t *testing.T) {
	b := upgradable(t, "e2e-rotate", 3, 2, "v1.37.1")
	// There is no third node for a third pod of it.
	b.kubectl(t, b.name, "patch", "deployment", "web", "--patch", `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}`)
	b.kubectl(t, b.name, "run", "lone", "--image=slipway.dev/echo:1")
	b.kubectl(t, b.name, "wait", "--for=condition=Ready", "pod/lone", "--timeout=60s")
	old := b.kubectl(t, b.name, "create", "token", "default")
	if !b.taken(t, old) {
		t.Fatal("a token that was made just now is not taken")
	}
	before := b.inside(t, b.controlPlanes[0], "cat", "/etc/kubernetes/pki/sa.pub")

	w := b.writing(t, "rotating")
	a := asking("http://" + b.addresses[b.controlPlanes[2]] + ":30081/")
	r := b.exits(t, 1, "certs", "rotate-ca", b.name, "--which", "service-account", "--yes")
	if said := r.stdout + r.stderr; !strings.Contains(said, "[tokens-held]") || !strings.Contains(said, "Pod default/lone") {
		t.Errorf("nobody says what holds an older token:\n%s", tail(said))
	}
	t.Logf("figure: as far as the pod that holds it up in %.0f s", r.took.Seconds())
	if !b.taken(t, old) {
		t.Error("what is held yet is not taken any more")
	}
	b.kubectl(t, b.name, "delete", "pod", "lone", "--wait")
	r = b.exits(t, 0, "resume", b.name, "--yes")
	asked := a.end(t)
	n, gap := w.stop(t)
	t.Logf("figure: the rest in %.0f s: %d writes acknowledged and none lost, %.1f s without one, %d failed; %d requests to a workload, none failed", r.took.Seconds(), n, gap.Seconds(), w.failures, asked)
	if gap > longestGap {
		t.Errorf("nothing was written for %s", gap)
	}

	if b.taken(t, old) {
		t.Error("a token of the old key is taken")
	}
	if !b.taken(t, b.kubectl(t, b.name, "create", "token", "default")) {
		t.Error("a token of the new key is not taken")
	}
	for _, cp := range b.controlPlanes {
		if now := b.inside(t, cp, "cat", "/etc/kubernetes/pki/sa.pub"); now == before || strings.Count(now, "BEGIN") != 1 {
			t.Errorf("%s verifies tokens with\n%s", cp, now)
		}
		if left := b.inside(t, cp, "sh", "-c", "ls -A /etc/slipway/rotate 2>/dev/null; true"); left != "" {
			t.Errorf("on %s there is left: %s", cp, left)
		}
	}
	b.back(t)
	b.checks(t, 0)
	b.unchanged(t, b.file)
	b.hosts[b.spare].(map[string]any)["roles"] = []any{"worker"}
	b.of(t, b.controlPlanes, append(b.workers[:2:2], b.spare))
	b.exits(t, 0, "add", "nodes", "-f", b.file, "--yes")
	b.smoke(t, b.name, b.user.nodes(t, b.name, b.nodesOf()...))
	b.unchanged(t, b.file)
	b.gone(t)
}

// taken says that API servers take a token.
func (b *balanced) taken(t *testing.T, token string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "review.yaml")
	review := "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nmetadata: {name: looked-at}\nspec: {token: " + strings.TrimSpace(token) + "}\n"
	if err := os.WriteFile(file, []byte(review), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.kubectl(t, b.name, "create", "-f", file, "-o", "jsonpath={.status.authenticated}")) == "true"
}
