//go:build e2e && long

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Files of the unit that counts the boots of a machine.
const (
	bootUnit  = "/etc/systemd/system/count-boots.service"
	bootCount = "/root/boots"
)

// countBoots makes each machine of the cluster count its boots from now on.
func (b *balanced) countBoots(t *testing.T) {
	t.Helper()
	const unit = `[Unit]\nDescription=Count boots\n[Service]\nType=oneshot\nExecStart=/bin/sh -c "echo boot >> ` + bootCount +
		`"\n[Install]\nWantedBy=multi-user.target\n`
	for _, m := range b.nodesOf() {
		b.mustExec(t, m, "sh", "-c", "printf '"+unit+"' > "+bootUnit+" && systemctl daemon-reload && systemctl enable -q count-boots.service")
	}
}

// requireOneBoot requires that each machine has booted once since countBoots and has a
// new boot ID. It removes the files of countBoots.
func (b *balanced) requireOneBoot(t *testing.T, before map[string]string) {
	t.Helper()
	for _, m := range b.nodesOf() {
		if n := strings.Count(b.mustExec(t, m, "sh", "-c", "cat "+bootCount+" || true"), "boot"); n != 1 {
			t.Errorf("%s has rebooted %d times, want 1", m, n)
		}
		if b.bootID(t, m) == before[m] {
			t.Errorf("%s has the boot ID from before", m)
		}
		b.mustExec(t, m, "sh", "-c", "systemctl disable -q count-boots.service && rm -f "+bootUnit+" "+bootCount+" && systemctl daemon-reload")
	}
}

// bootID returns the ID of the current boot of a machine.
func (b *balanced) bootID(t *testing.T, machine string) string {
	t.Helper()
	return strings.TrimSpace(b.mustExec(t, machine, "cat", "/proc/sys/kernel/random/boot_id"))
}

// TestLongRebootNodes reboots all nodes of a cluster, with a client that writes through the
// endpoint of a worker and one that sends requests to a workload. Both run on the first
// worker or use it, so that worker is rebooted last and separately. The manager is killed
// when the second control plane has rebooted.
func TestLongRebootNodes(t *testing.T) {
	b := newBalanced(t, "e2e-reboot", 3, 2)
	b.setEndpoint(t, "haproxy")
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	b.startWorkload(t, webManifest)
	boots := map[string]string{}
	for _, m := range b.nodesOf() {
		boots[m] = b.bootID(t, m)
	}
	b.countBoots(t)

	w := b.startWriter(t, "rebooting")
	a := startAsker("http://" + b.addresses[b.workers[0]] + ":30081/")
	begin := time.Now()
	first := append(slices.Clone(b.controlPlanes), b.workers[1])
	o := b.startOperation(t, append([]string{"reboot", "nodes", "--cluster", b.name, "--yes"}, first...)...)
	if o.readUntil(newMoments(momentAfter("reboot.host@"+b.controlPlanes[1]))) == nil || !o.killManager() {
		t.Fatalf("the operation ended before the second control plane had rebooted:\n%s", textTail(o.stderr.String()))
	}
	if r := b.runWithin(t, 15*time.Minute, nil, "resume", b.name, "--yes"); r.code != 0 {
		t.Fatalf("the resume ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	took := time.Since(begin)
	asked := a.endAsker(t)
	n, gap := w.stopWriter(t)
	t.Logf("figure: four machines in %.0f s: %d writes acknowledged and none lost, %.1f s without one; %d requests to a workload, none failed",
		took.Seconds(), n, gap.Seconds(), asked)
	if gap > longestGap {
		t.Errorf("nothing was written for %s", gap)
	}

	r := b.mustExit(t, 0, "reboot", "node", b.workers[0], "--cluster", b.name, "--yes")
	t.Logf("figure: one worker in %.0f s", r.took.Seconds())
	b.waitForRecovery(t)
	b.requireOneBoot(t, boots)
	if closed := b.mustKubectl(t, b.name, "get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}"); closed != "" {
		t.Errorf("cordoned are %s", closed)
	}
	b.requireReachableAPI(t)
	b.requireEmptyPlan(t, b.file)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.deleteCluster(t)
}
