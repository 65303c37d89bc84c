package controller

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module/etcdbackup"
)

// allowBackups gives a control plane an etcd with data, and the keys that a backup set needs.
func (w *world) allowBackups(name string) {
	w.t.Helper()
	w.locked(func() {
		h := w.Hosts[name]
		h.Etcdctl, h.Snapshot = runEtcdctl, lifecycletest.NewEtcdSnapshot(w.t, 20)
		for _, key := range append(etcdbackup.AuthorityKeys(), etcdbackup.EtcdKeys()...) {
			if h.Files[key] == "" {
				h.Files[key] = "key " + key
			}
		}
	})
}

// TestUpgrade_FollowsOtherChanges changes the version and a setting of a cluster at the same time. The setting is
// applied in the current version, and then the version changes.
func TestUpgrade_FollowsOtherChanges(t *testing.T) {
	t.Parallel()
	w := prepareWorld(t, "cp1", "w1")
	w.Version = older
	w.start()
	w.createReady("cp1", "w1")
	if v := w.cluster().Status.Version; v != older {
		t.Fatalf("the cluster has version %s, want %s", v, older)
	}
	w.allowBackups("cp1") // an upgrade takes a backup first
	w.change(func(c *v1alpha1.Cluster) {
		c.Spec.Kubernetes.Version = "v1.37.1"
		c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)}
	})
	w.waitForApplied()
	w.requireStates("create Succeeded", "apply Succeeded", "upgrade Succeeded")
	if v := w.cluster().Status.Version; v != "v1.37.1" {
		t.Errorf("the cluster has version %s after the upgrade", v)
	}
}
