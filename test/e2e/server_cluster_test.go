//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// An objectUser changes a cluster through its object on a management server, with kubectl.
type objectUser struct {
	kubectl
	name string
	// spec is the description of all hosts.
	spec map[string]any
}

// TestServerCluster is the life of a cluster whose object is on a management server: it is created, grows, gets a
// setting, loses a worker after an approval, and is deleted, with kubectl alone.
func TestServerCluster(t *testing.T) {
	u := newUser(t)
	const name = "e2e-object"
	machines := []string{name + "-1", name + "-2", name + "-3"}
	file := u.createMachines(t, name, len(machines))
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.takeSnapshot(t, m)
	}
	d := startServer(t, filepath.Join(t.TempDir(), "data"), freeAddress(t), "--cache-dir="+cacheDir())
	o := objectUser{kubectl: buildKubectl(t, d), name: name, spec: readSpec(t, file)}
	o.createKey(t)

	start := time.Now()
	o.apply(t, machines[:2])
	o.waitForApplied(t, "create")
	o.must(t, "wait", "--for=condition=Ready", "cluster/"+name, "--timeout=2m")
	t.Logf("figure: created through the object in %.0f s", time.Since(start).Seconds())
	o.requireNodes(t, u, machines[0], machines[:2]...)

	start = time.Now()
	o.apply(t, machines)
	o.waitForApplied(t, "grow")
	t.Logf("figure: a worker added in %.0f s", time.Since(start).Seconds())
	o.requireNodes(t, u, machines[0], machines...)

	start = time.Now()
	childMap(childMap(childMap(o.spec, "kubernetes"), "kubelet"), "config")["maxPods"] = 77
	o.apply(t, machines)
	o.waitForApplied(t, "change")
	t.Logf("figure: a setting of three kubelets in %.0f s", time.Since(start).Seconds())
	for _, m := range machines {
		pods := u.mustExec(t, machines[0], "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", m,
			"-o", "jsonpath={.status.capacity.pods}")
		if strings.TrimSpace(pods) != "77" {
			t.Errorf("node %s has room for %s pods, want 77", m, pods)
		}
	}

	requireOtherManager(t, u, file, d)
	o.apply(t, machines[:2])
	operation := o.waitForApproval(t)
	o.requireNodes(t, u, machines[0], machines...)
	digest := o.must(t, "get", "operation", operation, "-o", "jsonpath={.status.plan.digest}")
	o.must(t, "patch", "operation", operation, "--type=merge", "-p", `{"spec":{"approvedPlan":"`+digest+`"}}`)
	o.waitForApplied(t, "shrink")
	o.requireNodes(t, u, machines[0], machines[:2]...)
	requireSame(t, machines[2]+", which has left", "touched", before[machines[2]], u.takeSnapshot(t, machines[2]))

	start = time.Now()
	o.must(t, "patch", "cluster", name, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	o.must(t, "delete", "cluster", name, "--timeout=10m")
	t.Logf("figure: deleted in %.0f s", time.Since(start).Seconds())
	u.mustExec(t, machines[0], "rm", "-rf", "/root/.kube") // of the checks above
	for _, m := range machines[:2] {
		requireSame(t, m+" after the deletion of the object", "touched", before[m], u.takeSnapshot(t, m))
	}
	if left := o.must(t, "get", "secrets", "-o", "name"); strings.Contains(left, "slipway."+name) {
		t.Errorf("Secrets remain after the deletion:\n%s", left)
	}
	if states := o.must(t, "get", "operations", "-o", "jsonpath={.items[*].status.state}"); strings.Contains(states, "Failed") {
		t.Errorf("states of the operations: %s", states)
	}
	d.stop(t)
}

// requireOtherManager asserts that the command line does not delete the cluster of a server.
func requireOtherManager(t *testing.T, u *user, file string, d *daemon) {
	t.Helper()
	r := u.runSlipway(t, "delete", "cluster", "-f", file, "--yes", "--allow-removal")
	requireRefusal(t, r, "other-manager")
	if want := "the management server https://" + d.address + " manages cluster"; !strings.Contains(r.stderr, want) {
		t.Errorf("the command line does not name the server %s:\n%s", d.address, r.stderr)
	}
}

// readSpec returns the spec of a cluster file.
func readSpec(t *testing.T, file string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cluster map[string]any
	if err := yaml.Unmarshal(data, &cluster); err != nil {
		t.Fatal(err)
	}
	return childMap(cluster, "spec")
}

// keyFile is the name of the SSH key in the Secret and in the object.
const keyFile = "id_ed25519"

