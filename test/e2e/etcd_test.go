//go:build e2e && long

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// etcdctlArgs is a question to etcd on a machine that runs it as a service.
func etcdctlArgs(args ...string) []string {
	const pki = "/etc/kubernetes/pki/etcd/"
	return append([]string{
		"etcdctl", "--endpoints=https://127.0.0.1:2379", "--cacert=" + pki + "ca.crt",
		"--cert=" + pki + "healthcheck-client.crt", "--key=" + pki + "healthcheck-client.key",
	}, args...)
}

// TestLongManagedMembers takes an etcd of one member, a service, to three and
// back, with a client that writes all along.
func TestLongManagedMembers(t *testing.T) {
	b := newBalanced(t, "e2e-members", 1, 3)
	cp, w, e := b.controlPlanes[0], b.workers[0], b.workers[1:]
	roles := func(host string, roles ...any) { b.hosts[host].(map[string]any)["roles"] = roles }
	roles(cp, "control-plane", "etcd")
	roles(e[0], "etcd")
	roles(e[1], "worker", "etcd")
	editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "etcd")["type"] = "managed" })
	b.setEndpoint(t, "haproxy")
	b.setHosts(t, []string{cp}, []string{w})
	b.createCluster(t, b.file)
	b.wellMembers(t, cp, []string{cp})
	b.requireConfined(t, cp, "etcd.service", "root")
	writes := b.startWriter(t, "members")
	for _, to := range []struct{ workers, nodes, members []string }{
		{[]string{w, e[0], e[1]}, []string{cp, w, e[1]}, []string{cp, e[0], e[1]}},
		{[]string{w, e[1]}, []string{cp, w, e[1]}, []string{cp, e[1]}},
		{[]string{w}, []string{cp, w}, []string{cp}},
	} {
		had := b.nodesOf()
		b.setHosts(t, []string{cp}, to.workers)
		r := b.mustExit(t, 0, "apply", "-f", b.file, "--yes", "--allow-removal")
		t.Logf("figure: to %d members in %.0f s", len(to.members), r.took.Seconds())
		b.user.waitForNodes(t, b.name, to.nodes...)
		b.wellMembers(t, cp, to.members)
		b.requireEmptyPlan(t, b.file)
		b.asBefore(t, had)
	}
	n, gap := writes.stopWriter(t)
	t.Logf("figure: %d writes acknowledged and none lost, %.1f s without one", n, gap.Seconds())
	b.deleteCluster(t)
}

