//go:build e2e && long

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An operatorSite is a cluster of Slipway that has the operator, and machines for another cluster, whose object is in it.
type operatorSite struct {
	*user
	name  string
	nodes []string // of the cluster with the operator
	hosts []string // of the other cluster
	o     objectUser
	// registry has the bundles.
	registry string
}

// operatorNamespace is the namespace of the operator, and teamNamespace the namespace of the object.
const operatorNamespace, teamNamespace = "slipway-system", "team"

// TestLongOperator installs the operator in a cluster. Another cluster is created, grows, and is deleted through its
// object. The Pod that runs an operation is killed, and later the node of such a Pod.
func TestLongOperator(t *testing.T) {
	s := newOperatorSite(t, "e2e-operator", testedVersion())
	defer s.showFailure(t)
	s.install(t, "in-process")
	before := s.takeSnapshots(t)

	start := time.Now()
	s.o.apply(t, s.hosts[:1])
	s.o.waitForApplied(t, "create")
	s.o.must(t, "wait", "--for=condition=Ready", "cluster/"+s.o.name, "--timeout=2m")
	t.Logf("figure: created by the operator in %.0f s", time.Since(start).Seconds())
	s.o.requireNodes(t, s.user, s.hosts[0], s.hosts[0])
	s.refusesBadObjects(t)

	s.o.apply(t, s.hosts)
	operation, process := s.o.waitForProcess(t)
	s.killDuringOperation(t, "the Pod with the cluster", operation, process, func() {
		s.o.must(t, "--namespace", operatorNamespace, "delete", "pod", podOf(process), "--force", "--grace-period=0")
	})
	s.o.waitForApplied(t, "grow")
	s.o.requireNodes(t, s.user, s.hosts[0], s.hosts...)
	s.waitUntilReady(t)

	operation, process = s.changeOnNode(t, s.nodes[1])
	s.killDuringOperation(t, "the node with the Pod", operation, process, func() { s.mustRun(t, "sandbox", "kill", s.nodes[1]) })
	s.o.waitForApplied(t, "change")
	s.mustRun(t, "sandbox", "start", s.nodes[1])
	s.waitUntilReady(t)

	s.deleteCluster(t, "the operator", before)
	s.uninstall(t)
}

