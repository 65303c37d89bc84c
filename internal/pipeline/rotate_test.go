package pipeline

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/testutil/golden"
)

// rotations rotates everything, and is at its beginning.
func rotations(env module.Env) certs.Rotations {
	return certs.Rotations{
		Accounts:   certs.AccountRotation{From: "old"},
		FrontProxy: certs.AuthorityRotation{Authority: certs.FrontProxyAuthority(env), From: "old"},
		Etcd:       certs.AuthorityRotation{Authority: certs.EtcdAuthority(env), From: "old"},
	}
}

// TestRotate compares the operations of rotations.
func TestRotate(t *testing.T) {
	spelled := func(t *testing.T, change func(*v1alpha1.Cluster)) string {
		t.Helper()
		c := base()
		change(c)
		env := environment(t, c)
		return spell(t, RotateCA(env, parts(), rotations(env)), hosts(env))
	}
	stacked := spelled(t, threeControlPlanes)
	golden.Check(t, "testdata/rotate.golden", stacked)
	managed := spelled(t, func(c *v1alpha1.Cluster) { threeControlPlanes(c); managedEtcd(c) })
	checkAgainst(t, "testdata/rotate-managed.golden", "rotate", stacked, managed)
	t.Run("the cluster's", func(t *testing.T) {
		c := base()
		threeControlPlanes(c)
		env := environment(t, c)
		golden.Check(t, "testdata/rotate-cluster.golden", spell(t, RotateCA(env, parts(), clusterRotation(env)), hosts(env)))
	})
}