// TestLongManagedLost has members of an etcd that is a service die for good: one
// is given up and another machine comes, in the place of the second another
// machine comes under its name, and a client writes all along.
func TestLongManagedLost(t *testing.T) {
	b := newBalanced(t, "e2e-mlost", 1, 5)
	cp, w, e, fresh := b.controlPlanes[0], b.workers[0], b.workers[1:4], b.workers[4]
	for _, m := range append(slices.Clone(e), fresh, b.spare) {
		b.hosts[m].(map[string]any)["roles"] = []any{"etcd"}
	}
	editSpec(t, b.file, func(spec map[string]any) { childMap(spec, "etcd")["type"] = "managed" })
	b.setEndpoint(t, "haproxy")
	b.setHosts(t, []string{cp}, append([]string{w}, e...))
	r := b.createCluster(t, b.file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	b.wellMembers(t, e[0], e)
	writes := b.startWriter(t, "members")
	// with wants these members and no others, and a cluster as its file says.
	with := func(t *testing.T, ask string, members ...string) {
		t.Helper()
		b.wellMembers(t, ask, members)
		b.user.waitForNodes(t, b.name, cp, w)
		b.requireEmptyPlan(t, b.file)
	}

	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"given up", func(t *testing.T) {
			b.mustRun(t, "sandbox", "kill", e[1])
			refusedBy(t, b.mustExit(t, 2, "delete", "node", e[1], "--yes"), "[host-unreachable]", "--forget")
			b.waitForEtcdFailover(t)
			b.setHosts(t, []string{cp}, []string{w, e[0], e[2]})
			r := b.mustExit(t, 0, "delete", "node", e[1], "--yes", "--forget")
			t.Logf("figure: a dead member given up in %.0f s", r.took.Seconds())
			with(t, e[0], e[0], e[2])
		}},
		{"another machine", func(t *testing.T) {
			b.setHosts(t, []string{cp}, []string{w, e[0], e[2], fresh})
			r := b.mustExit(t, 0, "add", "nodes", "-f", b.file, "--yes")
			t.Logf("figure: another machine came in %.0f s", r.took.Seconds())
			with(t, fresh, e[0], e[2], fresh)
		}},
		{"another machine under a name", func(t *testing.T) {
			b.exchangesMember(t, e[2])
			with(t, b.spare, e[0], e[2], fresh)
			b.mustRun(t, "sandbox", "start", e[2]) // which is no longer in any member list
			<-time.After(15 * time.Second)
			with(t, e[0], e[0], e[2], fresh)
		}},
	} {
		t.Run(step.name, step.do)
		if t.Failed() {
			return
		}
	}
	n, gap := writes.stopWriter(t)
	t.Logf("figure: %d writes acknowledged and none lost, %.1f s without one", n, gap.Seconds())
	b.setHosts(t, []string{cp}, []string{w, e[0], fresh}) // hosts with the names of their machines
	b.deleteCluster(t)
	requireSame(t, b.spare+" before and after", "touched", b.before[b.spare], b.takeSnapshot(t, b.spare))
}

// exchangesMember adds the unused machine in place of another one, under its name. This
// fails while the other machine is running.
func (b *balanced) exchangesMember(t *testing.T, name string) {
	t.Helper()
	other := maps.Clone(b.hosts[b.spare].(map[string]any))
	other["name"] = name
	b.hosts[name] = other
	b.setHosts(t, b.controlPlanes, b.workers)
	refusedBy(t, b.mustExit(t, 2, "apply", "-f", b.file, "--yes"), "a member with this name runs at https://"+b.addresses[name]+":2380")
	b.mustRun(t, "sandbox", "kill", name)
	b.waitForEtcdFailover(t)
	r := b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
	t.Logf("figure: another machine came under the name of a dead one in %.0f s", r.took.Seconds())
	is, was := "https://"+b.addresses[b.spare]+":2380", "https://"+b.addresses[name]+":2380"
	if got := b.mustExec(t, b.spare, etcdctlArgs("member", "list")...); !strings.Contains(got, is) || strings.Contains(got, was) {
		t.Errorf("want %s to be a member at %s, and not at %s:\n%s", name, is, was, got)
	}
}

// waitForEtcdFailover waits until an API server has noticed that a member of its etcd is dead:
// until then it waits for that one now and then.
func (b *balanced) waitForEtcdFailover(t *testing.T) {
	t.Helper()
	answers := 0
	eventually(t, 2*time.Minute, "the API without a member of etcd", func() error {
		r := b.runSlipway(t, "kubectl", b.name, "--", "--request-timeout=5s", "get", "nodes,pods,configmaps,secrets,deployments,daemonsets", "-A")
		if answers++; r.code != 0 {
			answers = 0
		}
		if answers < 5 {
			return fmt.Errorf("%d answers one after the other; the last says %s", answers, textTail(r.stderr))
		}
		return nil
	})
}

