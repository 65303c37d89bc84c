//go:build e2e && long

package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestLongEmptyEtcd starts the machine of the only control plane without the data of etcd,
// as if its disk were not mounted. No new etcd cluster is created, and with the data
// everything is as before.
func TestLongEmptyEtcd(t *testing.T) {
	u := newUser(t)
	const name = "e2e-empty"
	machine := name + "-1"
	file := u.createMachines(t, name, 1)
	u.createCluster(t, file)
	u.mustKubectl(t, name, "create", "configmap", "kept", "--from-literal=is=here")
	// Open files without a name are written until the machine goes down.
	u.mustExec(t, machine, "mv", "/var/lib/etcd/member", "/var/lib/etcd-disk")
	u.mustRun(t, "sandbox", "reboot", machine)
	eventually(t, time.Minute, "the kubelet to be kept from starting", func() error {
		r := u.runSlipway(t, "sandbox", "exec", machine, "--", "journalctl", "-b", "-u", "kubelet", "--no-pager")
		if strings.Count(r.stdout, "status=1/FAILURE") < 3 {
			return errors.New(textTail(r.stdout))
		}
		return nil
	})
	if got := u.mustExec(t, machine, "sh", "-c", "ls /var/lib/etcd; pgrep -x etcd; true"); got != "" {
		t.Errorf("without its data there is %q", got)
	}
	refusedBy(t, u.mustExit(t, 2, "apply", "-f", file, "--yes"), "[etcd-data-lost]", "/var/lib/etcd")

	u.mustExec(t, machine, "mv", "/var/lib/etcd-disk", "/var/lib/etcd/member")
	eventually(t, 3*time.Minute, "what was in etcd", func() error {
		r := u.runSlipway(t, "kubectl", name, "--", "--request-timeout=5s", "get", "configmap", "kept", "-o", "jsonpath={.data.is}")
		if r.stdout != "here" {
			return errors.New(textTail(r.stdout + r.stderr))
		}
		return nil
	})
	u.waitForEmptyPlan(t, file)
}
