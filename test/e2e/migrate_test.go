//go:build e2e && long

package e2e

import (
	"strings"
	"testing"
)

// TestLongMigrate changes the container runtime of a running cluster to Docker, and back
// to containerd, under a client that writes. No acknowledged write is lost, the final plan
// is empty, and no file of Docker is left.
func TestLongMigrate(t *testing.T) {
	b := newBalanced(t, "e2e-migrate", 1, 1)
	b.bundledFor(t, "docker", testedVersion())
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))

	for _, to := range []string{"docker", "containerd"} {
		editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "containerRuntime")["type"] = to })
		w := b.startWriter(t, "to-"+to)
		r := b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
		b.waitForRecovery(t)
		n, gap := w.stopWriter(t)
		t.Logf("figure: to %s in %.0f s: %d writes acknowledged and none lost, %.1f s without one, which is what the only control plane takes",
			to, r.took.Seconds(), n, gap.Seconds())
		b.runBy(t, b.name, to, len(b.nodesOf()))
		b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
		b.logsOf(t, b.name)
		b.appliesNothing(t, b.name, b.file, b.nodesOf())
	}
	for _, m := range b.nodesOf() {
		const look = `find /etc /usr/local /var/lib /run -xdev -iname '*docker*' ! -path '/var/lib/slipway/*' ! -path ` +
			`'/var/lib/containerd/*'; systemctl list-unit-files --no-legend '*docker*'; true`
		if left := strings.TrimSpace(b.mustExec(t, m, "sh", "-c", look)); left != "" {
			t.Errorf("on %s there is left of Docker:\n%s", m, left)
		}
	}
	b.deleteCluster(t)
}