// TestLongOperatorJobs runs each operation in a Job. All Pods of the operator are killed during an operation, which
// continues in its Job. Later, the Pod of a Job is killed, and another Job resumes the operation. The operator is upgraded
// during another operation.
func TestLongOperatorJobs(t *testing.T) {
	const older, newer = "v1.36.4", "v1.37.1"
	t.Setenv("KUBERNETES", older)
	s := newOperatorSite(t, "e2e-jobs", older, newer)
	defer s.showFailure(t)
	s.install(t, "job")
	before := s.takeSnapshots(t)

	start := time.Now()
	s.o.apply(t, s.hosts[:1])
	operation, first := s.o.waitForProcess(t)
	s.o.must(t, append([]string{
		"--namespace", operatorNamespace, "delete", "pods", "--force", "--grace-period=0",
	}, s.status(t).Processes...)...)
	s.o.waitForApplied(t, "create")
	t.Logf("figure: created by a Job in %.0f s, while all Pods of the operator were killed", time.Since(start).Seconds())
	if is := s.o.must(t, "get", "operation", operation, "-o", "jsonpath={.status.executor.id} {.status.attempt}"); is != first+" 1" {
		t.Errorf("the operation was run by %s, want %s 1: it does not need the operator", is, first)
	}
	s.o.requireNodes(t, s.user, s.hosts[0], s.hosts[0])

	s.o.apply(t, s.hosts)
	operation, process := s.o.waitForProcess(t)
	s.killDuringOperation(t, "the Pod of the Job", operation, process, func() {
		s.o.must(t, "--namespace", operatorNamespace, "delete", "pods", "--selector=app.kubernetes.io/name=slipway-operation",
			"--field-selector=status.phase=Running", "--force", "--grace-period=0")
	})
	s.o.waitForApplied(t, "grow")
	s.o.requireNodes(t, s.user, s.hosts[0], s.hosts...)
	s.waitUntilReady(t)
	s.upgradeDuringOperation(t)

	start = time.Now()
	childMap(s.o.spec, "kubernetes")["version"], s.o.spec["bundle"] = newer, s.bundle(newer)
	s.o.apply(t, s.hosts)
	s.o.waitForApplied(t, "upgrade")
	t.Logf("figure: upgraded by a Job in %.0f s", time.Since(start).Seconds())
	s.o.requireNodes(t, s.user, s.hosts[0], s.hosts...)
	for _, m := range s.hosts {
		is := s.mustExec(t, s.hosts[0], "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", m,
			"-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
		if strings.TrimSpace(is) != newer {
			t.Errorf("node %s has version %s, want %s", m, is, newer)
		}
	}

	s.deleteCluster(t, "a Job", before)
	if running := s.o.must(t, "--namespace", operatorNamespace, "get", "pods", "--selector=app.kubernetes.io/name=slipway-operation",
		"--field-selector=status.phase=Running", "-o", "name"); running != "" {
		t.Errorf("Pods of Jobs still run: %s", running)
	}
	s.uninstall(t)
}

// newOperatorSite creates the cluster of the operator, from a bundle with the image of the operator, and a Secret for the
// other cluster. The first one of the versions is the version of both clusters, and a registry has the bundles of all.
func newOperatorSite(t *testing.T, name string, versions ...string) *operatorSite {
	t.Helper()
	s, file := newOperatorMachines(t, name, versions...)
	layout := filepath.Join(s.home, "bundle") + "/"
	s.mustRun(t, "bundle", "build", "--kubernetes", versions[0], "--operator", daemonPath(t), "--out", layout)
	editSpec(t, file, func(spec map[string]any) { spec["bundle"] = layout })
	s.createCluster(t, file)
	s.createTeam(t, s.mustRun(t, "kubeconfig", s.name))
	return s
}

// newOperatorMachines creates the machines of both clusters, and the registry. It returns the file of the first cluster.
func newOperatorMachines(t *testing.T, name string, versions ...string) (s *operatorSite, file string) {
	t.Helper()
	s = &operatorSite{user: newUser(t), name: name}
	s.prepareBundles(t, versions...)
	file = s.createMachines(t, s.name, 4)
	for i := range 4 {
		machine := fmt.Sprintf("%s-%d", s.name, i+1)
		if i < 2 {
			s.nodes = append(s.nodes, machine)
		} else {
			s.hosts = append(s.hosts, machine)
		}
	}
	other := readSpec(t, file)
	hosts := other["hosts"].([]any)[2:]
	s.serveBundles(t, hosts[0].(map[string]any)["address"].(string), versions...)
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:2] })
	hosts[0].(map[string]any)["roles"] = []any{"control-plane"}
	hosts[1].(map[string]any)["roles"] = []any{"worker"}
	other["hosts"], other["bundle"] = hosts, s.bundle(versions[0])
	other["registry"] = s.registryLogin("word", "ca.crt")
	s.o = objectUser{name: s.name + "-2", spec: other}
	return s, file
}

// createTeam creates the namespace of the other cluster's object, with the Secret of its files.
func (s *operatorSite) createTeam(t *testing.T, kubeconfig string) {
	t.Helper()
	s.connect(t, kubeconfig)
	s.o.must(t, "create", "namespace", teamNamespace)
	s.o.must(t, "config", "set-context", "--current", "--namespace="+teamNamespace)
	s.o.createKey(t, "--from-file="+filepath.Join(s.home, "word"), "--from-file="+filepath.Join(s.home, "ca.crt"))
}

