package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/node/op"
)

// withoutWaits are the tasks that may restart a component without these waits at their end.
var withoutWaits = map[string]string{
	"kubeadm.init.control-plane": "kubeadm.init.wait follows and has the waits",
	"certs.control-plane":        "a host without a renewed certificate restarts nothing; a host with one waits",
}

// TestPipelines_WaitForRestartedComponents: the controller manager and the scheduler exit
// when they lose the API server of their host. A task that restarts one of the three ends
// when both are healthy, so that the next control plane is not restarted too early.
func TestPipelines_WaitForRestartedComponents(t *testing.T) {
	const manifests = "/etc/kubernetes/manifests/"
	managers := []string{manifests + "kube-controller-manager.yaml", manifests + "kube-scheduler.yaml"}
	restarted := append(slices.Clone(managers), module.APIServerManifest)
	c := plainCluster()
	threeControlPlanes(c)
	env := newEnv(t, c)
	seen := 0
	for _, p := range allPipelines(env) {
		on := blankHosts(env)
		for _, h := range on {
			h.Facts.Present = append(h.Facts.Present, module.ClientCert)
		}
		for at, list := range operationLists(t, p, on) {
			missing := []string(nil)
			for _, o := range list {
				switch o := o.(type) {
				case op.StaticPodRestart:
					if slices.Contains(restarted, o.Manifest) {
						missing = slices.Clone(managers)
						seen++
					}
				case op.Wait:
					missing = slices.DeleteFunc(missing, func(m string) bool { return m == o.Manifest })
				}
			}
			task, _, _ := strings.Cut(at, " on ")
			if len(missing) > 0 && withoutWaits[task] == "" {
				t.Errorf("%s: %s restarts a component and does not wait for %s", p.Kind, at, strings.Join(missing, ", "))
			}
		}
	}
	if seen == 0 {
		t.Error("no pipeline restarts a component")
	}
}

// TestPipelines_RevokeTokensOfEveryTask requires that an operation that fails knows each task
// that creates a join token: it deletes tokens only after such a task.
func TestPipelines_RevokeTokensOfEveryTask(t *testing.T) {
	c := plainCluster()
	threeControlPlanes(c)
	seen := map[string]bool{}
	for _, p := range allPipelines(newEnv(t, c)) {
		for _, m := range p.Modules {
			for _, task := range m.Tasks {
				provides := slices.ContainsFunc(task.Provides, func(k engine.KeyRef) bool { return strings.Contains(fmt.Sprint(k), "kubeadm.token") })
				if seen[task.ID] = provides; provides != kubeadm.CreatesToken(task.ID) {
					t.Errorf("%s: %s provides a token: %t, but CreatesToken reports otherwise", p.Kind, task.ID, provides)
				}
			}
		}
	}
	for _, task := range []string{"join.token", "readmit.token"} {
		if !seen[task] {
			t.Errorf("no pipeline has %s", task)
		}
	}
}
