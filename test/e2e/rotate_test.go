//go:build e2e && long

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLongRotateCA rotates the service account key of a running cluster, under a client
// that writes and a client that sends requests to a workload. The rotation stops at a pod
// that no controller restarts, and continues without it.
func TestLongRotateCA(t *testing.T) {
	b := newRotatable(t, "e2e-rotate")
	old := b.mustKubectl(t, b.name, "create", "token", "default")
	if !b.isTokenAccepted(t, old) {
		t.Fatal("a token that was made just now is not taken")
	}
	before := b.mustExec(t, b.controlPlanes[0], "cat", "/etc/kubernetes/pki/sa.pub")

	b.rotateAll(t, b.startWriter(t, "rotating"), "service-account", "tokens-held", func() {
		if !b.isTokenAccepted(t, old) {
			t.Error("what is held yet is not taken any more")
		}
	})

	if b.isTokenAccepted(t, old) {
		t.Error("a token of the old key is taken")
	}
	if !b.isTokenAccepted(t, b.mustKubectl(t, b.name, "create", "token", "default")) {
		t.Error("a token of the new key is not taken")
	}
	for _, cp := range b.controlPlanes {
		if now := b.mustExec(t, cp, "cat", "/etc/kubernetes/pki/sa.pub"); now == before || strings.Count(now, "BEGIN") != 1 {
			t.Errorf("%s verifies tokens with\n%s", cp, now)
		}
		if left := b.mustExec(t, cp, "sh", "-c", "ls -A /etc/slipway/rotate 2>/dev/null; true"); left != "" {
			t.Errorf("on %s there is left: %s", cp, left)
		}
	}
	b.joinNode(t)
}

// newRotatable creates a cluster with a workload that receives requests, and a pod without
// a controller.
func newRotatable(t *testing.T, name string) *balanced {
	t.Helper()
	b := newUpgradable(t, name, 3, 2, "v1.37.1")
	// There is no third node for a third pod of it.
	b.mustKubectl(t, b.name, "patch", "deployment", "web", "--patch",
		`{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}`)
	b.mustKubectl(t, b.name, "run", "lone", "--image=slipway.dev/echo:1")
	b.mustKubectl(t, b.name, "wait", "--for=condition=Ready", "pod/lone", "--timeout=60s")
	return b
}

// rotateAll rotates a CA or key with certs rotate-ca, under a client that writes and a
// client that sends requests to the workload. The rotation stops at the pod, for this
// reason, and continues without it.
func (b *balanced) rotateAll(t *testing.T, w *writer, which, reason string, held func()) {
	t.Helper()
	a := startAsker("http://" + b.addresses[b.controlPlanes[2]] + ":30081/")
	r := b.mustExit(t, 1, "certs", "rotate-ca", b.name, "--which", which, "--yes")
	if said := r.stdout + r.stderr; !strings.Contains(said, "["+reason+"]") || !strings.Contains(said, "Pod default/lone") {
		t.Errorf("nobody says what holds it up:\n%s", textTail(said))
	}
	t.Logf("figure: as far as the pod that holds it up in %.0f s", r.took.Seconds())
	held()
	b.mustKubectl(t, b.name, "delete", "pod", "lone", "--wait")
	r = b.mustExit(t, 0, "resume", b.name, "--yes")
	asked := a.endAsker(t)
	n, gap := w.stopWriter(t)
	t.Logf("figure: the rest in %.0f s: %d writes acknowledged and none lost, %.1f s without one, %d failed; %d "+
		"requests to a workload, none failed",
		r.took.Seconds(), n, gap.Seconds(), w.failures, asked)
	if gap > longestGap {
		t.Errorf("nothing was written for %s", gap)
	}
}

// joinNode requires a healthy cluster after a rotation, and adds a node.
func (b *balanced) joinNode(t *testing.T) {
	t.Helper()
	b.waitForRecovery(t)
	b.checkCertificates(t, 0)
	b.requireEmptyPlan(t, b.file)
	b.hosts[b.spare].(map[string]any)["roles"] = []any{"worker"}
	b.setHosts(t, b.controlPlanes, append(b.workers[:2:2], b.spare))
	b.mustExit(t, 0, "add", "nodes", "-f", b.file, "--yes")
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.requireEmptyPlan(t, b.file)
	b.deleteCluster(t)
}

// isTokenAccepted reports whether API servers accept a token.
func (b *balanced) isTokenAccepted(t *testing.T, token string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "review.yaml")
	review := "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nmetadata: {name: looked-at}\nspec: {token: " +
		strings.TrimSpace(token) + "}\n"
	if err := os.WriteFile(file, []byte(review), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.mustKubectl(t, b.name, "create", "-f", file, "-o", "jsonpath={.status.authenticated}")) == "true"
}

