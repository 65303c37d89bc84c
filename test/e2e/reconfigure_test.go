//go:build e2e && long

package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLongReconfigure changes settings of a running cluster while a client writes. Valid
// settings are applied node by node. Invalid settings are rolled back automatically at the
// first node that does not work with them.
func TestLongReconfigure(t *testing.T) {
	b := newBalanced(t, "e2e-reconf", 3, 2)
	b.setEndpoint(t, "haproxy")
	r := b.createCluster(t, b.file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	b.waitForRecovery(t)
	w := b.startWriter(t, "reconfigured")
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"a kubelet's setting", b.setsKubelets},
		{"a bad one", func(t *testing.T) {
			b.requireRejected(t, "topologyManagerPolicy", func(spec map[string]any) {
				childMap(childMap(childMap(spec, "kubernetes"), "kubelet"), "config")["topologyManagerPolicy"] = "no-such"
			})
		}},
		{"a bad argument of API servers", func(t *testing.T) {
			b.requireRejected(t, "no-such-mode", func(spec map[string]any) {
				childMap(childMap(childMap(spec, "kubernetes"), "apiServer"), "extraArgs")["authorization-mode"] = "no-such-mode"
			})
		}},
		{"containerd's", b.setsContainerd},
		{"a bad one of containerd", func(t *testing.T) {
			b.requireRejected(t, "containerd.service", func(spec map[string]any) {
				childMap(spec, "containerRuntime")["config"] = "[debug]\nlevel = 7\n"
			})
		}},
		{"etcd's", b.setsEtcd},
		{"kernel parameters and a mirror", b.setsHosts},
		{"a bad kernel parameter", func(t *testing.T) {
			b.requireRejected(t, "this host has new settings", func(spec map[string]any) {
				childMap(childMap(spec, "system"), "sysctls")["net.ipv4.ip_local_reserved_ports"] = "1-65535"
			})
		}},
	} {
		t.Run(step.name, step.do)
		if t.Failed() {
			return
		}
	}
	acknowledged, gap := w.stopWriter(t)
	t.Logf("figure: %d writes acknowledged, none lost, %.1f s without one", acknowledged, gap.Seconds())
	if gap > 90*time.Second {
		t.Errorf("%.1f s without a write", gap.Seconds())
	}
}

// applyChange applies a change of the file, and returns the events.
func (b *balanced) applyChange(t *testing.T, code int, edit func(spec map[string]any)) (happenings []happening, r result) {
	t.Helper()
	editSpec(t, b.file, edit)
	r = b.runWithin(t, 10*time.Minute, nil, "apply", "-f", b.file, "--yes", "-o", "json")
	if r.code != code {
		t.Fatalf("apply ends with %d, want %d\nstdout: %s\nstderr: %s", r.code, code, textTail(r.stdout), textTail(r.stderr))
	}
	for line := range strings.Lines(r.stdout) {
		var h happening
		if json.Unmarshal([]byte(line), &h) == nil && h.Type != "" {
			happenings = append(happenings, h)
		}
	}
	return happenings, r
}