// createKey creates a Secret with the SSH key of the hosts, whose object then names it, and with more files.
func (o objectUser) createKey(t *testing.T, more ...string) {
	t.Helper()
	ssh := childMap(o.spec, "ssh")
	path := ssh["privateKeyFile"].(string)
	ssh["privateKeyFile"] = keyFile
	o.must(t, append([]string{"create", "secret", "generic", o.name + "-ssh", "--from-file=" + keyFile + "=" + path}, more...)...)
	o.spec["filesFrom"] = []any{map[string]any{"secretRef": map[string]any{"name": o.name + "-ssh"}}}
}

// apply applies the object with some of the hosts. It must succeed.
func (o objectUser) apply(t *testing.T, hosts []string) {
	t.Helper()
	if r := o.tryApply(t, hosts); r.code != 0 {
		t.Fatalf("kubectl apply ends with %d: %s", r.code, r.stderr)
	}
}

// tryApply applies the object with some of the hosts.
func (o objectUser) tryApply(t *testing.T, hosts []string) result {
	t.Helper()
	spec := maps.Clone(o.spec)
	spec["hosts"] = slices.DeleteFunc(slices.Clone(o.spec["hosts"].([]any)), func(h any) bool {
		return !slices.Contains(hosts, h.(map[string]any)["name"].(string))
	})
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "slipway.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": o.name}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return o.run(t, "apply", "--server-side", "--force-conflicts", "-f", file)
}

// condition returns the status, the generation and the message of condition Reconciled.
func (o objectUser) condition(t *testing.T) (is, generation, message string) {
	t.Helper()
	const path = `{.metadata.generation}{"\n"}{range .status.conditions[?(@.type=="Reconciled")]}` +
		`{.status} {.reason}{"\n"}{.observedGeneration}{"\n"}{.message}{end}`
	lines := strings.SplitN(o.must(t, "get", "cluster", o.name, "-o", "jsonpath="+path), "\n", 4)
	if len(lines) < 4 || lines[0] != lines[2] {
		return "", "", "the change was not seen yet"
	}
	return lines[1], lines[2], lines[3]
}

// waitForApplied waits until the object is applied.
func (o objectUser) waitForApplied(t *testing.T, what string) {
	t.Helper()
	eventually(t, 10*time.Minute, "the object to be applied: "+what, func() error {
		is, _, message := o.condition(t)
		if strings.HasSuffix(is, "OperationFailed") {
			t.Fatalf("%s: %s\n%s", what, message, o.must(t, "get", "operations", "-o", "yaml"))
		}
		if is != "True IntentApplied" {
			return fmt.Errorf("condition Reconciled is %q: %s", is, message)
		}
		return nil
	})
}

// waitForProcess waits until an operation runs, and returns its name and its process.
func (o objectUser) waitForProcess(t *testing.T) (operation, process string) {
	t.Helper()
	const path = `{range .items[?(@.status.state=="Running")]}{.metadata.name} {.status.executor.id}{end}`
	eventually(t, 3*time.Minute, "an operation to run", func() error {
		fields := strings.Fields(o.must(t, "get", "operations", "-o", "jsonpath="+path))
		if len(fields) != 2 {
			return errors.New(o.must(t, "get", "operations"))
		}
		operation, process = fields[0], fields[1]
		return nil
	})
	return operation, process
}

// waitForApproval waits until an operation needs an approval, and returns its name.
func (o objectUser) waitForApproval(t *testing.T) (operation string) {
	t.Helper()
	eventually(t, 2*time.Minute, "an operation that needs an approval", func() error {
		operation = o.must(t, "get", "operations", "-o", `jsonpath={.items[?(@.status.state=="AwaitingApproval")].metadata.name}`)
		if operation == "" {
			return errors.New(o.must(t, "get", "operations"))
		}
		return nil
	})
	return operation
}

// requireNodes asserts which nodes the cluster has. All are ready.
func (o objectUser) requireNodes(t *testing.T, u *user, control string, want ...string) {
	t.Helper()
	eventually(t, 2*time.Minute, "nodes Ready", func() error {
		list := u.mustExec(t, control, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "nodes", "--no-headers")
		var ready []string
		for line := range strings.Lines(list) {
			if f := strings.Fields(line); len(f) > 1 && f[1] == "Ready" {
				ready = append(ready, f[0])
			}
		}
		slices.Sort(ready)
		if !slices.Equal(ready, want) {
			return fmt.Errorf("ready are %v, want %v:\n%s", ready, want, list)
		}
		return nil
	})
}
