//go:build e2e && long

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shell is an image that is on every node, and has a shell.
const shell = "ghcr.io/flannel-io/flannel:v0.28.4"

// chartFiles are a chart with a kind, an object of it, hooks, and what a value says.
// Of the hooks one fails until its node permits it.
func chartFiles() map[string]string {
	return map[string]string{
		"web/Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"web/values.yaml": "replicas: 1\n",
		"web/crds/thing.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`,
		"web/templates/web.yaml": `apiVersion: example.com/v1
kind: Thing
metadata: {name: one}
spec: {replicas: {{ .Values.replicas }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
spec:
  replicas: {{ required "say how many" .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "slipway.dev/echo:1", imagePullPolicy: Never}]}
`,
		"web/templates/migrate.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: "pre-install,pre-upgrade"}}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: m, image: "` + shell +
			`", imagePullPolicy: Never, command: [sh, -c, "exit 0"]}]}}
`,
		"web/templates/farewell.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: farewell, annotations: {helm.sh/hook: pre-delete}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: m, image: "` + shell +
			`", imagePullPolicy: Never, command: [sh, -c, "test -e /permit/go"], volumeMounts: [{name: permit, mountPath: /permit}]}]
      volumes: [{name: permit, hostPath: {path: /var/tmp}}]
`,
		"shop/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prices}\ndata: {apple: \"1\"}\n",
		"shop/b.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec: {clusterIP: None, ports: [{port: 80}]}\n",
		"claim.yaml": `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  restartPolicy: Never
  containers:
  - {name: w, image: "` + shell +
			`", imagePullPolicy: Never, command: [sh, -c, "echo written > /data/word"], volumeMounts: [{name: d, mountPath: /data}]}
  volumes: [{name: d, persistentVolumeClaim: {claimName: kept}}]
`,
	}
}