// connect saves the kubeconfig of the cluster with the operator, for kubectl and slipway.
func (s *operatorSite) connect(t *testing.T, kubeconfig string) {
	t.Helper()
	if err := os.WriteFile(s.kubeconfig(), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	s.o.kubectl = newKubectl(t, s.kubeconfig())
}

// kubeconfig returns the path of the kubeconfig of the cluster with the operator.
func (s *operatorSite) kubeconfig() string { return filepath.Join(s.home, "operator.kubeconfig") }

// serveBundles serves a registry with the bundles of versions, in the network of a machine.
func (s *operatorSite) serveBundles(t *testing.T, machine string, versions ...string) {
	t.Helper()
	s.registry = serveRegistry(t, machine, s.home)
	login := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, s.registry, pullUser, pullWord)
	if err := errors.Join(os.WriteFile(filepath.Join(s.home, "login.json"), []byte(login), 0o600),
		os.WriteFile(filepath.Join(s.home, "word"), []byte(pullWord), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		s.mustRun(t, "bundle", "push", v, s.bundle(v), "--credentials", "login.json", "--ca", "ca.crt")
	}
}

// registryLogin returns the settings of a cluster for the registry, with the names of its files.
func (s *operatorSite) registryLogin(password, ca string) map[string]any {
	return map[string]any{"auths": []any{map[string]any{
		"registry": s.registry, "username": pullUser, "passwordFrom": map[string]any{"file": password}, "caFile": ca,
	}}}
}

// bundle returns the reference of the bundle of a version in the registry.
func (s *operatorSite) bundle(version string) string {
	return s.registry + "/slipway/bundle:" + version
}

// install installs the operator, whose image is on the nodes.
func (s *operatorSite) install(t *testing.T, executor string) {
	t.Helper()
	kubeconfig := s.kubeconfig()
	requireRefusal(t, s.runSlipway(t, "operator", "status", "--kubeconfig", kubeconfig), "operator-not-installed")
	requireRefusal(t, s.runSlipway(t, "operator", "upgrade", "--kubeconfig", kubeconfig), "operator-not-installed")
	start := time.Now()
	s.mustRun(t, "operator", "install", "--kubeconfig", kubeconfig, "--executor", executor)
	t.Logf("figure: installed in %.0f s", time.Since(start).Seconds())
	if r := s.mustExit(t, 0, "operator", "install", "--kubeconfig", kubeconfig, "--executor", executor); r.stderr != "" {
		t.Errorf("a second installation changes something:\n%s", r.stderr)
	}
	s.waitUntilReady(t)
}

// importImage makes the image of the operator with the slipway of a user, and puts it on the nodes.
func (s *operatorSite) importImage(t *testing.T, u *user, program string) {
	t.Helper()
	archive := filepath.Join(s.home, "slipwayd.tar")
	u.mustRun(t, "operator", "image", "--program", program, "--out", archive)
	for _, m := range s.nodes {
		s.copyTo(t, m, archive, "/root/slipwayd.tar")
		s.mustExec(t, m, "ctr", "--namespace", "k8s.io", "images", "import", "/root/slipwayd.tar")
		s.mustExec(t, m, "rm", "/root/slipwayd.tar")
	}
}

// showFailure prints the state of the operator if the test has failed.
func (s *operatorSite) showFailure(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, args := range [][]string{
		{"get", "pods,jobs,leases", "--all-namespaces", "-o", "wide"},
		{"get", "operations", "-o", "yaml"},
		{"--namespace", operatorNamespace, "logs", "--selector=app.kubernetes.io/name=slipway-controllers", "--tail=60", "--prefix"},
	} {
		r := s.o.run(t, args...)
		t.Logf("kubectl %s:\n%s%s", strings.Join(args, " "), textTail(r.stdout), r.stderr)
	}
}

// An operatorStatus is the output of 'slipway operator status'.
type operatorStatus struct {
	Version                  string
	Replicas, Updated, Ready int
	Processes                []string
	HasWebhook               bool
	Clusters                 int
	Problems                 []string
}

func (s *operatorSite) status(t *testing.T) (out operatorStatus) {
	t.Helper()
	text := s.mustRun(t, "operator", "status", "-o", "json", "--kubeconfig", s.kubeconfig())
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// waitUntilReady waits until both Pods of the operator are ready, on different nodes.
func (s *operatorSite) waitUntilReady(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, "the operator to be ready", func() error {
		is := s.status(t)
		if is.Ready != 2 || is.Replicas != 2 || len(is.Processes) != 2 || !is.HasWebhook {
			return fmt.Errorf("the operator is not ready: %+v", is)
		}
		return nil
	})
}

// refusesBadObjects applies objects that the webhook refuses, each with its reason.
func (s *operatorSite) refusesBadObjects(t *testing.T) {
	t.Helper()
	second := s.o
	second.name = s.o.name + "-copy"
	requireRefusedObject(t, second.tryApply(t, s.hosts[:1]), "is in Cluster "+teamNamespace+"/"+s.o.name+" already")
	bad := s.o
	bad.spec = map[string]any{}
	for key, value := range s.o.spec {
		bad.spec[key] = value
	}
	bad.spec["kubernetes"] = map[string]any{"version": "v1.20.0"}
	requireRefusedObject(t, bad.tryApply(t, s.hosts[:1]), "spec.kubernetes.version")
	s.o.must(t, "patch", "cluster", s.o.name, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	requireRefusedObject(t, s.o.run(t, "delete", "namespace", teamNamespace), "cannot be deleted")
	s.o.must(t, "patch", "cluster", s.o.name, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Retain"}}`)
}

// requireRefusedObject asserts that kubectl reports a refusal.
func requireRefusedObject(t *testing.T, r result, want string) {
	t.Helper()
	if r.code == 0 || !strings.Contains(r.stderr, want) {
		t.Errorf("kubectl ends with %d, want a refusal with %q:\n%s", r.code, want, r.stderr)
	}
}

// podOf returns the Pod of a process that runs an operation.
func podOf(process string) string {
	pod, _, _ := strings.Cut(process, "/")
	return pod
}

// killDuringOperation kills the process that runs an operation. It prints the time until another process runs it.
func (s *operatorSite) killDuringOperation(t *testing.T, what, operation, first string, kill func()) {
	t.Helper()
	start := time.Now()
	kill()
	eventually(t, 3*time.Minute, "another process to run the operation", func() error {
		is := strings.Fields(s.o.run(t, "get", "operation", operation, "-o", "jsonpath={.status.state} {.status.executor.id}").stdout)
		if len(is) == 2 && is[0] == "Succeeded" && is[1] == first {
			t.Fatalf("operation %s has ended before its process was killed", operation)
		}
		if len(is) < 2 || is[1] == first {
			return fmt.Errorf("the operation is %v", is)
		}
		return nil
	})
	t.Logf("figure: %s was killed: another process ran the operation after %.0f s", what, time.Since(start).Seconds())
}

// takeSnapshots returns the state of the hosts of the other cluster.
func (s *operatorSite) takeSnapshots(t *testing.T) map[string]snapshot {
	t.Helper()
	out := map[string]snapshot{}
	for _, m := range s.hosts {
		out[m] = s.takeSnapshot(t, m)
	}
	return out
}

// deleteCluster deletes the other cluster through its object. Its hosts must be as before.
func (s *operatorSite) deleteCluster(t *testing.T, by string, before map[string]snapshot) {
	t.Helper()
	start := time.Now()
	s.o.must(t, "patch", "cluster", s.o.name, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	s.o.must(t, "delete", "cluster", s.o.name, "--timeout=10m")
	t.Logf("figure: deleted by %s in %.0f s", by, time.Since(start).Seconds())
	s.mustExec(t, s.hosts[0], "rm", "-rf", "/root/.kube") // of the checks above
	for m, now := range s.takeSnapshots(t) {
		requireSame(t, m+" after the deletion of the object", "touched", before[m], now)
	}
}

// changeOnNode changes a setting of the other cluster until a Pod on a node runs the operation. It returns the operation and
// its process. The name of a new Pod decides to which Pod the cluster belongs.
func (s *operatorSite) changeOnNode(t *testing.T, node string) (operation, process string) {
	t.Helper()
	config := childMap(childMap(childMap(s.o.spec, "kubernetes"), "kubelet"), "config")
	for pods := range 12 {
		config["maxPods"] = 77 + pods
		s.o.apply(t, s.hosts)
		operation, process = s.o.waitForProcess(t)
		pod := podOf(process)
		if s.o.must(t, "--namespace", operatorNamespace, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}") == node {
			return operation, process
		}
		s.o.waitForApplied(t, "change")
		s.o.must(t, "--namespace", operatorNamespace, "delete", "pod", pod)
		s.waitUntilReady(t)
	}
	t.Fatalf("no Pod on %s has run an operation", node)
	return "", ""
}

// uninstall removes the operator in two steps.
func (s *operatorSite) uninstall(t *testing.T) {
	t.Helper()
	kubeconfig := s.kubeconfig()
	s.mustRun(t, "operator", "uninstall", "--kubeconfig", kubeconfig, "--yes")
	if left := s.o.must(t, "get", "crd", "-o", "name"); !strings.Contains(left, "clusters.slipway.dev") {
		t.Errorf("the definitions are deleted with the operator:\n%s", left)
	}
	s.mustRun(t, "operator", "uninstall", "--kubeconfig", kubeconfig, "--yes", "--with-data")
	const kinds = "crd,namespaces,clusterroles,validatingwebhookconfigurations"
	if left := s.o.must(t, "get", kinds, "-o", "name"); strings.Contains(left, "slipway") {
		t.Errorf("something of the operator remains:\n%s", left)
	}
}