// TestLongManagedEtcd is the life of a cluster whose etcd is a service on three machines:
// on a control plane, on a separate machine, and on a worker.
func TestLongManagedEtcd(t *testing.T) {
	u := newUser(t)
	const name = "e2e-etcd"
	machines := []string{name + "-1", name + "-2", name + "-3"}
	alone := machines[1]
	file := u.createMachines(t, name, 3)
	editSpec(t, file, func(spec map[string]any) {
		childMap(spec, "etcd")["type"] = "managed"
		for i, roles := range [][]any{{"control-plane", "etcd"}, {"etcd"}, {"worker", "etcd"}} {
			spec["hosts"].([]any)[i].(map[string]any)["roles"] = roles
		}
	})
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.takeSnapshot(t, m)
	}
	r := u.createCluster(t, file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	u.waitForNodes(t, name, machines[0], machines[2])
	u.wellMembers(t, alone, machines)
	u.mustExec(t, alone, "sh", "-c",
		"! ls /usr/local/bin/kube* /usr/local/bin/containerd /etc/systemd/system/kubelet.service /var/lib/kubelet 2>/dev/null")
	t.Run("keys", func(t *testing.T) { u.ownKeys(t, machines) })
	t.Run("apply again", func(t *testing.T) { u.requireEmptyPlan(t, file) })
	t.Run("a member is killed", func(t *testing.T) {
		u.mustRun(t, "sandbox", "kill", alone)
		u.writeAndRead(t, name, "without-"+alone)
		u.mustRun(t, "sandbox", "start", alone)
		u.wellMembers(t, machines[0], machines)
		u.requireEmptyPlan(t, file)
	})
	t.Run("a member loses its data", func(t *testing.T) {
		u.mustExec(t, alone, "sh", "-c", "systemctl stop etcd && mv /var/lib/etcd/member /root/member && ! systemctl start etcd")
		r := u.mustExit(t, 2, "apply", "-f", file, "--yes")
		if !strings.Contains(r.stderr, "etcd-data-lost") {
			t.Errorf("apply is refused for another reason:\n%s", textTail(r.stderr))
		}
		u.mustExec(t, alone, "sh", "-c",
			"rm -rf /var/lib/etcd/member && mv /root/member /var/lib/etcd/member && systemctl reset-failed etcd && systemctl start etcd")
		u.wellMembers(t, alone, machines)
	})
	t.Run("settings", func(t *testing.T) {
		editSpec(t, file, func(spec map[string]any) {
			childMap(spec, "etcd")["extraArgs"] = map[string]any{"heartbeat-interval": "150"}
		})
		u.mustExit(t, 0, "apply", "-f", file, "--yes")
		u.wellMembers(t, alone, machines)
		for _, m := range machines {
			u.mustExec(t, m, "sh", "-c",
				`tr '\0' ' ' </proc/$(systemctl show -p MainPID --value etcd)/cmdline | grep -q -- --heartbeat-interval=150`)
		}
		u.writeAndRead(t, name, "with-other-settings")
		u.requireEmptyPlan(t, file)
	})
	t.Run("another authority", func(t *testing.T) {
		const ca = "/etc/kubernetes/pki/etcd/ca.crt"
		old := u.mustExec(t, alone, "cat", ca)
		r := u.mustExit(t, 0, "certs", "rotate-ca", name, "--which", "etcd", "--yes")
		t.Logf("figure: another authority of etcd in %.0f s", r.took.Seconds())
		for _, m := range machines {
			if now := u.mustExec(t, m, "cat", ca); now == old || strings.Count(now, "BEGIN") != 1 {
				t.Errorf("%s trusts\n%s", m, now)
			}
		}
		u.wellMembers(t, alone, machines)
		u.ownKeys(t, machines)
		u.writeAndRead(t, name, "under-another-authority")
		u.requireEmptyPlan(t, file)
	})
	t.Run("snapshots", func(t *testing.T) { u.snapshotsOfAll(t, name, file, machines, alone) })
	u.mustExit(t, 0, "delete", "cluster", name, "--yes", "--allow-removal")
	for _, m := range machines {
		requireSame(t, m+" before and after", "touched", before[m], u.takeSnapshot(t, m))
	}
}