// TestLongRotateAuthorities rotates the CAs of the front proxy and of etcd in a running
// cluster, under a client that writes, a client that sends requests to a workload, and an
// aggregated API. The first rotation restarts no API server. After each rotation, every
// API server is trusted, also on a control plane that joins then.
func TestLongRotateAuthorities(t *testing.T) {
	t.Setenv("KUBERNETES", "v1.37.1")
	b := newBalanced(t, "e2e-authorities", 3, 1)
	b.setEndpoint(t, "haproxy")
	editSpec(t, b.file, func(spec map[string]any) { spec["addons"] = []any{map[string]any{"name": "metrics-server"}} })
	b.prepareBundles(t, "v1.37.1")
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	b.startWorkload(t, strings.Replace(webManifest, "replicas: 2", "replicas: 1", 1)) // there is one worker
	web := "http://" + b.addresses[b.controlPlanes[2]] + ":30081/"
	for _, cp := range b.controlPlanes {
		b.requireAggregatedAPI(t, cp)
	}
	runs := func() string {
		return b.mustKubectl(t, b.name, "get", "pods", "-n", "kube-system", "-l", "component=kube-apiserver", "-o",
			"jsonpath={.items[*].status.containerStatuses[0].containerID}")
	}
	const ca = "/etc/kubernetes/pki/front-proxy-ca.crt"
	before, running := b.mustExec(t, b.controlPlanes[0], "cat", ca), runs()

	w, a := b.startWriter(t, "authorities"), startAsker(web)
	r := b.mustExit(t, 0, "certs", "rotate-ca", b.name, "--which", "front-proxy", "--yes")
	asked := a.endAsker(t)
	n, gap := w.stopWriter(t)
	t.Logf("figure: the authority of the front proxy in %.0f s: %d writes acknowledged and none lost, %.1f s without "+
		"one, %d failed; %d requests to a workload, none failed",
		r.took.Seconds(), n, gap.Seconds(), w.failures, asked)
	if now := runs(); now != running {
		t.Errorf("API servers were restarted: %s, before %s", now, running)
	}
	b.trustsOne(t, ca, before)
	b.requireFrontProxyCA(t, ca)
	b.checkCertificates(t, 0)

	const etcdCA = "/etc/kubernetes/pki/etcd/ca.crt"
	old := b.mustExec(t, b.controlPlanes[0], "cat", etcdCA)
	w, a = b.startWriter(t, "etcd"), startAsker(web)
	r = b.mustExit(t, 0, "certs", "rotate-ca", b.name, "--which", "etcd", "--yes")
	asked = a.endAsker(t)
	n, gap = w.stopWriter(t)
	t.Logf("figure: the authority of etcd in %.0f s: %d writes acknowledged and none lost, %.1f s without one, %d "+
		"failed; %d requests to a workload, none failed",
		r.took.Seconds(), n, gap.Seconds(), w.failures, asked)
	if gap > longestGap {
		t.Errorf("nothing was written for %s", gap)
	}
	b.trustsOne(t, etcdCA, old)
	b.waitForRecovery(t)
	b.checkCertificates(t, 0)
	b.requireEmptyPlan(t, b.file)

	b.hosts[b.spare].(map[string]any)["roles"] = []any{"control-plane"}
	b.setHosts(t, append(b.controlPlanes[:3:3], b.spare), b.workers)
	b.mustExit(t, 0, "add", "nodes", "-f", b.file, "--yes")
	b.trustsOne(t, ca, before)
	b.trustsOne(t, etcdCA, old)
	b.requireFrontProxyCA(t, ca)
	b.requireEmptyPlan(t, b.file)
	b.deleteCluster(t)
}

// trustsOne requires that all control planes trust one CA, that it is not the previous
// one, and that nothing of its rotation is left.
func (b *balanced) trustsOne(t *testing.T, file, before string) {
	t.Helper()
	want := b.mustExec(t, b.controlPlanes[0], "cat", file)
	for _, cp := range b.controlPlanes {
		if now := b.mustExec(t, cp, "cat", file); now == before || now != want || strings.Count(now, "BEGIN") != 1 {
			t.Errorf("%s trusts\n%s", cp, now)
		}
		if left := b.mustExec(t, cp, "sh", "-c", "ls -A /etc/slipway/rotate 2>/dev/null; true"); left != "" {
			t.Errorf("on %s there is left: %s", cp, left)
		}
	}
}

// requireFrontProxyCA requires that only the front proxy CA is published, and that clients
// of this CA trust each API server.
func (b *balanced) requireFrontProxyCA(t *testing.T, file string) {
	t.Helper()
	want := b.mustExec(t, b.controlPlanes[0], "cat", file)
	published := b.mustKubectl(t, b.name, "get", "configmap", "extension-apiserver-authentication", "-n", "kube-system",
		"-o", `jsonpath={.data.requestheader-client-ca-file}`)
	if strings.TrimSpace(published) != strings.TrimSpace(want) {
		t.Errorf("what is published is\n%s\nand not\n%s", published, want)
	}
	for _, cp := range b.controlPlanes {
		b.requireAggregatedAPI(t, cp)
	}
}

// requireAggregatedAPI wants an API server to get an answer from an API that it hands requests
// to.
func (b *balanced) requireAggregatedAPI(t *testing.T, controlPlane string) {
	t.Helper()
	eventually(t, 4*time.Minute, "an answer of metrics-server to "+controlPlane, func() error {
		r := b.runSlipway(t, "sandbox", "exec", controlPlane, "--", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf",
			"--server=https://127.0.0.1:6443", "get", "--raw=/apis/metrics.k8s.io/v1beta1/nodes")
		if r.code != 0 {
			return errors.New(textTail(r.stderr))
		}
		return nil
	})
}
