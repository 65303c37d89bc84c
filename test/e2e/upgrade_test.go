//go:build e2e && long

package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// webManifest is a workload that an upgrade must not interrupt: two pods on different
// nodes, one of which may be missing. A pod ends after clients have stopped sending
// requests.
const webManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: slipway.dev/echo:1
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 8}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30081}]}
`

// An asker sends requests to a node port from outside of the nodes, each over a separate
// connection, one every tenth of a second, without a retry.
type asker struct {
	stop, done chan struct{}
	asked      int
	failed     []string
}

func startAsker(url string) *asker {
	a := &asker{stop: make(chan struct{}), done: make(chan struct{})}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		defer close(a.done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			a.asked++
			if res, err := client.Get(url); err != nil {
				a.failed = append(a.failed, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
			} else {
				_ = res.Body.Close()
				if res.StatusCode != http.StatusOK {
					a.failed = append(a.failed, time.Now().UTC().Format(time.TimeOnly)+" "+res.Status)
				}
			}
			select {
			case <-a.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return a
}

// endAsker requires that no request has failed, and returns the number of requests.
func (a *asker) endAsker(t *testing.T) int {
	t.Helper()
	close(a.stop)
	<-a.done
	for _, f := range a.failed[:min(len(a.failed), 10)] {
		t.Errorf("a request to the workload failed: %s", f)
	}
	if a.asked < 10 {
		t.Errorf("%d requests were sent", a.asked)
	}
	return a.asked
}

// newUpgradable creates a cluster of a version, with a workload on it.
func newUpgradable(t *testing.T, name string, controlPlanes, workers int, version string) *balanced {
	t.Helper()
	t.Setenv("KUBERNETES", version)
	b := newBalanced(t, name, controlPlanes, workers)
	b.setEndpoint(t, "haproxy")
	b.prepareBundles(t, "v1.35.6", "v1.36.4", "v1.37.1")
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	b.startWorkload(t, webManifest)
	return b
}

// startWorkload starts a workload and sends requests to the node port of any node.
func (b *balanced) startWorkload(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(b.home, "web.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	b.mustKubectl(t, b.name, "apply", "-f", file)
	b.mustKubectl(t, b.name, "rollout", "status", "deployment/web", "--timeout=120s")
}

// prepareBundles has the bundles of versions at hand, so that no figure has their
// making in it.
func (u *user) prepareBundles(t *testing.T, versions ...string) {
	t.Helper()
	u.bundledFor(t, "containerd", versions...)
}

// bundledFor has bundles serve a runtime.
func (u *user) bundledFor(t *testing.T, runtime string, versions ...string) {
	t.Helper()
	for _, v := range versions {
		// Cold, on a machine that has other work, it took 25 minutes.
		if r := u.runWithin(t, 40*time.Minute, nil, "bundle", "build", "--kubernetes", v, "--source", "modules",
			"--runtime", runtime); r.code != 0 {
			t.Fatalf("building the bundle of %s ends with %d:\n%s", v, r.code, textTail(r.stderr))
		}
	}
}

// atVersion wants a cluster that runs with a version, and says so everywhere.
func (b *balanced) atVersion(t *testing.T, version string) {
	t.Helper()
	t.Setenv("KUBERNETES", version)
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "kubernetes")["version"] = version })
	b.requireEmptyPlan(t, b.file)
	for _, of := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		// The API reports them with a delay: a kubelet reverts the status of a pod that it
		// has just replaced, and writes it again.
		eventually(t, 2*time.Minute, "control planes with "+of+" "+version, func() error {
			images := b.mustKubectl(t, b.name, "get", "pods", "-n", "kube-system", "-l", "component="+of, "-o",
				"jsonpath={.items[*].spec.containers[0].image}")
			if want := slices.Repeat([]string{"registry.k8s.io/" + of + ":" + version},
				len(b.controlPlanes)); !slices.Equal(strings.Fields(images), want) {
				return errors.New("they run " + images)
			}
			return nil
		})
	}
	if image := b.mustKubectl(t, b.name, "get", "daemonset", "kube-proxy", "-n", "kube-system", "-o",
		"jsonpath={.spec.template.spec.containers[0].image}"); !strings.HasSuffix(image, ":"+version) {
		t.Errorf("kube-proxy is of %s, want %s", image, version)
	}
	if got := b.mustKubectl(t, b.name, "get", "configmap", "kubeadm-config", "-n", "kube-system", "-o",
		"yaml"); !strings.Contains(got, "kubernetesVersion: "+version) {
		t.Errorf("the cluster's record of its settings is not of %s:\n%s", version, got)
	}
	if closed := b.mustKubectl(t, b.name, "get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}"); closed != "" {
		t.Errorf("cordoned are %s", closed)
	}
	b.keepsNothingElse(t, version)
}

// keepsNothingElse wants nodes to keep nothing of another version's bundle: no image is
// pinned, and no content stored.
func (b *balanced) keepsNothingElse(t *testing.T, version string) {
	t.Helper()
	type bundle struct{ Components []struct{ Digest string } }
	wanted := map[string]bool{}
	for _, c := range decodeJSON[bundle](t, b.mustRun(t, "bundle", "inspect", version, "-o", "json")).Components {
		wanted[strings.TrimPrefix(c.Digest, "sha256:")] = true
	}
	type images struct {
		Images []struct {
			RepoTags []string
			Pinned   bool
		}
	}
	for _, m := range b.nodesOf() {
		for _, blob := range strings.Fields(b.mustExec(t, m, "ls", "/var/lib/slipway/blobs/sha256")) {
			if !wanted[blob] {
				t.Errorf("%s keeps %s, which is of another bundle than %s", m, blob, version)
			}
		}
		own := 0
		for _, i := range decodeJSON[images](t, b.mustExec(t, m, "crictl", "images", "-o", "json")).Images {
			switch proxy := slices.ContainsFunc(i.RepoTags, func(tag string) bool { return strings.Contains(tag, "/kube-proxy:") }); {
			case !proxy || !i.Pinned:
			case slices.ContainsFunc(i.RepoTags, func(tag string) bool { return strings.HasSuffix(tag, ":"+version) }):
				own++
			default:
				t.Errorf("%s keeps %s, which is of another bundle than %s", m, i.RepoTags, version)
			}
		}
		if docker := strings.Contains(b.mustExec(t, m, "cat", "/etc/crictl.yaml"), "docker"); own != 1 && !docker { // which pins none
			t.Errorf("%s keeps %d images of kube-proxy %s", m, own, version)
		}
	}
}

// TestLongUpgrade takes a cluster over two minors with one command, with a
// client that writes through the endpoint and one that asks a workload.
func TestLongUpgrade(t *testing.T) {
	b := newUpgradable(t, "e2e-upgrade", 3, 2, "v1.35.6")
	w := b.startWriter(t, "upgrading")
	a := startAsker("http://" + b.addresses[b.controlPlanes[2]] + ":30081/")
	r := b.runWithin(t, 45*time.Minute, nil, "upgrade", b.name, "--to", "v1.37.1", "--yes")
	asked := a.endAsker(t)
	if r.code != 0 {
		t.Fatalf("the upgrade ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	b.logCriticalPaths(t, "upgrade")
	n, gap := w.stopWriter(t)
	t.Logf("figure: from v1.35.6 over v1.36.4 to v1.37.1 in %.0f s: %d writes acknowledged and none lost, %.1f s "+
		"without one; %d requests to a workload, none failed",
		r.took.Seconds(), n, gap.Seconds(), asked)
	if gap > longestGap {
		t.Errorf("nothing was written for %s", gap)
	}
	b.atVersion(t, "v1.37.1")
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.deleteCluster(t)
}

// logCriticalPaths logs which steps determined the duration of each operation of a type.
func (b *balanced) logCriticalPaths(t *testing.T, operationType string) {
	t.Helper()
	type operation struct {
		Metadata struct{ Name string }
		Spec     struct{ Kind string }
	}
	found := false
	for _, o := range decodeJSON[[]operation](t, b.mustRun(t, "operations", "list", b.name, "-o", "json")) {
		if o.Spec.Kind == operationType {
			found = true
			t.Log(b.mustRun(t, "operations", "show", o.Metadata.Name, "--critical-path"))
		}
	}
	if !found {
		t.Errorf("there is no operation of type %s", operationType)
	}
}

// TestLongCrashUpgrade kills the manager at the end of every step of an upgrade.
func TestLongCrashUpgrade(t *testing.T) {
	b := newUpgradable(t, "e2e-reupgrade", 1, 2, "v1.36.4")
	begin := time.Now()
	all, kills, missing := b.killedThroughout(t, "upgrade", b.name, "--to", "v1.37.1", "--yes")
	t.Logf("figure: %d moments, %d kills, %.0f s", all, kills, time.Since(begin).Seconds())
	// Each step is gone through again, whatever was done when the manager died; the
	// backup, which is taken once, is left out when its end is in the journal.
	for _, name := range missing {
		t.Errorf("never came: %s", name)
	}
	b.atVersion(t, "v1.37.1")
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.deleteCluster(t)
}

// killedThroughout runs a slipway command that has a plan, and kills the manager at the
// end of every step of it. It returns the moments that never came.
func (b *balanced) killedThroughout(t *testing.T, do ...string) (all, kills int, missing []string) {
	t.Helper()
	before := b.listJournals(t)
	o := b.startOperation(t, do...)
	began := &moment{name: "the first step has ended", at: func(h happening) bool { return h.boundaryName() != "" }}
	if o.readUntil(newMoments(began)) == nil || !o.killManager() {
		t.Fatalf("%s ended before its first step:\n%s", strings.Join(do, " "), textTail(o.stderr.String()))
	}
	ms := newMoments()
	for _, s := range b.planOf(t, b.name).Steps {
		ms.left = append(ms.left, momentAfter(s.Task+"@"+s.Host))
	}
	all = len(ms.left)
	kills = b.killedAt(t, ms, b.name, "resume", b.name, "--yes")
	// The resumed operation continues its journal: moments that are left came while the
	// manager died at another moment, and their steps were not repeated.
	ms.endRun(b.readJournal(t, before))
	if kills < all*9/10 {
		t.Errorf("%d kills for %d moments: too many came while the manager died of another", kills, all)
	}
	return all, kills, ms.listMissing()
}

// badImage is a hook that puts a wrong image under a scheduler's name, once.
const badImage = `#!/bin/sh
[ "$SLIPWAY_HOST" = "$(cat canary)" ] || exit 0
pause=$(ctr -n k8s.io images list -q | grep /pause: | tail -n 1)
ctr -n k8s.io images tag --force "$pause" registry.k8s.io/kube-scheduler:v1.37.1
`

// newBroken creates a cluster whose next upgrade fails once, by a hook on its first
// control plane. heal reverts this, and stops requires that a command ends with a code and
// words while the cluster serves.
func newBroken(t *testing.T, name string) (b *balanced, heal func(), stops func(code int, o result, why ...string)) {
	t.Helper()
	b = newUpgradable(t, name, 3, 2, "v1.36.4")
	canary := filepath.Join(b.home, "canary")
	for file, content := range map[string]string{filepath.Join(b.home, "bad-image.sh"): badImage, canary: b.controlPlanes[0]} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	editSpec(t, b.file, func(spec map[string]any) {
		spec["hooks"] = []any{map[string]any{
			"name": "bad-image", "phase": "preUpgrade", "roles": []string{"control-plane"}, "script": "bad-image.sh",
			"materials": []string{"canary"},
		}}
	})
	b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
	heal = func() {
		t.Helper()
		if err := os.WriteFile(canary, []byte("none"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b, heal, func(code int, o result, why ...string) {
		t.Helper()
		for _, word := range why {
			if o.code != code || !strings.Contains(o.stderr, word) {
				t.Fatalf("it ends with %d, want %d for %q:\n%s", o.code, code, word, textTail(o.stderr))
			}
		}
		b.requireReachableAPI(t)
	}
}

// killDuring runs a command, kills a machine while its control plane is replaced, requires
// that the command fails, and starts the machine again.
func (b *balanced) killDuring(t *testing.T, machine string, args ...string) {
	t.Helper()
	o := b.startOperation(t, args...)
	killed := false
	for h := range o.events {
		if h.beginsTask("upgrade.control-plane") && h.Host == machine && !killed {
			killed = true
			b.mustRun(t, "sandbox", "kill", machine)
		}
	}
	if code := o.waitForExit(); code != 1 || !killed {
		t.Fatalf("with %s killed (%t) it ends with %d, want 1:\n%s", machine, killed, code, textTail(o.stderr.String()))
	}
	b.requireReachableAPI(t)
	b.mustRun(t, "sandbox", "start", machine)
	eventually(t, 2*time.Minute, machine+" is ready", func() error {
		if is := b.mustKubectl(t, b.name, "get", "node", machine, "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}`); is != "True" {
			return errors.New(is)
		}
		return nil
	})
}

