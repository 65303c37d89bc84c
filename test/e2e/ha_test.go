//go:build e2e && long

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLongHighlyAvailable is the life of a cluster of three control planes and two
// workers, whose first control plane fails and returns.
func TestLongHighlyAvailable(t *testing.T) {
	u := newUser(t)
	const name = "e2e-ha"
	var machines []string
	for i := range 5 {
		machines = append(machines, fmt.Sprintf("%s-%d", name, i+1))
	}
	first, second, workers := machines[0], machines[1], machines[3:]
	file := u.createMachines(t, name, 5, "--control-planes", "3")
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.takeSnapshot(t, m)
	}

	r := u.createCluster(t, file)
	t.Logf("created in %s", r.took.Round(100*time.Millisecond))
	addresses := u.waitForNodes(t, name, machines...)
	u.requireVoters(t, second, machines[:3]...)
	t.Run("apply again", func(t *testing.T) { u.requireEmptyPlan(t, file) })
	t.Run("first control plane lost", func(t *testing.T) { u.losesFirst(t, name, first, addresses[second], workers) })
	t.Run("exec and cp without it", func(t *testing.T) { u.runOnAllHosts(t, name, machines, first) })
	t.Run("first control plane back", func(t *testing.T) {
		u.mustRun(t, "sandbox", "start", first)
		eventually(t, 2*time.Minute, "the API of "+first, func() error {
			if r := u.runSlipway(t, "kubectl", name, "--", "get", "--raw=/readyz"); r.code != 0 {
				return fmt.Errorf("exit code %d: %s", r.code, textTail(r.stderr))
			}
			return nil
		})
		u.waitForNodes(t, name, machines...)
		u.requireVoters(t, second, machines[:3]...)
		u.mustKubectl(t, name, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
		u.requireEmptyPlan(t, file)
	})
	t.Run("delete", func(t *testing.T) {
		u.mustExit(t, 0, "delete", "cluster", name, "--yes", "--allow-removal")
		for _, m := range machines {
			requireSame(t, m+" before and after", "touched", before[m], u.takeSnapshot(t, m))
		}
	})
}

// requireVoters asserts that etcd's members are these, all with a vote, by asking the
// one on a machine.
func (u *user) requireVoters(t *testing.T, machine string, want ...string) {
	t.Helper()
	const pki = "/etc/kubernetes/pki/etcd/"
	eventually(t, time.Minute, "members of etcd", func() error {
		out := u.mustExec(t, machine, "etcdctl", "--endpoints=https://127.0.0.1:2379", "--cacert="+pki+"ca.crt",
			"--cert="+pki+"healthcheck-client.crt", "--key="+pki+"healthcheck-client.key", "member", "list", "-w", "json")
		var list struct {
			Members []struct {
				Name      string
				IsLearner bool
			}
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		var got []string
		for _, m := range list.Members {
			if !m.IsLearner {
				got = append(got, m.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) || len(list.Members) != len(want) {
			return fmt.Errorf("members %+v, want %v to vote", list.Members, want)
		}
		return nil
	})
}

// losesFirst cuts the power of the first control plane. The API continues to answer on
// other control planes, and at the API address of every worker.
func (u *user) losesFirst(t *testing.T, cluster, first, address string, workers []string) {
	u.mustRun(t, "sandbox", "kill", first)
	lost := time.Now()
	asks := func(worker string) result {
		return u.runSlipway(t, "sandbox", "exec", worker, "--", "kubectl", "--kubeconfig=/etc/kubernetes/kubelet.conf",
			"--request-timeout=5s", "get", "--raw=/api/v1/nodes/"+worker)
	}
	for _, w := range workers {
		var gap time.Duration
		for answered := 0; answered < 5; {
			if r := asks(w); r.code == 0 {
				answered++
				continue
			} else if gap = time.Since(lost); gap > time.Minute {
				t.Fatalf("%s after the loss %s still does not reach the API: %s", gap, w, textTail(r.stderr))
			}
			answered = 0
		}
		t.Logf("%s: the last request that failed was %s after the loss", w, gap.Round(100*time.Millisecond))
	}
	eventually(t, 2*time.Minute, "the loss is noticed", func() error {
		r := u.runSlipway(t, "kubectl", cluster, "--", "--server=https://"+address+":6443", "get", "nodes", "--no-headers")
		if r.code != 0 {
			return fmt.Errorf("exit code %d: %s", r.code, textTail(r.stderr))
		}
		if strings.Count(r.stdout, " NotReady ") != 1 || !strings.Contains(r.stdout, first+" ") || strings.Count(r.stdout, " Ready ") != 4 {
			return fmt.Errorf("want %s alone not to be ready:\n%s", first, r.stdout)
		}
		return nil
	})
}

// runOnAllHosts runs a program on all hosts and brings a file to all of them, of which
// one does not answer: the others do it all the same.
func (u *user) runOnAllHosts(t *testing.T, cluster string, machines []string, silent string) {
	type hostResult struct {
		Host, Stdout string
		Error        *struct{ Message string }
	}
	r := u.mustExit(t, 3, "exec", cluster+"@all", "-o", "json", "--", "hostname")
	said := map[string]hostResult{}
	for line := range strings.Lines(r.stdout) {
		h := decodeJSON[hostResult](t, line)
		said[h.Host] = h
	}
	for _, m := range machines {
		switch h, ok := said[m]; {
		case !ok:
			t.Errorf("exec does not say what became of %s", m)
		case m == silent && (h.Error == nil || h.Stdout != ""):
			t.Errorf("exec on %s, which is off: %+v", m, h)
		case m != silent && (h.Error != nil || strings.TrimSpace(h.Stdout) != m):
			t.Errorf("exec on %s: %+v", m, h)
		}
	}
	if !strings.Contains(r.stderr, silent) || !strings.Contains(r.stderr, "1 of 5 hosts failed.") {
		t.Errorf("exec does not name %s:\n%s", silent, r.stderr)
	}
	t.Logf("exec on four hosts and one that is off took %s", r.took.Round(100*time.Millisecond))

	file := filepath.Join(u.home, "greeting")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = u.mustExit(t, 3, "cp", file, cluster+"@all:/root/greeting")
	if !strings.Contains(r.stderr, silent) {
		t.Errorf("cp does not name %s:\n%s", silent, r.stderr)
	}
	for _, m := range machines {
		if m == silent {
			continue
		}
		if got := u.mustExec(t, m, "cat", "/root/greeting"); got != "hello\n" {
			t.Errorf("cp brought %q to %s", got, m)
		}
		u.mustExec(t, m, "rm", "/root/greeting")
	}
}