// inTurn wants a step to have changed nodes one after the other.
func inTurn(t *testing.T, happenings []happening, task string, want []string) {
	t.Helper()
	var got []string
	for _, h := range happenings {
		if h.Type == "step.finished" && h.Task == task && h.Outcome == "changed" {
			got = append(got, h.Host)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has changed %v, want %v", task, got, want)
	}
}

func (b *balanced) setsKubelets(t *testing.T) {
	happenings, r := b.applyChange(t, 0, func(spec map[string]any) {
		childMap(childMap(childMap(spec, "kubernetes"), "kubelet"), "config")["maxPods"] = 64
	})
	t.Logf("figure: a setting of five kubelets in %.0f s", r.took.Seconds())
	inTurn(t, happenings, "kubelet.settings", b.nodesOf())
	if got := b.mustKubectl(t, b.name, "get", "nodes", "-o",
		"jsonpath={.items[*].status.capacity.pods}"); strings.TrimSpace(got) != "64 64 64 64 64" {
		t.Errorf("nodes take %q pods, want 64 each", got)
	}
	b.requireEmptyPlan(t, b.file)
}

func (b *balanced) setsContainerd(t *testing.T) {
	happenings, r := b.applyChange(t, 0, func(spec map[string]any) {
		childMap(spec, "containerRuntime")["config"] = "[debug]\nlevel = \"warn\"\n"
	})
	t.Logf("figure: a setting of five containerds in %.0f s", r.took.Seconds())
	inTurn(t, happenings, "runtime.containerd", b.nodesOf())
	for _, m := range b.nodesOf() {
		if text := b.mustExec(t, m, "containerd", "config", "dump"); !strings.Contains(text, "level = 'warn'") {
			t.Errorf("containerd of %s does not go by the file:\n%s", m, textTail(text))
		}
	}
	b.requireEmptyPlan(t, b.file)
}

// setsHosts sets what restarts nothing. The parameter is one of a machine's network
// alone.
func (b *balanced) setsHosts(t *testing.T) {
	happenings, r := b.applyChange(t, 0, func(spec map[string]any) {
		childMap(childMap(spec, "system"), "sysctls")["net.ipv4.ip_local_reserved_ports"] = "40001"
		childMap(childMap(spec, "registry"), "mirrors")["registry.example"] = []string{"https://192.0.2.1"}
	})
	t.Logf("figure: a kernel parameter and a mirror of five hosts in %.0f s", r.took.Seconds())
	for _, task := range []string{"os.kernel", "runtime.registries"} {
		inTurn(t, happenings, task, b.nodesOf())
	}
	for _, m := range b.nodesOf() {
		if got := b.mustExec(t, m, "sysctl", "-n", "net.ipv4.ip_local_reserved_ports"); strings.TrimSpace(got) != "40001" {
			t.Errorf("%s has the parameter %q", m, got)
		}
		if got := b.mustExec(t, m, "cat", "/etc/containerd/certs.d/registry.example/hosts.toml"); !strings.Contains(got, "192.0.2.1") {
			t.Errorf("containerd of %s does not know the mirror:\n%s", m, got)
		}
	}
	b.requireEmptyPlan(t, b.file)
}

func (b *balanced) setsEtcd(t *testing.T) {
	_, r := b.applyChange(t, 0, func(spec map[string]any) {
		childMap(childMap(spec, "etcd"), "extraArgs")["quota-backend-bytes"] = "4294967296"
	})
	t.Logf("figure: a setting of three members of etcd in %.0f s", r.took.Seconds())
	for _, m := range b.controlPlanes {
		if got := b.mustExec(t, m, "pgrep", "-ax", "etcd"); !strings.Contains(got, "--quota-backend-bytes=4294967296") {
			t.Errorf("etcd of %s runs as %s", m, got)
		}
	}
	b.mustExit(t, 0, "etcd", "health", b.name)
	b.requireEmptyPlan(t, b.file)
}

// requireRejected applies an invalid setting: the first node does not work with it, and
// the previous state is restored automatically.
func (b *balanced) requireRejected(t *testing.T, says string, edit func(spec map[string]any)) {
	t.Helper()
	good, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	_, r := b.applyChange(t, 1, edit)
	t.Logf("figure: it has failed and gone back in %.0f s", r.took.Seconds())
	var ended struct {
		Reverted bool
		Failures []struct{ Host, Reason, Message string }
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &ended); err != nil {
		t.Fatal(err)
	}
	if !ended.Reverted || len(ended.Failures) != 1 || ended.Failures[0].Host != b.controlPlanes[0] ||
		ended.Failures[0].Reason != "settings-reverted" || !strings.Contains(ended.Failures[0].Message, says) {
		t.Errorf("it ends with %+v: want it back by itself, and a failure of %s that says %q", ended, b.controlPlanes[0], says)
	}
	b.waitForRecovery(t)
	if r := b.runSlipway(t, "plan", "-f", b.file, "--exit-code"); r.code != 4 {
		t.Errorf("the plan for the file that was refused ends with %d, want 4: that is what differs", r.code)
	}
	if err := os.WriteFile(b.file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	b.requireEmptyPlan(t, b.file)
}
