//go:build e2e && long

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// heldPod is a pod on one node. Its disruption budget does not allow an eviction while the
// second pod is not running, and no node has room for that one: a drain of the node waits.
const heldPod = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: held}
spec:
  replicas: 2
  selector: {matchLabels: {app: held}}
  template:
    metadata: {labels: {app: held}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: %s}
      containers: [{name: held, image: "slipway.dev/echo:1"}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: held}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: held}
spec: {minAvailable: 1, selector: {matchLabels: {app: held}}}
`

// TestLongTwoManagers lets two users with separate state manage one cluster. While one of
// them removes a worker, the other is rejected and changes nothing. When the first manager
// is killed in the middle, the other is rejected until the lock is stale, and then removes
// the worker.
func TestLongTwoManagers(t *testing.T) {
	u := newUser(t)
	const name = "e2e-two"
	one, two, three := name+"-1", name+"-2", name+"-3"
	file := u.createMachines(t, name, 3)
	before := u.takeSnapshot(t, three)
	u.createCluster(t, file)
	u.waitForNodes(t, name, one, two, three)
	u.holdPod(t, name, three)
	other := u.copyUser(t)

	o := u.startOperation(t, "delete", "node", three, "--yes")
	drains := &moment{name: "the drain of " + three, at: func(h happening) bool { return h.beginsTask("leave.drain") && h.Host == three }}
	if o.readUntil(newMoments(drains)) == nil {
		t.Fatalf("never came: %s; delete ends with %d:\n%s", drains.name, o.waitForExit(), textTail(o.stderr.String()))
	}
	go o.readRest() // it continues meanwhile
	eventually(t, time.Minute, three+" is cordoned", func() error {
		if got := other.mustKubectl(t, name, "get", "node", three, "-o", "jsonpath={.spec.unschedulable}"); got != "true" {
			return fmt.Errorf("unschedulable is %q", got)
		}
		return nil
	})
	operation := u.latestOperation(t, name).Metadata.Name
	process := fmt.Sprintf("process %d on ", o.cmd.Process.Pid)
	names := []string{"[locked]", "operation " + operation, process, " since 20", " s ago"}
	t.Run("refused", func(t *testing.T) {
		u.keepsOut(t, other, file, []string{one, two}, names, process)
		// A rejected operation leaves nothing to resume.
		refusedBy(t, other.mustExit(t, 2, "resume", name, "--yes"), "[nothing-unfinished]")
	})

	killed := time.Now()
	if !o.killManager() {
		t.Fatalf("the first manager came to its end before it was killed:\n%s", textTail(o.stderr.String()))
	}
	other.takesOffAfter(t, name, three, killed, names)
	other.waitForNodes(t, name, one, two)
	requireSame(t, three+" before and after", "touched", before, u.takeSnapshot(t, three))
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:2] })
	other.requireEmptyPlan(t, file)
	t.Run("the first one is back", func(t *testing.T) {
		u.mustExit(t, 0, "resume", name, "--yes")
		u.requireEmptyPlan(t, file)
		other.requireEmptyPlan(t, file)
		other.waitForNodes(t, name, one, two)
		requireSame(t, three+" before and after both", "touched", before, u.takeSnapshot(t, three))
	})
}

// takesOffAfter removes a node from a cluster whose manager was killed during the same
// operation: it is rejected until the lock is stale.
func (u *user) takesOffAfter(t *testing.T, cluster, node string, killed time.Time, names []string) {
	t.Helper()
	refusedBy(t, u.mustExit(t, 5, "delete", "node", node, "--yes"), names...)
	u.mustKubectl(t, cluster, "delete", "deployment/held", "poddisruptionbudget/held")
	journals, refusals := u.listJournals(t), 1
	eventually(t, 2*time.Minute, "the lock of a manager that is gone is stale", func() error {
		r := u.runSlipway(t, "delete", "node", node, "--yes")
		switch r.code {
		case 0:
			return nil
		case 5:
			refusals++
			return errors.New(textTail(r.stderr))
		}
		t.Fatalf("the other manager's delete ends with %d:\n%s", r.code, textTail(r.stderr))
		return nil
	})
	var began time.Time
	for _, h := range u.readJournal(t, journals) {
		if h.Type == "operation.started" {
			began = h.Time
		}
	}
	silent := began.Sub(killed)
	t.Logf("figure: %d refusals after the first manager was killed, its lock taken over after %.0f s, all done %.0f s later",
		refusals, silent.Seconds(), time.Since(began).Seconds())
	if silent < 45*time.Second { // 60 after the last heartbeat, which is sent every 10
		t.Errorf("the lock of a manager that was killed was taken over after %s", silent)
	}
}

// copyUser is a second person, with a copy of the first one's records.
func (u *user) copyUser(t *testing.T) *user {
	t.Helper()
	o := newUser(t)
	from, to := filepath.Join(u.home, "slipway"), filepath.Join(o.home, "slipway")
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.Mkdir(to, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "sandboxes" {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(from, e.Name()), to).CombinedOutput(); err != nil {
			t.Fatalf("copying records: %v\n%s", err, out)
		}
	}
	return o
}

// holdPod starts a pod on a node that cannot be evicted.
func (u *user) holdPod(t *testing.T, cluster, node string) {
	t.Helper()
	manifest := filepath.Join(u.home, "held.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, heldPod, node), 0o600); err != nil {
		t.Fatal(err)
	}
	u.mustKubectl(t, cluster, "apply", "-f", manifest)
	eventually(t, 2*time.Minute, "one of two pods runs", func() error {
		got := u.mustKubectl(t, cluster, "get", "poddisruptionbudget", "held", "-o",
			"jsonpath={.status.currentHealthy} of {.status.expectedPods}")
		if got != "1 of 2" {
			return fmt.Errorf("healthy are %s", got)
		}
		return nil
	})
}

// keepsOut has another manager, and a second process of this one, change what
// this one works on: both are refused, and nothing is touched.
func (u *user) keepsOut(t *testing.T, other *user, file string, machines, names []string, process string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(other.home, "changed.yaml")
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		t.Fatal(err)
	}
	editSpec(t, changed, func(spec map[string]any) {
		childMap(childMap(childMap(spec, "kubernetes"), "kubelet"), "config")["maxPods"] = 88
	})
	fences := func() (all []string) {
		for _, m := range machines {
			all = append(all, u.mustExec(t, m, "sh", "-c", "cat /var/lib/slipway/fence 2>/dev/null; true"))
		}
		return all
	}
	pulse, fence := u.recordMachinePulse(t, machines), fences()
	r := other.mustExit(t, 5, "apply", "-f", changed, "--yes")
	refusedBy(t, r, names...)
	t.Logf("figure: the other manager refused after %.1f s", r.took.Seconds())
	refusedBy(t, u.mustExit(t, 5, "apply", "-f", changed, "--yes"), "[locked]", names[1], process)
	stillBeats(t, "a manager that is refused", pulse, u.recordMachinePulse(t, machines))
	if now := fences(); strings.Join(now, "") != strings.Join(fence, "") {
		t.Errorf("the hosts' numbers were %q and are %q: they would refuse who works on them", fence, now)
	}
}

// refusedBy wants a refusal to say all of this.
func refusedBy(t *testing.T, r result, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("the refusal does not say %q:\n%s", w, textTail(r.stderr))
		}
	}
}
