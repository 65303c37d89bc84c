//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// ownBefore is a shell script that creates files of another owner on a machine: a line in
// the hosts file, a kernel parameter that Slipway sets differently, with the file that
// sets it at boot, and a file at the path of a file of Slipway.
const ownBefore = `
echo '203.0.113.9 own.example.com' >>/etc/hosts
echo 'vm.max_map_count = 70001' >/etc/sysctl.d/60-own.conf
echo 70001 >/proc/sys/vm/max_map_count
echo 'runtime-endpoint: unix:///run/own.sock' >/etc/crictl.yaml
chmod 640 /etc/crictl.yaml`

// ownTable is a packet filter of another owner.
const ownTable = "table inet own {\n chain input {\n type filter hook input priority 10; policy accept;\n tcp dport 9 drop\n }\n}\n"

// plantBefore gives a machine something to restore. The packet filter comes
// from this host's nft: the machine has none.
func (u *user) plantBefore(t *testing.T, machine string) {
	t.Helper()
	u.mustExec(t, machine, "sh", "-ec", ownBefore)
	nft := exec.CommandContext(t.Context(), "nsenter", "--net", "--target", fmt.Sprint(u.listMachines(t)[machine].PID), "nft", "-f", "-")
	nft.Stdin = strings.NewReader(ownTable)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("giving %s a packet filter: %v\n%s", machine, err, out)
	}
}

// takesOver asserts that the cluster has changed what was planted, or there
// would be nothing to restore, and that it has left the rest alone.
func (u *user) takesOver(t *testing.T, machine string) {
	t.Helper()
	u.mustExec(t, machine, "sh", "-ec", `
test "$(cat /proc/sys/vm/max_map_count)" = 262144
grep -q containerd.sock /etc/crictl.yaml
grep -q '^203.0.113.9 own.example.com$' /etc/hosts
grep -q 70001 /etc/sysctl.d/60-own.conf
/usr/local/lib/slipway/nettools/host/nft list table inet own | grep -q 'dport 9 drop'`)
}

// plantMeanwhile creates files of another owner in directories with many files of Slipway,
// among them a running unit, and edits a file of Slipway.
func (u *user) plantMeanwhile(t *testing.T, machine string) {
	t.Helper()
	u.mustExec(t, machine, "sh", "-ec", `
echo mine >/etc/kubernetes/own.conf
echo mine >/opt/cni/bin/own
printf '[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/own.service
systemctl enable -q --now own
systemctl show -p InvocationID own >/run/own
echo '# mine' >>/etc/crictl.yaml`)
}

// keepsMeanwhile requires that all of these files outlive the cluster, and that there are
// no others. said is the output of the delete.
func (u *user) keepsMeanwhile(t *testing.T, machine, said string) {
	t.Helper()
	for _, what := range []string{
		"/etc/kubernetes: left on the host: not empty",
		"/opt/cni/bin: left on the host: not empty", "/etc/crictl.yaml: left on the host: changed by other software since then",
	} {
		if !strings.Contains(said, what) {
			t.Errorf("the delete does not tell %q:\n%s", what, textTail(said))
		}
	}
	u.mustExec(t, machine, "sh", "-exc", `
grep -qx mine /etc/kubernetes/own.conf
grep -qx mine /opt/cni/bin/own
systemctl is-active own
systemctl is-enabled own
systemctl show -p InvocationID own | cmp - /run/own
grep -q containerd.sock /etc/crictl.yaml
grep -qx '# mine' /etc/crictl.yaml
systemctl disable -q --now own
rm /etc/kubernetes/own.conf /opt/cni/bin/own /etc/systemd/system/own.service /run/own
systemctl daemon-reload
mv /etc/crictl.yaml.slipway-orig /etc/crictl.yaml
rmdir /opt/cni/bin /opt/cni /etc/kubernetes`)
}
