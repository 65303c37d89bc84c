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

// TestRotateCA_MatchesGoldens compares the operations of rotations.
func TestRotateCA_MatchesGoldens(t *testing.T) {
	spelled := func(t *testing.T, change func(*v1alpha1.Cluster)) string {
		t.Helper()
		c := plainCluster()
		change(c)
		env := newEnv(t, c)
		return printPipeline(t, RotateCA(env, testParts(), rotations(env)), blankHosts(env))
	}
	stacked := spelled(t, threeControlPlanes)
	golden.Check(t, "testdata/rotate.golden", stacked)
	managed := spelled(t, func(c *v1alpha1.Cluster) { threeControlPlanes(c); managedEtcd(c) })
	checkAgainst(t, "testdata/rotate-managed.golden", "rotate", stacked, managed)
	t.Run("the cluster's", func(t *testing.T) {
		c := plainCluster()
		threeControlPlanes(c)
		env := newEnv(t, c)
		golden.Check(t, "testdata/rotate-cluster.golden", printPipeline(t, RotateCA(env, testParts(), clusterRotation(env)), blankHosts(env)))
	})
}
