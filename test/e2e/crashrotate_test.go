//go:build e2e && long

package e2e

import (
	"testing"
	"time"
)

// TestLongCrashRotate kills the manager at the end of every step of each rotation that
// certs rotate-ca offers. All rotations complete, and each host trusts only the new CA or
// key.
func TestLongCrashRotate(t *testing.T) {
	t.Setenv("KUBERNETES", "v1.37.1")
	b := newBalanced(t, "e2e-recrash", 1, 1)
	b.prepareBundles(t, "v1.37.1")
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	begin, all, killed := time.Now(), 0, 0
	for _, x := range []struct{ which, file string }{
		{"service-account", "/etc/kubernetes/pki/sa.pub"},
		{"front-proxy", "/etc/kubernetes/pki/front-proxy-ca.crt"},
		{"etcd", "/etc/kubernetes/pki/etcd/ca.crt"},
		{"cluster", "/etc/kubernetes/pki/ca.crt"},
	} {
		before := b.mustExec(t, b.controlPlanes[0], "cat", x.file)
		moments, kills, missing := b.killedThroughout(t, "certs", "rotate-ca", b.name, "--which", x.which, "--yes")
		all, killed = all+moments, killed+kills
		// A kubelet that is let in by the time the manager dies is not asked again.
		for _, name := range missing {
			t.Logf("never came: %s", name)
		}
		b.trustsOne(t, x.file, before)
		b.checkCertificates(t, 0)
		b.requireEmptyPlan(t, b.file)
	}
	t.Logf("figure: four exchanges with %d moments and %d kills in %.0f s", all, killed, time.Since(begin).Seconds())
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.deleteCluster(t)
}
