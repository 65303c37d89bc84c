//go:build e2e && long

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// twoWebs are two pods that a disruption budget lets go one at a time.
const twoWebs = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "slipway.dev/echo:1", ports: [{containerPort: 8080}]}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
`

// TestLongShape adds a worker to a running cluster and takes it off again, alive
// and dead; the others are not touched.
func TestLongShape(t *testing.T) {
	u := newUser(t)
	const name = "e2e-shape"
	one, two, three := name+"-1", name+"-2", name+"-3"
	file := u.machines(t, name, 3)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:2] })
	before := u.snapshot(t, three)
	u.create(t, file)
	u.nodes(t, name, one, two)
	manifest := filepath.Join(u.home, "web.yaml")
	if err := os.WriteFile(manifest, []byte(twoWebs), 0o600); err != nil {
		t.Fatal(err)
	}
	u.kubectl(t, name, "apply", "-f", manifest)
	u.kubectl(t, name, "rollout", "status", "deployment/web", "--timeout=120s")

	t.Run("add", func(t *testing.T) {
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		pulse := u.pulse(t, name, []string{one, two})
		r := u.exits(t, 0, "add", "nodes", "-f", file, "--yes")
		t.Logf("added a worker in %s", r.took.Round(100*time.Millisecond))
		u.nodes(t, name, one, two, three)
		u.stillBeats(t, name, "adding a worker", pulse, one, two)
		u.unchanged(t, file)
	})
	if t.Failed() {
		return
	}
	t.Run("delete", func(t *testing.T) {
		// Its pods move, one after the other.
		u.kubectl(t, name, "rollout", "restart", "deployment/web")
		u.kubectl(t, name, "rollout", "status", "deployment/web", "--timeout=120s")
		if !strings.Contains(u.kubectl(t, name, "get", "pods", "-l", "app=web", "-o", "wide"), three) {
			t.Errorf("no pod is on %s, and none would move", three)
		}
		pulse := u.beats(t, []string{one, two})
		r := u.exits(t, 0, "delete", "node", three, "--yes")
		t.Logf("took a worker off in %s", r.took.Round(100*time.Millisecond))
		u.nodes(t, name, one, two)
		u.kubectl(t, name, "rollout", "status", "deployment/web", "--timeout=120s")
		same(t, three+" before and after", "touched", before, u.snapshot(t, three))
		stillBeats(t, "taking a worker off", pulse, u.beats(t, []string{one, two}))
		editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:2] })
		u.unchanged(t, file)
	})
	if t.Failed() {
		return
	}
	t.Run("dead", func(t *testing.T) { u.losesWorker(t, name, three, u.list(t)[three]) })
	u.nodes(t, name, one, two)
	u.unchanged(t, file)
}

// losesWorker adds a machine, kills it, and takes it off without it. When it
// comes back, the cluster does not know it, until it has been put back.
func (u *user) losesWorker(t *testing.T, cluster, name string, m machine) {
	host := "root@" + m.Address
	u.exits(t, 0, "add", "nodes", cluster, "--host", host+"=worker,name="+name, "--yes")
	u.ok(t, "sandbox", "kill", name)
	r := u.exits(t, 2, "delete", "node", name, "--yes")
	if !strings.Contains(r.stderr, "--forget") {
		t.Errorf("the refusal does not name --forget:\n%s", r.stderr)
	}
	u.noticed(t, cluster, name)
	r = u.exits(t, 0, "delete", "node", name, "--yes", "--forget")
	if !strings.Contains(r.stdout+r.stderr, "its files remain on the host") {
		t.Errorf("nobody says what stays on the machine:\n%s%s", r.stdout, r.stderr)
	}
	u.ok(t, "sandbox", "start", name)
	eventually(t, time.Minute, "its kubelet to be turned away", func() error {
		r := u.run(t, "sandbox", "exec", name, "--", "journalctl", "-b", "-u", "kubelet", "--no-pager")
		if !strings.Contains(r.stdout, "was force-removed from the cluster") {
			return fmt.Errorf("not yet: %s", tail(r.stdout))
		}
		return nil
	})
	if got := u.kubectl(t, cluster, "get", "nodes", "-o", "name"); strings.Contains(got, name) {
		t.Errorf("the machine is a node again:\n%s", got)
	}
	r = u.exits(t, 2, "add", "nodes", cluster, "--host", host+"=worker,name="+name, "--yes")
	if !strings.Contains(r.stderr, "host-returned") {
		t.Errorf("it is refused for another reason:\n%s", r.stderr)
	}
	u.exits(t, 0, "delete", "node", "--cluster", cluster, "--host", host, "--yes")
}

// stillBeats asserts that nothing of a pulse has changed; there may be more.
func (u *user) stillBeats(t *testing.T, cluster, what string, before map[string]string, machines ...string) {
	t.Helper()
	after := u.pulse(t, cluster, machines)
	maps.DeleteFunc(after, func(key, _ string) bool { _, was := before[key]; return !was && strings.HasPrefix(key, "container ") })
	stillBeats(t, what, before, after)
}
