//go:build e2e && long

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLongRescue tries backups of a cluster of three control planes, loses two of
// them with their machines, makes the third one work again, and has two other
// machines in the places of the lost ones. Then it loses two again, and of the third
// one the log is damaged: what its database has comes back.
func TestLongRescue(t *testing.T) {
	b := newBalanced(t, "e2e-rescue", 3, 2)
	returned := b.controlPlanes[0]
	spares := []string{b.spare, returned}
	b.setHosts(t, b.controlPlanes, b.workers[:1])
	b.setEndpoint(t, "haproxy")
	r := b.createCluster(t, b.file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	b.waitForRecovery(t)
	b.mustKubectl(t, b.name, "create", "secret", "generic", "kept", "--from-literal=is=kept")
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"drills", b.runRestoreTests},
		{"two of three are destroyed", b.isRescued},
		{"a lost host comes back", func(t *testing.T) { b.resetsReturned(t, returned) }},
		{"back to three", func(t *testing.T) { b.growsBack(t, spares) }},
		{"two are destroyed, and the log of the third is damaged", b.isRescuedByDatabase},
	} {
		t.Run(step.name, step.do)
		if t.Failed() {
			return
		}
	}
}

// runRestoreTests tests a valid backup, an incomplete one, a changed one, and a backup of
// another cluster.
func (b *balanced) runRestoreTests(t *testing.T) {
	type set struct{ File string }
	type report struct {
		Host   string
		Good   bool
		Checks []struct{ Name, Want, Got string }
	}
	file := decodeJSON[set](t, b.mustExit(t, 0, "etcd", "snapshot", b.name, "-o", "json").stdout).File
	r := b.mustExit(t, 0, "etcd", "drill", b.name, "-o", "json")
	is := decodeJSON[report](t, r.stdout)
	if !is.Good || len(is.Checks) != 4 || !strings.HasSuffix(is.Checks[3].Got, ": read") {
		t.Errorf("the drill says %+v", is)
	}
	t.Logf("figure: a drill in %.1f s", r.took.Seconds())
	if text := b.mustExit(t, 0, "etcd", "drill", b.name, "--from", file).stdout; !strings.Contains(text, "is good") {
		t.Errorf("the drill says:\n%s", text)
	}
	for _, m := range b.controlPlanes {
		if left := b.mustExec(t, m, "sh", "-c",
			"ls -A /var/lib/slipway/drills 2>/dev/null; pgrep -ax etcd | grep name=scratch; true"); left != "" {
			t.Errorf("on %s there is left: %s", m, left)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := append([]byte{}, raw...)
	changed[len(raw)/2] ^= 1
	for name, content := range map[string][]byte{"cut.tar": raw[:len(raw)/2], "changed.tar": changed} {
		bad := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(bad, content, 0o600); err != nil {
			t.Fatal(err)
		}
		refusedBy(t, b.mustExit(t, 2, "etcd", "drill", b.name, "--from", bad), "[backup-damaged]")
	}
	if r := b.mustExit(t, 0, "etcd", "health", b.name); !strings.Contains(r.stdout, "is healthy") {
		t.Errorf("after drills:\n%s", r.stdout)
	}
}

// isRescued destroys two of three control planes, and makes the cluster work on
// the third.
func (b *balanced) isRescued(t *testing.T) {
	left, lost := b.controlPlanes[1], []string{b.controlPlanes[0], b.controlPlanes[2]}
	refusedBy(t, b.mustExit(t, 2, "etcd", "rescue", b.name, "--lost", strings.Join(lost, ","), "--yes"), "[rescue-host-answers]")
	b.mustKubectl(t, b.name, "create", "configmap", "last")
	for _, m := range lost {
		b.mustRun(t, "sandbox", "kill", m)
	}
	refusedBy(t, b.mustExit(t, 2, "etcd", "rescue", b.name, "--lost", lost[0], "--yes"), "[rescue-host-silent]")
	r := b.mustExit(t, 0, "etcd", "rescue", b.name, "--lost", strings.Join(lost, ","), "--yes")
	t.Logf("figure: rescued in %.0f s", r.took.Seconds())
	t.Logf("it says:\n%s", r.stdout)
	b.mustExec(t, left, "sh", "-c", "ls -d /var/lib/etcd/before-*/member")
	if has := b.mustKubectl(t, b.name, "get", "secret/kept", "configmap/last", "-o", "name"); !strings.Contains(has, "secret/kept") ||
		!strings.Contains(has, "configmap/last") {
		t.Errorf("there is %s", has)
	}
	for _, m := range lost {
		b.waitForNotReady(t, b.name, m)
	}
	r = b.mustExit(t, 0, "delete", "nodes", lost[0], lost[1], "--cluster", b.name, "--forget", "--yes")
	t.Logf("figure: lost hosts taken off in %.0f s", r.took.Seconds())
	b.setHosts(t, []string{left}, b.workers)
	b.waitForRecovery(t)
	b.runsNew(t)
}

// resetsReturned starts a lost control plane with its old data. The members and the cluster
// are not affected, and the machine is as before the cluster after a reset.
func (b *balanced) resetsReturned(t *testing.T, m string) {
	host := "root@" + b.addresses[m]
	b.mustRun(t, "sandbox", "start", m)
	eventually(t, 2*time.Minute, "its old etcd runs", func() error {
		if r := b.runSlipway(t, "sandbox", "exec", m, "--", "pgrep", "-x", "etcd"); r.code != 0 {
			return errors.New("etcd does not run yet")
		}
		return nil
	})
	<-time.After(20 * time.Second) // in which it tries to reach the other members
	b.waitForRecovery(t)
	if r := b.mustExit(t, 0, "etcd", "health", b.name); !strings.Contains(r.stdout, "is healthy") {
		t.Errorf("with the old member of %s:\n%s", m, r.stdout)
	}
	refusedBy(t, b.mustExit(t, 2, "add", "nodes", b.name, "--host", host+"=control-plane,name="+m, "--yes"),
		"[host-returned]", "slipway delete node --host")
	b.mustExit(t, 0, "delete", "node", "--cluster", b.name, "--host", host, "--yes")
	requireSame(t, m+" before the cluster and after its reset", "touched", b.before[m], b.takeSnapshot(t, m))
	b.runsNew(t)
}

// growsBack adds machines in the places of the lost ones.
func (b *balanced) growsBack(t *testing.T, spares []string) {
	for _, m := range spares {
		b.hosts[m].(map[string]any)["roles"] = []any{"control-plane"}
	}
	b.setHosts(t, append([]string{b.controlPlanes[0]}, spares...), b.workers)
	r := b.mustExit(t, 0, "add", "nodes", "-f", b.file, "--yes")
	t.Logf("figure: back to three in %.0f s", r.took.Seconds())
	b.waitForRecovery(t)
	eventually(t, time.Minute, "etcd is well", func() error {
		if r := b.runSlipway(t, "etcd", "health", b.name); r.code != 0 {
			return fmt.Errorf("exit code %d:\n%s", r.code, textTail(r.stdout))
		}
		return nil
	})
	b.runsNew(t)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.waitForEmptyPlan(t, b.file)
	b.mustExit(t, 0, "etcd", "snapshot", b.name)
	b.mustExit(t, 0, "etcd", "drill", b.name)
}

// runsNew wants a Deployment that is made now to run.
func (b *balanced) runsNew(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("new-%d", time.Now().Unix())
	image := b.mustKubectl(t, b.name, "get", "daemonset", "echo", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	b.mustKubectl(t, b.name, "create", "deployment", name, "--image="+image, "--replicas=2")
	b.mustKubectl(t, b.name, "rollout", "status", "deployment/"+name, "--timeout=180s")
	b.mustKubectl(t, b.name, "delete", "deployment", name)
}

// isRescuedByDatabase destroys two of three control planes, and damages the log of the
// third, so that its etcd no longer starts. Its database has all writes that were
// acknowledged before.
func (b *balanced) isRescuedByDatabase(t *testing.T) {
	left, lost := b.controlPlanes[1], []string{b.controlPlanes[0], b.controlPlanes[2]}
	for i := range 20 {
		b.mustKubectl(t, b.name, "create", "configmap", fmt.Sprintf("before-%d", i), "--from-literal=is=there")
	}
	had := b.listObjects(t)
	for _, m := range lost {
		b.mustRun(t, "sandbox", "kill", m)
	}
	b.damagesLog(t, left)
	r := b.mustExit(t, 0, "etcd", "rescue", b.name, "--lost", strings.Join(lost, ","), "--yes")
	t.Logf("figure: rescued by a database alone in %.0f s", r.took.Seconds())
	if !strings.Contains(r.stderr, "The rescue uses its database") || !strings.Contains(r.stderr, ".wal, from byte ") {
		t.Errorf("the plan says:\n%s", r.stderr)
	}
	if !strings.Contains(r.stdout, "on "+left+", with all entries of its database: ") {
		t.Errorf("it says:\n%s", r.stdout)
	}
	is := b.listObjects(t)
	for _, o := range slices.Sorted(maps.Keys(had)) {
		if is[o] != had[o] {
			t.Errorf("%s has the id %q, and had %q", o, is[o], had[o])
		}
	}
	t.Logf("figure: %d objects, and all are there", len(had))
	b.runsNew(t)
}

// damagesLog stops an etcd member, and changes a byte of one of the first entries of its
// log on the disk.
func (b *balanced) damagesLog(t *testing.T, m string) {
	t.Helper()
	b.mustExec(t, m, "sh", "-ec", `
systemctl stop kubelet
for p in $(pgrep -x etcd); do kill "$p"; while kill -0 "$p" 2>/dev/null; do sleep 0.1; done; done
log=$(ls /var/lib/etcd/member/wal/*.wal | head -n 1)
at=$(grep -abo kube-system "$log" | head -n 1 | cut -d : -f 1)
printf X | dd of="$log" bs=1 seek="$at" conv=notrunc status=none
sync
systemctl start kubelet`)
	eventually(t, 3*time.Minute, "etcd does not start with it", func() error {
		r := b.runSlipway(t, "sandbox", "exec", m, "--", "sh", "-c",
			"tail -n 5 /var/log/pods/kube-system_etcd-*/etcd/*.log; cat /var/log/pods/kube-system_etcd-*/etcd/*.log | grep 'crc mismatch'")
		if r.code != 0 {
			return errors.New(textTail(r.stdout + r.stderr))
		}
		return nil
	})
}