// TestLongAddons makes a cluster with add-ons of all sources: a claim is bound and
// written to, nodes' use is measured, what is changed by hand is put right, and
// what is dropped goes.
func TestLongAddons(t *testing.T) {
	u := newUser(t)
	const name = "e2e-addons"
	file := u.createMachines(t, name, 2)
	for path, text := range chartFiles() {
		path = filepath.Join(u.home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type addon = map[string]any
	metrics, local := addon{"name": "metrics-server"}, addon{"name": "local-path"}
	state := addon{"name": "kube-state-metrics"}
	web := func(replicas any) addon {
		return addon{
			"name": "web", "namespace": "web", "chart": addon{"path": "web"},
			"values": addon{"replicas": replicas}, "kubernetes": []string{"1.35", "1.36", "1.37"},
		}
	}
	shop := addon{"name": "shop", "namespace": "shop", "manifests": []string{"shop"}}
	with := func(list ...any) { editSpec(t, file, func(spec map[string]any) { spec["addons"] = list }) }

	with(metrics, local, web(nil), shop)
	if r := u.mustExit(t, 2, "create", "cluster", "-f", file, "--yes"); !strings.Contains(r.stderr, "web/templates/web.yaml") ||
		!strings.Contains(r.stderr, "addon-render") {
		t.Fatalf("a chart that cannot be rendered: %s", textTail(r.stderr))
	}
	with(metrics, local, state, web(2), shop)
	r := u.createCluster(t, file)
	t.Logf("figure: created with five add-ons in %.0f s", r.took.Seconds())
	u.waitForEmptyPlan(t, file)
	u.waitForMetrics(t, name)
	u.waitForStateMetrics(t, name)
	volumes := u.createClaim(t, name)

	u.mustKubectl(t, name, "-n", "web", "scale", "deployment/web", "--replicas=0")
	u.mustKubectl(t, name, "-n", "shop", "delete", "configmap/prices")
	plan := u.mustExit(t, 4, "plan", "-f", file, "--exit-code").stdout
	for _, says := range []string{"Deployment web/web", "-  replicas: 0", "ConfigMap shop/prices"} {
		if !strings.Contains(plan, says) {
			t.Errorf("the plan does not name %q:\n%s", says, textTail(plan))
		}
	}
	u.mustExit(t, 0, "apply", "-f", file, "--yes")
	u.requireEmptyPlan(t, file)
	if got := u.mustKubectl(t, name, "-n", "web", "get", "deployment/web", "-o", "jsonpath={.status.readyReplicas}"); got != "2" {
		t.Errorf("the web has %q replicas, want 2", got)
	}

	with(metrics, local, web(1))
	u.mustExit(t, 0, "apply", "-f", file, "--yes")
	u.requireEmptyPlan(t, file)
	if got := u.mustKubectl(t, name, "get", "deployments,services,serviceaccounts,clusterroles,clusterrolebindings", "-A",
		"-l", "app.kubernetes.io/name=kube-state-metrics", "-o", "name"); got != "" {
		t.Errorf("of kube-state-metrics there is still %s", got)
	}
	if got := u.mustKubectl(t, name, "get", "configmaps,services", "-n", "shop", "-l", "slipway.dev/addon",
		"-o", "name"); strings.TrimSpace(got) != "" {
		t.Errorf("of the shop there is still %s", got)
	}
	if got := u.mustKubectl(t, name, "-n", "default", "get", "things.example.com/one", "--ignore-not-found", "-o", "name") +
		u.mustKubectl(t, name, "-n", "web", "get", "things.example.com/one", "-o", "jsonpath={.spec.replicas}"); got != "1" {
		t.Errorf("the thing is %q", got)
	}
	with(metrics, local)
	if r := u.mustExit(t, 2, "apply", "-f", file, "--yes"); !strings.Contains(r.stderr+r.stdout,
		"CustomResourceDefinition things.example.com") {
		t.Errorf("a kind goes with leave alone: %s", textTail(r.stdout+r.stderr))
	}
	if r := u.mustExit(t, 1, "apply", "-f", file, "--yes", "--allow-removal"); !strings.Contains(r.stderr+r.stdout, "addon-hook-failed") {
		t.Errorf("a hook around the deletion fails: %s", textTail(r.stdout+r.stderr))
	}
	if got := u.mustKubectl(t, name, "-n", "web", "get", "deployment/web", "-o", "jsonpath={.status.readyReplicas}"); got != "1" {
		t.Errorf("behind a hook that has failed the web has %q replicas, want 1", got)
	}
	u.mustExec(t, name+"-2", "touch", "/var/tmp/go")
	u.mustExit(t, 0, "resume", name, "--yes")
	u.requireEmptyPlan(t, file)
	if got := u.mustKubectl(t, name, "get", "jobs", "-n", "web", "-o", "name") +
		u.mustKubectl(t, name, "get", "secrets", "-n", "kube-system", "-l", "slipway.dev/addon-inventory", "-o", "name"); got != "" {
		t.Errorf("of hooks there is still %s", got)
	}
	if got := u.mustKubectl(t, name, "get", "crd", "-o", "name"); strings.Contains(got, "things") {
		t.Errorf("kinds: %s", got)
	}
	u.deleteClaim(t, name, volumes)
}

// waitForMetrics waits until the use of both nodes is known.
func (u *user) waitForMetrics(t *testing.T, cluster string) {
	t.Helper()
	begin := time.Now()
	eventually(t, 4*time.Minute, "nodes' use", func() error {
		r := u.runSlipway(t, "kubectl", cluster, "--", "top", "nodes", "--no-headers")
		if r.code != 0 || strings.Count(r.stdout, "\n") != 2 || strings.Contains(r.stdout, "unknown") {
			return errors.New(textTail(r.stdout + r.stderr))
		}
		return nil
	})
	args := u.mustKubectl(t, cluster, "-n", "kube-system", "get", "deployment/metrics-server", "-o",
		"jsonpath={.spec.template.spec.containers[0].args}")
	if strings.Contains(args, "insecure") || !strings.Contains(args, "--kubelet-certificate-authority=") {
		t.Errorf("metrics-server does not verify kubelets: %s", args)
	}
	api := u.mustKubectl(t, cluster, "get", "apiservice/v1beta1.metrics.k8s.io",
		"-o", "jsonpath={.spec.insecureSkipTLSVerify} {.spec.caBundle}")
	if skips, bundle, _ := strings.Cut(api, " "); skips == "true" || bundle == "" {
		t.Errorf("the API server does not verify metrics-server: %s", api)
	}
	t.Logf("figure: kubectl top answers %.0f s after creation", time.Since(begin).Seconds())
}

// waitForStateMetrics waits until kube-state-metrics reports the condition of both nodes,
// and requires that it can read every kind, and no Secrets.
func (u *user) waitForStateMetrics(t *testing.T, cluster string) {
	t.Helper()
	const ready = `kube_node_status_condition{node="NODE",condition="Ready",status="true"} 1`
	get := func(port string) string {
		r := u.runSlipway(t, "kubectl", cluster, "--", "get", "--raw",
			"/api/v1/namespaces/kube-system/services/kube-state-metrics:"+port+"/proxy/metrics")
		return r.stdout + r.stderr
	}
	eventually(t, 2*time.Minute, "the state of nodes", func() error {
		metrics := get("http-metrics")
		for _, node := range []string{cluster + "-1", cluster + "-2"} {
			if !strings.Contains(metrics, strings.Replace(ready, "NODE", node, 1)) {
				return errors.New(node + " is not ready in: " + textTail(metrics))
			}
		}
		if strings.Contains(metrics, "\nkube_secret_") || strings.Contains(metrics, "\nkube_configmap_") {
			t.Error("kube-state-metrics can read Secrets or ConfigMaps")
		}
		return nil
	})
	results := map[string]string{}
	for _, m := range listResult.FindAllStringSubmatch(get("telemetry"), -1) {
		results[m[1]] += m[2]
	}
	for kind, result := range results {
		if !strings.Contains(result, "success") {
			t.Errorf("kube-state-metrics cannot read %s: %s", kind, result)
		}
	}
	if len(results) < 20 {
		t.Errorf("kube-state-metrics reads only %v", results)
	}
}

// listResult matches how often kube-state-metrics has listed or watched a kind, with which
// result.
var listResult = regexp.MustCompile(`(?m)^kube_state_metrics_(?:list|watch)_total\{resource="([^"]+)",result="(\w+)"\}`)

const volumesDir = "/opt/local-path-provisioner"

// createClaim makes a claim, and a pod that writes to it, and answers on which machine
// the volume is.
func (u *user) createClaim(t *testing.T, cluster string) string {
	t.Helper()
	u.mustKubectl(t, cluster, "apply", "-f", filepath.Join(u.home, "claim.yaml"))
	eventually(t, 3*time.Minute, "the pod to have written", func() error {
		if got := u.mustKubectl(t, cluster, "get", "pod/writer", "-o", "jsonpath={.status.phase}"); got != "Succeeded" {
			return errors.New(got + " " + textTail(u.mustKubectl(t, cluster, "get", "events", "-A", "--sort-by=.lastTimestamp")))
		}
		return nil
	})
	node := u.mustKubectl(t, cluster, "get", "pod/writer", "-o", "jsonpath={.spec.nodeName}")
	if got := u.mustExec(t, node, "sh", "-c", "cat "+volumesDir+"/*/word"); got != "written\n" {
		t.Errorf("the volume on %s has %q", node, got)
	}
	return node
}

// deleteClaim deletes the claim: its directory goes.
func (u *user) deleteClaim(t *testing.T, cluster, machine string) {
	t.Helper()
	u.mustKubectl(t, cluster, "delete", "-f", filepath.Join(u.home, "claim.yaml"))
	eventually(t, 2*time.Minute, "the volume's directory to be gone", func() error {
		if got := u.mustExec(t, machine, "sh", "-c", "ls "+volumesDir); strings.TrimSpace(got) != "" {
			return errors.New(got)
		}
		return nil
	})
}
