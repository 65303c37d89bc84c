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

// twoWebs has two pods, of which a disruption budget allows one eviction at a time.
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

// TestLongShape adds a worker to a running cluster and removes it, running and dead; the
// others are not changed.
func TestLongShape(t *testing.T) {
	u := newUser(t)
	const name = "e2e-shape"
	one, two, three := name+"-1", name+"-2", name+"-3"
	file := u.createMachines(t, name, 3)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:2] })
	before := u.takeSnapshot(t, three)
	u.createCluster(t, file)
	u.waitForNodes(t, name, one, two)
	manifest := filepath.Join(u.home, "web.yaml")
	if err := os.WriteFile(manifest, []byte(twoWebs), 0o600); err != nil {
		t.Fatal(err)
	}
	u.mustKubectl(t, name, "apply", "-f", manifest)
	u.mustKubectl(t, name, "rollout", "status", "deployment/web", "--timeout=120s")

	t.Run("add", func(t *testing.T) {
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		pulse := u.recordPulse(t, name, []string{one, two})
		r := u.mustExit(t, 0, "add", "nodes", "-f", file, "--yes")
		t.Logf("added a worker in %s", r.took.Round(100*time.Millisecond))
		u.waitForNodes(t, name, one, two, three)
		u.stillBeats(t, name, "adding a worker", pulse, one, two)
		if !strings.Contains(u.mustExec(t, one, "cat", approvalList), three) {
			t.Errorf("%s would not approve certificate requests of %s", one, three)
		}
		u.requireEmptyPlan(t, file)
	})
	if t.Failed() {
		return
	}
	t.Run("delete", func(t *testing.T) {
		// Its pods move, one after the other.
		u.mustKubectl(t, name, "rollout", "restart", "deployment/web")
		u.mustKubectl(t, name, "rollout", "status", "deployment/web", "--timeout=120s")
		if !strings.Contains(u.mustKubectl(t, name, "get", "pods", "-l", "app=web", "-o", "wide"), three) {
			t.Errorf("no pod is on %s, and none would move", three)
		}
		pulse := u.recordMachinePulse(t, []string{one, two})
		r := u.mustExit(t, 0, "delete", "node", three, "--yes")
		t.Logf("took a worker off in %s", r.took.Round(100*time.Millisecond))
		u.waitForNodes(t, name, one, two)
		u.mustKubectl(t, name, "rollout", "status", "deployment/web", "--timeout=120s")
		requireSame(t, three+" before and after", "touched", before, u.takeSnapshot(t, three))
		stillBeats(t, "taking a worker off", withoutApproval(pulse, one),
			withoutApproval(u.recordMachinePulse(t, []string{one, two}), one))
		if strings.Contains(u.mustExec(t, one, "cat", approvalList), three) {
			t.Errorf("%s would still approve certificate requests of %s", one, three)
		}
		editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:2] })
		u.requireEmptyPlan(t, file)
	})
	if t.Failed() {
		return
	}
	t.Run("dead", func(t *testing.T) { u.losesWorker(t, name, three, u.listMachines(t)[three]) })
	u.waitForNodes(t, name, one, two)
	u.requireEmptyPlan(t, file)
}

// losesWorker adds a machine, kills it, and removes it while it is off. When it returns,
// the cluster does not accept it until it has been reset.
func (u *user) losesWorker(t *testing.T, cluster, name string, m machine) {
	host := "root@" + m.Address
	u.mustExit(t, 0, "add", "nodes", cluster, "--host", host+"=worker,name="+name, "--yes")
	u.mustRun(t, "sandbox", "kill", name)
	r := u.mustExit(t, 2, "delete", "node", name, "--yes")
	if !strings.Contains(r.stderr, "--forget") {
		t.Errorf("the refusal does not name --forget:\n%s", r.stderr)
	}
	u.waitForNotReady(t, cluster, name)
	r = u.mustExit(t, 0, "delete", "node", name, "--yes", "--forget")
	if !strings.Contains(r.stdout+r.stderr, "its files remain on the host") {
		t.Errorf("nobody says what stays on the machine:\n%s%s", r.stdout, r.stderr)
	}
	u.mustRun(t, "sandbox", "start", name)
	eventually(t, time.Minute, "its kubelet to be turned away", func() error {
		r := u.runSlipway(t, "sandbox", "exec", name, "--", "journalctl", "-b", "-u", "kubelet", "--no-pager")
		if !strings.Contains(r.stdout, "was force-removed from the cluster") {
			return fmt.Errorf("not yet: %s", textTail(r.stdout))
		}
		return nil
	})
	if got := u.mustKubectl(t, cluster, "get", "nodes", "-o", "name"); strings.Contains(got, name) {
		t.Errorf("the machine is a node again:\n%s", got)
	}
	r = u.mustExit(t, 2, "add", "nodes", cluster, "--host", host+"=worker,name="+name, "--yes")
	if !strings.Contains(r.stderr, "host-returned") {
		t.Errorf("it is refused for another reason:\n%s", r.stderr)
	}
	u.mustExit(t, 0, "delete", "node", "--cluster", cluster, "--host", host, "--yes")
}

// approvalList is the file of a control plane with the nodes whose kubelets may get
// serving certificates.
const approvalList = "/etc/slipway/approve.json"

// withoutApproval returns a pulse without the files that change on a control plane when a
// node comes or goes: its list of nodes for approvals, the apply lock and the ledger.
func withoutApproval(pulse map[string]string, controlPlane string) map[string]string {
	out := maps.Clone(pulse)
	for _, file := range []string{approvalList, "/var/lib/slipway/apply.lock", "/var/lib/slipway/ledger/log"} {
		delete(out, controlPlane+" file "+file)
	}
	return out
}

// stillBeats asserts that nothing of a pulse has changed, except what adding a node changes
// on its control plane, the first machine. There may be more containers.
func (u *user) stillBeats(t *testing.T, cluster, what string, before map[string]string, machines ...string) {
	t.Helper()
	before = withoutApproval(before, machines[0])
	after := withoutApproval(u.recordPulse(t, cluster, machines), machines[0])
	maps.DeleteFunc(after, func(key, _ string) bool { _, was := before[key]; return !was && strings.HasPrefix(key, "container ") })
	stillBeats(t, what, before, after)
}