// wellMembers waits until etcd, asked on one machine, knows a member of each
// name that votes, and all of them answer.
func (u *user) wellMembers(t *testing.T, ask string, names []string) {
	t.Helper()
	type list struct {
		Members []struct {
			Name      string
			IsLearner bool
		}
	}
	eventually(t, time.Minute, "every member of etcd", func() error {
		r := u.runSlipway(t, append([]string{"sandbox", "exec", ask, "--"}, etcdctlArgs("endpoint", "health", "--cluster")...)...)
		if r.code != 0 {
			return fmt.Errorf("%s %s", textTail(r.stdout), textTail(r.stderr))
		}
		var have []string
		for _, m := range decodeJSON[list](t, u.mustExec(t, ask, etcdctlArgs("member", "list", "-w", "json")...)).Members {
			if !m.IsLearner {
				have = append(have, m.Name)
			}
		}
		if slices.Sort(have); !slices.Equal(have, names) {
			return fmt.Errorf("members are %v, want %v", have, names)
		}
		return nil
	})
}

// ownKeys requires that no two machines have the same key, except the CA key.
func (u *user) ownKeys(t *testing.T, machines []string) {
	seen := map[string]string{}
	for _, m := range machines {
		for line := range strings.Lines(u.mustExec(t, m, "sh", "-c",
			"cd /etc/kubernetes/pki && sha256sum etcd/*.key apiserver-etcd-client.key 2>/dev/null; true")) {
			sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
			if other, ok := seen[sum]; ok && file != "etcd/ca.key" {
				t.Errorf("%s of %s is %s", file, m, other)
			}
			seen[sum] = file + " of " + m
		}
	}
	if len(seen) != 3*3+1+1 { // three for each member, one of the API server, one of the CA
		t.Errorf("there are %d keys: %v", len(seen), seen)
	}
}

// writeAndRead writes something into the cluster and reads it back.
func (u *user) writeAndRead(t *testing.T, cluster, what string) {
	t.Helper()
	begin := time.Now()
	eventually(t, time.Minute, "a write", func() error {
		if r := u.runSlipway(t, "kubectl", cluster, "--", "create", "configmap", what); r.code != 0 &&
			!strings.Contains(r.stderr, "already exists") {
			return fmt.Errorf("%s", textTail(r.stderr))
		}
		return nil
	})
	u.mustKubectl(t, cluster, "get", "configmap", what)
	t.Logf("%s: written after %s", what, time.Since(begin).Round(100*time.Millisecond))
}

// snapshotsOfAll lets every host with a member take scheduled snapshots, also a host
// without Kubernetes. A set from the snapshot of that host is valid.
func (u *user) snapshotsOfAll(t *testing.T, name, file string, machines []string, alone string) {
	t.Helper()
	editSpec(t, file, func(spec map[string]any) {
		childMap(spec, "etcd")["backup"] = map[string]any{"every": "1m", "keep": 2}
	})
	u.mustExit(t, 0, "apply", "-f", file, "--yes")
	begun := time.Now()
	eventually(t, 4*time.Minute, "every host to have taken a snapshot", func() error {
		s := u.readSchedule(t, name)
		for _, h := range s.Hosts {
			if len(h.Kept) == 0 || h.Failed != "" {
				return fmt.Errorf("it is %+v", s)
			}
		}
		if !s.Good || len(s.Hosts) != len(machines) {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	t.Logf("figure: %d hosts, one of them with etcd alone, have each taken a snapshot by themselves after %.0f s",
		len(machines), time.Since(begun).Seconds())
	set := decodeJSON[struct{ File string }](t, u.mustExit(t, 0, "etcd", "snapshot", name, "--of", alone, "-o", "json").stdout).File
	if text := u.mustExit(t, 0, "etcd", "drill", name, "--from", set).stdout; !strings.Contains(text, "is good") {
		t.Errorf("the drill says:\n%s", text)
	}
	u.requireEmptyPlan(t, file)
}
