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
	for _, v := range []struct {
		name   string
		change func(*v1alpha1.Cluster)
	}{
		{"rotate", threeControlPlanes},
		{"rotate-managed", func(c *v1alpha1.Cluster) { threeControlPlanes(c); managedEtcd(c) }},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := base()
			v.change(c)
			env := environment(t, c)
			golden.Check(t, "testdata/"+v.name+".golden", spell(t, RotateCA(env, parts(), rotations(env)), hosts(env)))
		})
	}
	t.Run("the cluster's", func(t *testing.T) {
		c := base()
		threeControlPlanes(c)
		env := environment(t, c)
		golden.Check(t, "testdata/rotate-cluster.golden", spell(t, RotateCA(env, parts(), clusterRotation(env)), hosts(env)))
	})
}
