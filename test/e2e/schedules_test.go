//go:build e2e && long

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// scheduled holds the checked parts of the output of `etcd snapshots --hosts`.
type scheduled struct {
	On, Good bool
	Warnings []struct{ ID string }
	Hosts    []struct {
		Host   string
		Active bool
		Failed string
		Kept   []struct {
			Path     string
			Revision int64
		}
		Drill struct {
			Good, At time.Time
			Failed   string
			Path     string
			Revision int64
			Keys     int
			Secret   string
		}
	}
}

func (u *user) readSchedule(t *testing.T, name string) scheduled {
	t.Helper()
	return decodeJSON[scheduled](t, u.runSlipway(t, "etcd", "snapshots", name, "--hosts", "-o", "json").stdout)
}

// TestLongSchedules lets a host of a running cluster take scheduled snapshots. The
// configured number is kept, and each is tested in a separate etcd. A failed restore test
// is reported and stops nothing, and a full disk is an error. A set made while etcd is
// down restores every object. After the schedule is disabled, nothing is left.
func TestLongSchedules(t *testing.T) {
	u := newUser(t)
	const name = "e2e-schedules"
	m := name + "-1"
	file := u.createMachines(t, name, 1)
	u.createCluster(t, file)
	backup := func(value any) {
		editSpec(t, file, func(spec map[string]any) {
			delete(spec, "etcd")
			if value != nil {
				spec["etcd"] = map[string]any{"backup": value}
			}
		})
		u.mustExit(t, 0, "apply", "-f", file, "--yes")
		u.waitForEmptyPlan(t, file)
	}
	u.mustKubectl(t, name, "create", "configmap", "kept")
	u.mustKubectl(t, name, "create", "secret", "generic", "read", "--from-literal=a=b")
	backup(map[string]any{"every": "1m", "keep": 2, "drillEvery": "1m"})

	newest := func() string { // the newest kept snapshot; "" while there is none
		s := u.readSchedule(t, name)
		if len(s.Hosts) != 1 || len(s.Hosts[0].Kept) == 0 || s.Hosts[0].Failed != "" {
			return ""
		}
		if n := len(s.Hosts[0].Kept); n > 2 {
			t.Errorf("%d are kept", n)
		}
		return s.Hosts[0].Kept[0].Path
	}
	begun, seen := time.Now(), map[string]bool{}
	eventually(t, 6*time.Minute, "three snapshots to have been taken", func() error {
		if at := newest(); at != "" {
			seen[at] = true
		}
		if len(seen) < 3 {
			return fmt.Errorf("%d have been", len(seen))
		}
		return nil
	})
	t.Logf("figure: three snapshots, a minute apart, in %.0f s", time.Since(begun).Seconds())
	if got := strings.Fields(u.mustExec(t, m, "ls", "/var/lib/slipway/backups")); len(got) != 2 {
		t.Errorf("there are %v, and two are kept", got)
	}
	if s := u.readSchedule(t, name); !s.On || !s.Good || !s.Hosts[0].Active {
		t.Errorf("it is %+v", s)
	}

	t.Run("drills", func(t *testing.T) { u.drillsByItself(t, name, m) })
	t.Run("a full disk", func(t *testing.T) {
		u.mustExec(t, m, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/var/lib/slipway/backups")
		eventually(t, 3*time.Minute, "a snapshot to be refused", func() error {
			s := u.readSchedule(t, name)
			if s.Good || !strings.Contains(s.Hosts[0].Failed, "free") {
				return fmt.Errorf("it is %+v", s)
			}
			return nil
		})
		u.mustExit(t, 3, "etcd", "snapshots", name, "--hosts")
		u.mustExec(t, m, "umount", "/var/lib/slipway/backups")
		u.mustExec(t, m, "systemctl", "start", "slipway-backup.service")
		eventually(t, 2*time.Minute, "snapshots to be taken again", func() error {
			if newest() == "" {
				return fmt.Errorf("it is %+v", u.readSchedule(t, name))
			}
			return nil
		})
	})
	t.Run("restored from one", func(t *testing.T) {
		backup(nil)
		u.mustKubectl(t, name, "delete", "configmap", "kept")
		u.mustExec(t, m, "sh", "-c", "systemctl stop kubelet; pkill -KILL -x etcd; true")
		set := decodeJSON[struct{ File string }](t, u.mustExit(t, 0, "etcd", "snapshot", name, "--of", m, "-o", "json").stdout).File
		u.mustExec(t, m, "systemctl", "start", "kubelet")
		eventually(t, 3*time.Minute, "etcd to be well", func() error {
			if r := u.runSlipway(t, "etcd", "health", name); r.code != 0 {
				return fmt.Errorf("exit code %d:\n%s", r.code, textTail(r.stdout))
			}
			return nil
		})
		if text := u.mustExit(t, 0, "etcd", "drill", name, "--from", set).stdout; !strings.Contains(text, "is good") {
			t.Errorf("the drill says:\n%s", text)
		}
		u.mustExit(t, 0, "etcd", "restore", name, "--from", set, "--yes")
		u.mustKubectl(t, name, "get", "configmap", "kept")
	})
	if left := u.mustExec(t, m, "sh", "-c",
		"ls /etc/systemd/system/slipway-backup* /usr/local/lib/slipway/slipway-backup /etc/slipway/backup.json 2>/dev/null; true"); left != "" {
		t.Errorf("switched off, there is still %s", left)
	}
	u.noScratch(t, m)
	u.mustExit(t, 0, "delete", "cluster", name, "--yes")
	if left := u.mustExec(t, m, "sh", "-c", "ls -d /var/lib/slipway 2>/dev/null; true"); left != "" {
		t.Errorf("deleted, there is still %s", left)
	}
}

// drillsByItself lets a host test its snapshots: a valid snapshot, one that cannot be
// tested because the program is missing, which is reported and does not stop further
// snapshots, and a valid one again.
func (u *user) drillsByItself(t *testing.T, name, m string) {
	const program = "/usr/local/bin/etcd"
	begun := time.Now()
	tried := func(after time.Time, failed bool) scheduled {
		t.Helper()
		var s scheduled
		eventually(t, 4*time.Minute, "a snapshot to be tried", func() error {
			s = u.readSchedule(t, name)
			if len(s.Hosts) != 1 || !s.Hosts[0].Drill.At.After(after) || (s.Hosts[0].Drill.Failed != "") != failed {
				return fmt.Errorf("it is %+v", s)
			}
			return nil
		})
		return s
	}
	s := tried(time.Time{}, false)
	d := s.Hosts[0].Drill
	if d.Good.IsZero() || d.Revision == 0 || d.Keys < 100 || d.Secret != "read" {
		t.Errorf("the drill came to %+v", d)
	}
	if text := u.mustExit(t, 0, "etcd", "snapshots", name, "--hosts").stdout; !strings.Contains(text, "TRIED") {
		t.Errorf("it says:\n%s", text)
	}
	u.mustExec(t, m, "mv", program, program+".away")
	s = tried(d.At, true)
	if len(s.Warnings) != 1 || s.Warnings[0].ID != "backup-drill" || s.Hosts[0].Failed != "" || len(s.Hosts[0].Kept) == 0 {
		t.Errorf("it is %+v", s)
	}
	u.mustExit(t, 3, "etcd", "snapshots", name, "--hosts")
	u.mustExit(t, 3, "etcd", "health", name)
	if log := u.mustExec(t, m, "journalctl", "-u", "slipway-backup", "-n",
		"20", "--no-pager"); !strings.Contains(log, "in a temporary etcd") || !strings.Contains(log, "taken: ") {
		t.Errorf("the journal has:\n%s", log)
	}
	u.mustExec(t, m, "mv", program+".away", program)
	u.mustExec(t, m, "systemctl", "start", "slipway-backup.service")
	if s = tried(s.Hosts[0].Drill.At, false); !s.Good {
		t.Errorf("it is %+v", s)
	}
	t.Logf("figure: drills: a good one, one that failed, and good again in %.0f s", time.Since(begun).Seconds())
}

// noScratch wants nothing left of an etcd that looked into data.
func (u *user) noScratch(t *testing.T, m string) {
	t.Helper()
	if left := u.mustExec(t, m, "sh", "-c",
		"systemctl list-units --all --plain --no-legend 'slipway-scratch*' 'run-r*.scope'; find /sys/fs/cgroup -name 'slipway-scratch*'; "+
			"ls -d /var/lib/slipway/backups/.drill 2>/dev/null; true"); left !=

		"" {
		t.Errorf("there is still %s", left)
	}
}
