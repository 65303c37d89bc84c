//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A machine is an entry in the output of `slipway sandbox list -o json`.
type machine struct {
	Sandbox, Machine, Address, PrivateKeyFile string

	Running, Supervised, Cut bool
	PID                      int
}

// listMachines returns the user's machines by name.
func (u *user) listMachines(t *testing.T) map[string]machine {
	t.Helper()
	all := map[string]machine{}
	for _, m := range decodeJSON[[]machine](t, u.mustRun(t, "sandbox", "list", "-o", "json")) {
		all[m.Machine] = m
	}
	return all
}

// TestSandboxMachines holds what a sandbox promises of its machines.
func TestSandboxMachines(t *testing.T) {
	u := newUser(t)
	u.createMachines(t, "sbm", 2)
	all := u.listMachines(t)
	one, two := all["sbm-1"], all["sbm-2"]
	sh := func(t *testing.T, name, script string) string {
		t.Helper()
		return strings.TrimSpace(u.mustExec(t, name, "bash", "-c", script))
	}
	reaches := func(from, to machine) bool {
		return u.runSlipway(t, "sandbox", "exec", from.Machine, "--", "timeout", "2", "bash", "-c", "</dev/tcp/"+to.Address+"/22").code == 0
	}

	t.Run("systemd and names", func(t *testing.T) {
		if got := sh(t, "sbm-1", "systemctl is-system-running --wait"); got != "running" {
			t.Errorf("systemd is %s:\n%s", got, sh(t, "sbm-1", "systemctl --failed --no-pager"))
		}
		if got := strings.TrimSpace(u.mustRun(t, "sandbox", "ssh", "sbm-2", "--", "hostname")); got != "sbm-2" {
			t.Errorf("ssh reaches %q", got)
		}
		if a, b := sh(t, "sbm-1", "cat /etc/machine-id"), sh(t, "sbm-2", "cat /etc/machine-id"); a == b || len(a) != 32 {
			t.Errorf("machine ids are %q and %q", a, b)
		}
	})
	t.Run("exit status and input", func(t *testing.T) {
		u.mustExit(t, 7, "sandbox", "exec", "sbm-1", "--", "sh", "-c", "exit 7")
		u.mustExit(t, 128+9, "sandbox", "exec", "sbm-1", "--", "sh", "-c", "kill -9 $$")
		if r := u.mustExit(t, 127, "sandbox", "exec", "sbm-1", "--",
			"no-such-program"); r.stderr != "starting no-such-program: no such file or directory\n" {
			t.Errorf("a program that is not there: %q", r.stderr)
		}
		u.mustExit(t, 126, "sandbox", "exec", "sbm-1", "--", "/etc/passwd")
		r := u.runWithInput(t, strings.NewReader("text"), "sandbox", "exec", "sbm-1", "--", "cat")
		if r.stdout != "text" || r.code != 0 {
			t.Errorf("cat answers %q, %d", r.stdout, r.code)
		}
	})
	t.Run("nothing is installed", func(t *testing.T) {
		for _, name := range []string{"containerd", "runc", "kubelet", "iptables", "nft", "conntrack", "socat"} {
			if r := u.runSlipway(t, "sandbox", "exec", "sbm-1", "--", "sh", "-c", "command -v "+name); r.code == 0 {
				t.Errorf("a fresh machine has %s", r.stdout)
			}
		}
	})
	t.Run("the clock and the keyboard are the host's", func(t *testing.T) {
		const sysTime = 1 << 25 // CAP_SYS_TIME
		for _, argv := range [][]string{{"exec", "sbm-1"}, {"ssh", "sbm-1"}} {
			out := u.mustRun(t,
				append(append([]string{"sandbox"}, argv...), "--", "grep", "-h", "Cap[PEB]", "/proc/1/status", "/proc/self/status")...)
			for line := range strings.Lines(out) {
				f := strings.Fields(line)
				if caps, err := strconv.ParseUint(f[1], 16, 64); err != nil || caps&sysTime != 0 {
					// That is proof enough: the clock is never set to try.
					t.Fatalf("%v: %s has CAP_SYS_TIME", argv, line)
				}
			}
		}
		sh(t, "sbm-1", "! test -e /proc/sysrq-trigger || ! { echo h >/proc/sysrq-trigger; } 2>/dev/null || test -c /proc/sysrq-trigger")
	})
	t.Run("a kubelet's needs", func(t *testing.T) {
		sh(t, "sbm-1", `set -e
			for m in overlay br_netfilter nf_conntrack; do modprobe $m; done
			echo 1 >/proc/sys/net/ipv4/ip_forward
			echo 262143 >/proc/sys/vm/max_map_count; test $(cat /proc/sys/vm/max_map_count) = 262143
			for c in /sys/fs/cgroup/*/; do mkdir $c/try; rmdir $c/try; done
			d=/var/lib/containerd; mkdir -p $d/l $d/u $d/w $d/m
			mount -t overlay o -o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w $d/m; touch $d/m/x; umount $d/m; rm -r $d
			unshare -m -n -p -f --mount-proc sh -c 'mount --make-rshared / && mount -t tmpfs t /mnt && ip link add type veth'
			ip link add vx0 type vxlan id 1 dstport 8472 dev eth0; ip link del vx0; test -c /dev/kmsg`)
		if got := sh(t, "sbm-2", "cat /proc/sys/net/ipv4/ip_forward /proc/sys/vm/max_map_count"); strings.HasSuffix(got, "262143") ||
			got[0] != '0' {
			t.Errorf("settings of one machine are seen in another: %q", got)
		}
	})
	t.Run("network", func(t *testing.T) {
		if !reaches(one, two) || !reaches(two, one) {
			t.Error("machines do not reach each other")
		}
		if r := u.runSlipway(t, "sandbox", "exec", "sbm-1", "--", "timeout", "5", "bash", "-c", "</dev/tcp/192.0.2.77/80"); r.code == 0 ||
			r.code == 124 {
			t.Errorf("a machine that reaches nothing outside hears so at once: %d %s", r.code, r.stderr)
		}
		u.mustRun(t, "sandbox", "cut", "sbm-1")
		if reaches(two, one) || !u.listMachines(t)["sbm-1"].Cut {
			t.Error("a cut machine is reached")
		}
		u.mustRun(t, "sandbox", "heal", "sbm-1")
		if !reaches(two, one) {
			t.Error("a healed machine is not reached")
		}
	})
	t.Run("reboot", func(t *testing.T) {
		const bootID = "cat /proc/sys/kernel/random/boot_id"
		before := sh(t, "sbm-1", bootID)
		u.mustRun(t, "sandbox", "reboot", "sbm-1")
		if after := sh(t, "sbm-1", bootID); after == before {
			t.Error("the boot id is the old one")
		}
		// From within, as a person or an installer would.
		before = sh(t, "sbm-1", bootID)
		u.runSlipway(t, "sandbox", "ssh", "sbm-1", "--", "systemctl", "reboot")
		eventually(t, time.Minute, "rebooting from within", func() error {
			r := u.runSlipway(t, "sandbox", "ssh", "sbm-1", "--", "cat", "/proc/sys/kernel/random/boot_id")
			if id := strings.TrimSpace(r.stdout); r.code != 0 || id == before {
				return fmt.Errorf("status %d, boot id %q", r.code, id)
			}
			return nil
		})
	})
	t.Run("kill is silent", func(t *testing.T) {
		sh(t, "sbm-1", "echo kept >/root/kept; sync")
		// A connection of the other machine, held by a separate unit.
		sh(t, "sbm-2", "systemd-run -q --unit=peer bash -c 'exec 3<>/dev/tcp/"+one.Address+"/22; sleep 600'")
		established := func() bool { return sh(t, "sbm-2", "ss -Htn state established dst "+one.Address) != "" }
		eventually(t, 10*time.Second, "connecting", func() error {
			if !established() {
				return fmt.Errorf("no connection")
			}
			return nil
		})
		u.mustRun(t, "sandbox", "kill", "sbm-1")
		if u.listMachines(t)["sbm-1"].Running {
			t.Error("it runs")
		}
		if !established() {
			t.Error("its peer heard of the end")
		}
		u.mustRun(t, "sandbox", "start", "sbm-1")
		if got := sh(t, "sbm-1", "cat /root/kept"); got != "kept" {
			t.Errorf("the file holds %q", got)
		}
	})
	t.Run("stop and start", func(t *testing.T) {
		u.mustRun(t, "sandbox", "stop", "sbm")
		for name, m := range u.listMachines(t) {
			if m.Running || m.Supervised {
				t.Errorf("%s runs: %+v", name, m)
			}
		}
		u.mustExit(t, 2, "sandbox", "exec", "sbm-1", "--", "true")
		u.mustRun(t, "sandbox", "start", "sbm")
		if !reaches(one, two) {
			t.Error("machines do not reach each other after a start")
		}
	})
	t.Run("refusals", func(t *testing.T) {
		out := filepath.Join(u.home, "x.yaml")
		u.mustExit(t, 2, "sandbox", "create", "sbm", "--out", out)
		u.mustExit(t, 2, "sandbox", "create", "Bad_Name", "--machines", "0", "--out", out)
		u.mustExit(t, 2, "sandbox", "create", "other", "--out", filepath.Join(u.home, "sbm.yaml"))
		u.mustExit(t, 2, "sandbox", "exec", "sbm-3", "--", "true")
		u.mustExit(t, 2, "sandbox", "delete", "sbm")
		if _, err := os.Stat(out); err == nil {
			t.Error("a refused creation wrote a cluster file")
		}
	})
}

