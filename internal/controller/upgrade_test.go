package controller

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module/etcdbackup"
)

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
	w.locked(func() { // an upgrade takes a backup first
		h := w.Hosts["cp1"]
		h.Etcdctl, h.Snapshot = runEtcdctl, lifecycletest.NewEtcdSnapshot(t, 20)
		for _, key := range append(etcdbackup.AuthorityKeys(), etcdbackup.EtcdKeys()...) {
			if h.Files[key] == "" {
				h.Files[key] = "key " + key
			}
		}
	})
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
