//go:build e2e && long

package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestLongDocker is the life of a cluster whose containers Docker runs: it works as
// any other, has nothing to do when its file has not changed, and a delete leaves
// nothing of it.
func TestLongDocker(t *testing.T) {
	u := newUser(t)
	const cluster = "e2e-docker"
	machines := []string{cluster + "-1", cluster + "-2"}
	file := u.createMachines(t, cluster, len(machines))
	u.bundledFor(t, "docker", testedVersion())
	editSpec(t, file, func(spec map[string]any) { childMap(spec, "containerRuntime")["type"] = "docker" })
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.takeSnapshot(t, m)
	}

	r := u.createCluster(t, file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	addresses := u.waitForNodes(t, cluster, machines...)
	u.runBy(t, cluster, "docker", len(machines))
	t.Run("smoke", func(t *testing.T) { u.smokeTest(t, cluster, addresses) })
	t.Run("host port", func(t *testing.T) { u.hostPort(t, cluster, machines[1], addresses[machines[1]]) })
	t.Run("logs", func(t *testing.T) { u.logsOf(t, cluster) })
	t.Run("services, restarted", func(t *testing.T) { u.restartsProxies(t, cluster, addresses) })
	t.Run("apply again", func(t *testing.T) { u.appliesNothing(t, cluster, file, machines) })
	t.Run("Docker restarted", func(t *testing.T) { u.restartsDocker(t, cluster, machines, addresses) })

	u.mustExit(t, 0, "delete", "cluster", cluster, "--yes", "--allow-removal")
	for m, was := range before {
		requireSame(t, m+" before and after", "touched", was, u.takeSnapshot(t, m))
	}
}

// TestLongDockerUpgrade takes a cluster whose containers Docker runs to the next
// minor, under a client that writes: first as far as its control plane and back from
// there, then to the end. Nothing that was acknowledged is lost.
func TestLongDockerUpgrade(t *testing.T) {
	const from, to = "v1.36.4", "v1.37.1"
	t.Setenv("KUBERNETES", from)
	b := newBalanced(t, "e2e-dockerup", 1, 1)
	b.bundledFor(t, "docker", from, to)
	editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "containerRuntime")["type"] = "docker" })
	b.createCluster(t, b.file)
	b.waitForRecovery(t)

	w := b.startWriter(t, "upgrading")
	if r := b.runWithin(t, 8*time.Minute, nil, "upgrade", b.name, "--to", to, "--pause-after", "canary", "--yes"); r.code != 0 {
		t.Fatalf("an upgrade that stops behind the control plane ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	b.takesBack(t, "the control plane")
	r := b.runWithin(t, 10*time.Minute, nil, "upgrade", b.name, "--to", to, "--yes")
	if r.code != 0 {
		t.Fatalf("the upgrade ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	n, gap := w.stopWriter(t)
	t.Logf("figure: from %s to %s in %.0f s: %d writes acknowledged and none lost, %.1f s without one, which is what "+
		"the only control plane takes",
		from, to, r.took.Seconds(), n, gap.Seconds())
	b.atVersion(t, to)
	b.runBy(t, b.name, "docker", len(b.nodesOf()))
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.logsOf(t, b.name)
	b.deleteCluster(t)
}

// runBy requires that each of the nodes reports this container runtime.
func (u *user) runBy(t *testing.T, cluster, runtime string, nodes int) {
	t.Helper()
	got := strings.Fields(u.mustKubectl(t, cluster, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}"))
	if len(got) != nodes {
		t.Errorf("%d nodes say what runs their containers, want %d", len(got), nodes)
	}
	for _, says := range got {
		if !strings.HasPrefix(says, runtime+"://") {
			t.Errorf("a node's containers are run by %s, want %s", says, runtime)
		}
	}
}

// logsOf reads what a container has written, which the runtime keeps.
func (u *user) logsOf(t *testing.T, cluster string) {
	if got := u.mustKubectl(t, cluster, "logs", "-n", "kube-system", "-l", "k8s-app=kube-proxy", "--tail=-1"); strings.TrimSpace(got) == "" {
		t.Error("kube-proxy has no log")
	}
}

// restartsDocker restarts Docker on every machine: containers continue to run, and the
// cluster works.
func (u *user) restartsDocker(t *testing.T, cluster string, machines []string, addresses map[string]string) {
	before := u.recordPulse(t, cluster, nil)
	for _, m := range machines {
		u.mustExec(t, m, "systemctl", "restart", "docker.service")
	}
	u.waitForNodes(t, cluster, machines...)
	u.smokeTest(t, cluster, addresses)
	stillBeats(t, "Docker, restarted", before, u.recordPulse(t, cluster, nil))
}