// budget sets how many pods of the workload must run.
func (b *balanced) budget(t *testing.T, least string) {
	t.Helper()
	b.mustKubectl(t, b.name, "patch", "poddisruptionbudget", "web", "--type=merge", "-p", `{"spec":{"minAvailable":`+least+`}}`)
}

// takesBack rolls an upgrade back, and requires the previous state.
func (b *balanced) takesBack(t *testing.T, from string) {
	t.Helper()
	r := b.runWithin(t, 15*time.Minute, nil, "rollback", b.name, "--yes")
	if r.code != 0 {
		t.Fatalf("the way back from %s ends with %d:\n%s", from, r.code, textTail(r.stderr))
	}
	t.Logf("figure: back from %s in %.0f s", from, r.took.Seconds())
	b.atVersion(t, "v1.36.4")
}

// TestLongUpgradeBroken breaks an upgrade on the first control plane, by an invalid image,
// on another one, whose machine is killed, and on a worker, which cannot be drained. Each
// time the cluster continues to work, and the upgrade continues when the cause is gone.
// After the second failure it is rolled back once.
func TestLongUpgradeBroken(t *testing.T) {
	b, heal, stops := newBroken(t, "e2e-broken")
	first, second := b.controlPlanes[0], b.controlPlanes[1]
	w := b.startWriter(t, "broken")
	stops(1, b.runWithin(t, 12*time.Minute, nil, "upgrade", b.name, "--to", "v1.37.1", "--yes"), "FAILED", first, "kube-scheduler")
	stops(2, b.runSlipway(t, "apply", "-f", b.file, "--yes"), "upgrade-unfinished")
	heal()
	b.killDuring(t, second, "resume", b.name)
	b.takesBack(t, "the second control plane")

	b.killDuring(t, second, "upgrade", b.name, "--to", "v1.37.1", "--yes")
	b.budget(t, "2")
	stops(2, b.runSlipway(t, "resume", b.name), "drain-blocked", "web")
	b.budget(t, "1")
	r := b.runWithin(t, 15*time.Minute, nil, "resume", b.name)
	if r.code != 0 {
		t.Fatalf("resume ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	stops(2, b.runSlipway(t, "rollback", b.name, "--yes"), "upgrade-committed", "backups/"+b.name)
	n, gap := w.stopWriter(t)
	t.Logf("figure: three times broken: %d writes acknowledged and none lost, %.1f s without one", n, gap.Seconds())
	b.atVersion(t, "v1.37.1")
	b.deleteCluster(t)
}

// TestLongUpgradeBack rolls back an upgrade that an invalid image has stopped on the first
// control plane, and an upgrade that has reached a worker that cannot be drained. A client
// writes all the time. Before that, the rollback is rejected for the problems that it
// would meet.
func TestLongUpgradeBack(t *testing.T) {
	b, heal, stops := newBroken(t, "e2e-back")
	b.budget(t, "2")
	if r := b.runSlipway(t, "upgrade", b.name, "--to", "v1.37.1", "--check"); r.code != 2 || !strings.Contains(r.stdout, "disruption-budget") {
		t.Errorf("the report ends with %d:\n%s\n%s", r.code, r.stdout, textTail(r.stderr))
	}
	b.budget(t, "1")
	b.mustExit(t, 0, "upgrade", b.name, "--to", "v1.37.1", "--check")

	w := b.startWriter(t, "back")
	stops(1, b.runWithin(t, 12*time.Minute, nil, "upgrade", b.name, "--to", "v1.37.1", "--yes"), "FAILED",
		b.controlPlanes[0], "kube-scheduler")
	b.takesBack(t, "the first control plane")

	heal()
	o := b.startOperation(t, "upgrade", b.name, "--to", "v1.37.1", "--drain-timeout", "30s", "--yes")
	held := false
	for h := range o.events {
		if h.beginsTask("upgrade.steady") && h.Host == b.controlPlanes[2] && !held {
			held = true
			b.budget(t, "2")
		}
	}
	if code := o.waitForExit(); code != 1 || !held {
		t.Fatalf("with a budget that lets nothing go (%t) it ends with %d, want 1:\n%s", held, code, textTail(o.stderr.String()))
	}
	b.requireReachableAPI(t)
	b.budget(t, "1")
	a := startAsker("http://" + b.addresses[b.controlPlanes[2]] + ":30081/")
	b.takesBack(t, "a worker")
	asked := a.endAsker(t)
	n, gap := w.stopWriter(t)
	t.Logf("figure: rolled back twice: %d writes acknowledged and none lost, %.1f s without one; %d requests to a "+
		"workload on the way back, none failed",
		n, gap.Seconds(), asked)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.deleteCluster(t)
}

// TestLongUpgradeEtcdBack rolls back an upgrade that has reached its last hook: by then
// etcd has another minor version, too, and returns to its own.
func TestLongUpgradeEtcdBack(t *testing.T) {
	b := newUpgradable(t, "e2e-etcdback", 3, 2, "v1.36.4")
	if err := os.WriteFile(filepath.Join(b.home, "refuses.sh"), []byte("#!/bin/sh\nexit 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	editSpec(t, b.file, func(spec map[string]any) {
		spec["hooks"] = []any{map[string]any{
			"name": "refuses", "phase": "postUpgrade",
			"roles": []string{"control-plane"}, "script": "refuses.sh",
		}}
	})
	b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
	w := b.startWriter(t, "etcdback")
	r := b.runWithin(t, 18*time.Minute, nil, "upgrade", b.name, "--to", "v1.37.1", "--yes")
	if r.code != 1 || !strings.Contains(r.stderr, "refuses") || !strings.Contains(r.stderr, "Rollback: slipway rollback") {
		t.Fatalf("with a hook that refuses it ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	b.requireReachableAPI(t)
	b.hasEtcd(t, "3.7.0", 3)
	a := startAsker("http://" + b.addresses[b.controlPlanes[2]] + ":30081/")
	b.takesBack(t, "the last hook")
	asked := a.endAsker(t)
	n, gap := w.stopWriter(t)
	t.Logf("figure: there and back: %d writes acknowledged and none lost, %.1f s without one; %d requests to a "+
		"workload on the way back, none failed",
		n, gap.Seconds(), asked)
	b.hasEtcd(t, "3.6.8", 3)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.deleteCluster(t)
}

// hasEtcd requires that all etcd members have a version, and are healthy.
func (b *balanced) hasEtcd(t *testing.T, version string, members int) {
	t.Helper()
	type report struct {
		Verdict string
		Etcd    struct {
			Members []struct{ Name, Version string }
		}
	}
	r := decodeJSON[report](t, b.mustExit(t, 0, "etcd", "health", b.name, "-o", "json").stdout)
	if r.Verdict != "healthy" || len(r.Etcd.Members) != members {
		t.Errorf("etcd is %+v", r)
	}
	for _, m := range r.Etcd.Members {
		if m.Version != version {
			t.Errorf("%s is of etcd %s, want %s", m.Name, m.Version, version)
		}
	}
}
