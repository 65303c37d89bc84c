//go:build e2e && long

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLongOperatorSelf moves a cluster of three control planes to an operator that runs in it. The operator upgrades its own
// cluster, while a client writes: the upgrade drains the nodes of the operator's Pods, one of which runs the upgrade.
// Afterwards, the command line manages the cluster again.
func TestLongOperatorSelf(t *testing.T) {
	const older, newer = "v1.36.4", "v1.37.1"
	t.Setenv("KUBERNETES", older)
	b := newBalanced(t, "e2e-self", 3, 2)
	b.setEndpoint(t, "haproxy")
	b.prepareBundles(t, older, newer)
	s := &operatorSite{user: b.user, name: b.name, nodes: b.nodesOf()}
	s.serveBundles(t, b.addresses[b.controlPlanes[0]], older, newer)
	editSpec(t, b.file, func(spec map[string]any) {
		spec["registry"] = s.registryLogin(filepath.Join(s.home, "word"), filepath.Join(s.home, "ca.crt"))
	})
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	s.o.name = s.name
	s.connect(t, s.mustRun(t, "kubeconfig", s.name))
	defer s.showFailure(t)
	requireRefusal(t, s.moveCluster(t, older), "api-without-clusters")
	s.importImage(t, s.user, daemonPath(t))
	s.install(t, "in-process")
	requireRefusal(t, s.moveCluster(t, older), "api-namespace-missing")
	s.o.must(t, "create", "namespace", teamNamespace)
	s.o.must(t, "config", "set-context", "--current", "--namespace="+teamNamespace)

	start := time.Now()
	if r := s.moveCluster(t, older); r.code != 0 {
		t.Fatalf("the move ends with %d: %s", r.code, r.stderr)
	}
	s.o.waitForApplied(t, "move")
	t.Logf("figure: moved in %.0f s", time.Since(start).Seconds())
	requireRefusal(t, s.moveCluster(t, older), "move-cluster-exists")
	editSpec(t, b.file, func(spec map[string]any) {
		childMap(childMap(childMap(spec, "kubernetes"), "kubelet"), "config")["maxPods"] = 77
	})
	requireRefusal(t, s.runSlipway(t, "apply", "-f", b.file, "--yes"), "other-manager")
	s.o.must(t, "patch", "cluster", s.name, "--type=merge", "-p", `{"spec":{"kubernetes":{"kubelet":{"config":{"maxPods":77}}}}}`)
	s.o.waitForApplied(t, "a setting")

	w := b.startWriter(t, "upgrading")
	start = time.Now()
	s.o.must(t, "patch", "cluster", s.name, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"bundle":%q,"kubernetes":{"version":%q}}}`, s.bundle(newer), newer))
	processes := b.watchOwnUpgrade(t)
	n, gap := w.stopWriter(t)
	t.Logf("figure: its own cluster was upgraded in %.0f s, by %d processes: %d writes acknowledged and none lost, %.1f s without one",
		time.Since(start).Seconds(), processes, n, gap.Seconds())
	if processes < 2 {
		t.Errorf("the upgrade was run by %d process: its node was not drained", processes)
	}
	if gap > longestGap {
		t.Errorf("nothing was written for %s", gap)
	}
	t.Setenv("KUBERNETES", newer)
	b.waitForRecovery(t)
	s.waitUntilReady(t)
	for _, m := range b.nodesOf() {
		if is := b.mustKubectl(t, b.name, "get", "node", m, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"); is != newer {
			t.Errorf("node %s has version %s, want %s", m, is, newer)
		}
	}

	s.o.must(t, "patch", "cluster", s.name, "--type=merge", "-p", `{"spec":{"paused":true}}`)
	s.mustRun(t, "upgrade", s.name, "--to", newer, "--take-over", "--yes")
	editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "kubernetes")["version"] = newer })
	s.mustRun(t, "apply", "-f", b.file, "--take-over", "--yes")
	b.requireEmptyPlan(t, b.file)
	b.deleteCluster(t)
}

// moveCluster moves the cluster to its operator.
func (s *operatorSite) moveCluster(t *testing.T, version string) result {
	t.Helper()
	return s.runSlipway(t, "move", s.name, "--kubeconfig", s.kubeconfig(), "--namespace", teamNamespace,
		"--bundle", s.bundle(version), "--yes")
}

// watchOwnUpgrade waits until the upgrade has succeeded, and returns by how many processes it was run. The API at one address
// is down for a part of the time, so it uses the kubectl of slipway, which finds another one.
func (b *balanced) watchOwnUpgrade(t *testing.T) int {
	t.Helper()
	var processes []string
	eventually(t, 25*time.Minute, "the cluster to be upgraded by its operator", func() error {
		const path = `{range .items[?(@.spec.kind=="upgrade")]}{.status.state} {.status.executor.id}|{.status.message}{"\n"}{end}`
		r := b.runSlipway(t, "kubectl", b.name, "--", "--request-timeout=10s", "--namespace", teamNamespace, "get", "operations", "-o",
			"jsonpath="+path)
		if r.code != 0 {
			return errors.New(textTail(r.stderr))
		}
		is, message, _ := strings.Cut(strings.TrimSpace(r.stdout), "|")
		fields := strings.Fields(is)
		if len(fields) > 1 && !slices.Contains(processes, fields[1]) {
			processes = append(processes, fields[1])
		}
		switch {
		case len(fields) > 0 && fields[0] == "Succeeded":
			return nil
		case len(fields) > 0 && fields[0] == "Failed":
			t.Fatalf("the upgrade has failed: %s", message)
		}
		return fmt.Errorf("the upgrade is %q", strings.TrimSpace(r.stdout))
	})
	return len(processes)
}
