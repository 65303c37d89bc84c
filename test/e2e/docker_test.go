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
	file := u.machines(t, cluster, len(machines))
	if r := u.within(t, 40*time.Minute, nil, "bundle", "build", "--kubernetes", kubernetes(), "--source", "modules", "--runtime", "docker"); r.code != 0 {
		t.Fatalf("building the bundle ends with %d:\n%s", r.code, tail(r.stderr))
	}
	editSpec(t, file, func(spec map[string]any) { child(spec, "containerRuntime")["type"] = "docker" })
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.snapshot(t, m)
	}

	r := u.create(t, file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	addresses := u.nodes(t, cluster, machines...)
	u.runBy(t, cluster, "docker", len(machines))
	t.Run("smoke", func(t *testing.T) { u.smoke(t, cluster, addresses) })
	t.Run("host port", func(t *testing.T) { u.hostPort(t, cluster, machines[1], addresses[machines[1]]) })
	t.Run("logs", func(t *testing.T) { u.logsOf(t, cluster) })
	t.Run("services, restarted", func(t *testing.T) { u.restartsProxies(t, cluster, addresses) })
	t.Run("apply again", func(t *testing.T) { u.appliesNothing(t, cluster, file, machines) })
	t.Run("Docker restarted", func(t *testing.T) { u.restartsDocker(t, cluster, machines, addresses) })

	u.exits(t, 0, "delete", "cluster", cluster, "--yes", "--allow-removal")
	for m, was := range before {
		same(t, m+" before and after", "touched", was, u.snapshot(t, m))
	}
}

// runBy wants each of the nodes to say that a runtime runs its containers.
func (u *user) runBy(t *testing.T, cluster, runtime string, nodes int) {
	t.Helper()
	got := strings.Fields(u.kubectl(t, cluster, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}"))
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
	if got := u.kubectl(t, cluster, "logs", "-n", "kube-system", "-l", "k8s-app=kube-proxy", "--tail=-1"); strings.TrimSpace(got) == "" {
		t.Error("kube-proxy has no log")
	}
}

// restartsDocker starts Docker anew on every machine: containers run on, and the
// cluster serves.
func (u *user) restartsDocker(t *testing.T, cluster string, machines []string, addresses map[string]string) {
	before := u.pulse(t, cluster, nil)
	for _, m := range machines {
		u.inside(t, m, "systemctl", "restart", "docker.service")
	}
	u.nodes(t, cluster, machines...)
	u.smoke(t, cluster, addresses)
	stillBeats(t, "Docker, restarted", before, u.pulse(t, cluster, nil))
}