// TestSandboxDisk fills a machine's disk; other machines are not affected.
func TestSandboxDisk(t *testing.T) {
	u := newUser(t)
	u.createMachines(t, "sbd", 2, "--disk", "2")
	r := u.runSlipway(t, "sandbox", "exec", "sbd-1", "--", "sh", "-c", "fallocate -l 1900M /full; cat /dev/zero >/full2")
	if r.code == 0 || !strings.Contains(r.stderr, "No space left") {
		t.Fatalf("filling the disk ends with %d: %s", r.code, r.stderr)
	}
	u.mustExec(t, "sbd-2", "sh", "-c", "cat /dev/zero | head -c 100M >/file")
	u.mustExec(t, "sbd-1", "rm", "/full", "/full2")
	u.mustExec(t, "sbd-1", "sh", "-c", "cat /dev/zero | head -c 100M >/file")
}

// TestSandboxFrom makes the machines of a cluster file.
func TestSandboxFrom(t *testing.T) {
	u := newUser(t)
	from := filepath.Join(u.home, "prod.yaml")
	err := os.WriteFile(from, []byte(`apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  hosts:
  - {name: alpha, address: 10.0.0.11, roles: [control-plane]}
  - {name: beta, address: 10.0.0.12, roles: [worker], labels: {disk: ssd}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(u.home, "sbf.yaml")
	u.mustRun(t, "sandbox", "create", "sbf", "--from", from, "--out", file, "--dir", dir)
	if got := strings.TrimSpace(u.mustExec(t, "beta", "hostname")); got != "beta" {
		t.Errorf("beta is called %q", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"disk: ssd", "name: sbf", u.listMachines(t)["alpha"].Address, filepath.Join(dir, "sbf", "id_ed25519")} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the cluster file lacks %q:\n%s", want, text)
		}
	}
	u.mustRun(t, "sandbox", "delete", "sbf", "--yes")
	for _, d := range []string{dir, filepath.Join(u.home, "slipway", "sandboxes")} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v, %v", d, left, err)
		}
	}
}

// TestSandboxDelete deletes sandboxes in bad shape; nothing is left of any.
func TestSandboxDelete(t *testing.T) {
	supervisor := func(t *testing.T, u *user, name string) int {
		t.Helper()
		var state struct{ Supervisor struct{ PID int } }
		b, err := os.ReadFile(filepath.Join(u.home, "slipway", "sandboxes", "sbx", name, "state.json"))
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil || state.Supervisor.PID <= 1 {
			t.Fatalf("finding the supervisor of %s: %v", name, err)
		}
		return state.Supervisor.PID
	}
	kill := func(t *testing.T, pid int) {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]func(t *testing.T, u *user){
		"running": func(*testing.T, *user) {},
		"stopped": func(t *testing.T, u *user) { u.mustRun(t, "sandbox", "stop", "sbx") },
		"supervisor killed": func(t *testing.T, u *user) {
			kill(t, supervisor(t, u, "sbx-1"))
			eventually(t, 10*time.Second, "the supervisor's end", func() error {
				if m := u.listMachines(t)["sbx-1"]; m.Supervised || !m.Running {
					return fmt.Errorf("%+v", m)
				}
				return nil
			})
			u.mustExec(t, "sbx-1", "true")
		},
		"init and supervisor killed": func(t *testing.T, u *user) {
			pid := u.listMachines(t)["sbx-1"].PID
			kill(t, supervisor(t, u, "sbx-1"))
			kill(t, pid)
		},
		"records lost": func(t *testing.T, u *user) {
			for _, f := range []string{"state.json", "disk.ext4", "lock"} {
				if err := os.Remove(filepath.Join(u.home, "slipway", "sandboxes", "sbx", "sbx-1", f)); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			before, err := hostState()
			if err != nil {
				t.Fatal(err)
			}
			u.mustRun(t, "sandbox", "create", "sbx", "--machines", "2", "--out", filepath.Join(u.home, "sbx.yaml"))
			spoil(t, u)
			u.mustRun(t, "sandbox", "delete", "sbx", "--yes")
			after, err := hostState()
			if err != nil {
				t.Fatal(err)
			}
			if left := diffStates(before, after); len(left) > 0 {
				t.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
			}
			if left, err := os.ReadDir(filepath.Join(u.home, "slipway", "sandboxes")); err != nil || len(left) > 0 {
				t.Errorf("files left behind: %v, %v", left, err)
			}
		})
	}
}

// TestSandboxInterrupted kills the manager while it creates; delete copes
// with what there is.
func TestSandboxInterrupted(t *testing.T) {
	u := newUser(t)
	before, err := hostState()
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []int{50, 150, 300, 500, 800} {
		cmd := u.command(t.Context(), "sandbox", "create", "sbi", "--machines", "3", "--out",
			filepath.Join(u.home, fmt.Sprintf("%d.yaml", after)))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(after)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed, or done just before
		timer.Stop()
		if r := u.runSlipway(t, "sandbox", "delete", "sbi", "--yes"); r.code != 0 && !strings.Contains(r.stderr, "sandbox-unknown") {
			t.Errorf("deleting after %d ms: %s", after, r.stderr)
		}
		now, err := hostState()
		if err != nil {
			t.Fatal(err)
		}
		if left := diffStates(before, now); len(left) > 0 {
			t.Errorf("left behind after %d ms:\n  %s", after, strings.Join(left, "\n  "))
		}
	}
}
