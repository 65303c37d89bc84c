//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCreate is the life of a cluster on three machines with files of earlier users, next
// to a fourth such machine that no cluster uses.
func TestCreate(t *testing.T) {
	u := newUser(t)
	const name = "e2e-create"
	machines := []string{name + "-1", name + "-2", name + "-3"}
	control := name + "-4"
	file := u.createMachines(t, name, 4)
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:3] })
	u.setUp(t, file)

	before := map[string]snapshot{}
	for _, m := range append(slices.Clone(machines), control) {
		u.plantBefore(t, m)
		before[m] = u.takeSnapshot(t, m)
	}

	t.Run("plan", func(t *testing.T) { u.plansAndTouchesNothing(t, file, machines, before) })
	if t.Failed() {
		return
	}
	r := u.createCluster(t, file)
	t.Logf("figure: created in %.0f s, at most %d MiB", r.took.Seconds(), r.maxRSS>>20)
	addresses := u.waitForNodes(t, name, machines...)
	for _, m := range machines {
		u.takesOver(t, m)
	}
	t.Run("smoke", func(t *testing.T) { u.smokeTest(t, name, addresses) })
	t.Run("kubelets", func(t *testing.T) {
		u.kubeletsServeSigned(t, name, addresses)
		u.asksAgain(t, machines[0], machines[1])
		u.kubeletsServeSigned(t, name, addresses)
	})
	t.Run("services, restarted", func(t *testing.T) { u.restartsProxies(t, name, addresses) })
	t.Run("settings", func(t *testing.T) { u.isSetUp(t, name, machines) })
	t.Run("host port", func(t *testing.T) { u.hostPort(t, name, machines[1], addresses[machines[1]]) })
	t.Run("refused", func(t *testing.T) { u.refusesSecondCreate(t, file) })
	t.Run("apply again", func(t *testing.T) { u.appliesNothing(t, name, file, machines) })
	t.Run("change", func(t *testing.T) { u.changesExactly(t, name, file, machines) })
	t.Run("delete", func(t *testing.T) { u.deletesAndRestores(t, name, machines, control, before) })
}

// restartsProxies restarts kube-proxy on every node, where it finds the rules of the
// previous process: Services continue to work.
func (u *user) restartsProxies(t *testing.T, cluster string, addresses map[string]string) {
	u.mustKubectl(t, cluster, "rollout", "restart", "-n", "kube-system", "daemonset/kube-proxy")
	u.mustKubectl(t, cluster, "rollout", "status", "-n", "kube-system", "daemonset/kube-proxy", "--timeout=120s")
	u.smokeTest(t, cluster, addresses)
}

// deletesAndRestores deletes the cluster. The machines are as before, and like an unused
// machine, except files that were created meanwhile.
func (u *user) deletesAndRestores(t *testing.T, cluster string, machines []string, control string, before map[string]snapshot) {
	u.plantMeanwhile(t, machines[1])
	r := u.mustExit(t, 0, "delete", "cluster", cluster, "--yes", "--allow-removal")
	u.keepsMeanwhile(t, machines[1], r.stdout+r.stderr)
	untouchedAfter := u.takeSnapshot(t, control)
	requireSame(t, control+", which nobody touched", "touched", before[control], untouchedAfter)
	for i, m := range machines {
		hooks := "a note\n" + m + " postInstall\n"
		if i > 0 { // a worker
			hooks += m + " preDelete\n"
		}
		u.hooksRan(t, m, hooks)
		u.mustExec(t, m, "rm", "/var/tmp/own-hook")
		after := u.takeSnapshot(t, m)
		requireSame(t, m+" before and after", "touched", before[m], after)
		requireSame(t, m+" and a machine never touched", "other", untouchedAfter, after)
	}
	if out := u.mustRun(t, "get", "clusters"); strings.Contains(out, cluster) {
		t.Errorf("the deleted cluster is still listed:\n%s", out)
	}
}

// plansAndTouchesNothing plans twice: the same bytes, and hosts as before.
func (u *user) plansAndTouchesNothing(t *testing.T, file string, machines []string, before map[string]snapshot) {
	first := u.mustRun(t, "plan", "-f", file, "-o", "json")
	if second := u.mustRun(t, "plan", "-f", file, "-o", "json"); first != second {
		t.Errorf("two plans differ:\n%s\n%s", textTail(first), textTail(second))
	}
	if p := decodeJSON[planned](t, first); len(p.Steps) == 0 || p.Digest == "" {
		t.Errorf("a plan for fresh hosts has %d steps and digest %q", len(p.Steps), p.Digest)
	}
	for _, m := range machines {
		requireSame(t, m+" after planning", "touched", before[m], u.takeSnapshot(t, m))
	}
}

// refusesSecondCreate creates what exists: refused, with what to do instead.
func (u *user) refusesSecondCreate(t *testing.T, file string) {
	r := u.mustExit(t, 2, "create", "cluster", "-f", file, "--yes")
	if !strings.Contains(r.stderr, "slipway apply") {
		t.Errorf("the refusal does not name `slipway apply`:\n%s", r.stderr)
	}
}

// appliesNothing applies an unchanged file: nothing restarts, no file is
// written.
func (u *user) appliesNothing(t *testing.T, cluster, file string, machines []string) {
	u.requireEmptyPlan(t, file)
	before := u.recordPulse(t, cluster, machines)
	r := u.mustExit(t, 0, "apply", "-f", file, "--yes")
	t.Logf("applied nothing in %s", r.took.Round(10*time.Millisecond))
	stillBeats(t, "an unchanged apply", before, u.recordPulse(t, cluster, machines))
}

// dropIn has the user's settings of a kubelet.
const dropIn = "/etc/kubernetes/kubelet.conf.d/50-slipway.conf"

// A planStep is a change that a plan names.
type planStep struct{ Task, Host, Kind, Target string }

// changesExactly changes a kubelet setting and a label: the plan names these
// and nothing else, saved it is applied once, and so are the hosts afterwards.
func (u *user) changesExactly(t *testing.T, cluster, file string, machines []string) {
	editSpec(t, file, func(spec map[string]any) {
		kubernetes := childMap(spec, "kubernetes")
		childMap(childMap(kubernetes, "kubelet"), "config")["maxPods"] = 77
		host := spec["hosts"].([]any)[1].(map[string]any)
		childMap(host, "labels")["example.com/zone"] = "east"
	})
	saved := filepath.Join(u.home, "plan.json")
	u.plansExactly(t, u.mustExit(t, 4, "plan", "-f", file, "--exit-code", "-o", "json", "--out", saved).stdout, machines)

	before := u.recordPulse(t, cluster, machines)
	u.mustExit(t, 0, "apply", "-f", saved, "--yes")
	u.waitForNodes(t, cluster, machines...)
	if got := u.mustKubectl(t, cluster, "get", "node", machines[1], "-o", `jsonpath={.metadata.labels.example\.com/zone}`); got != "east" {
		t.Errorf("label is %q, want east", got)
	}
	for _, m := range machines {
		got := u.mustKubectl(t, cluster, "get", "--raw", "/api/v1/nodes/"+m+"/proxy/configz")
		if !strings.Contains(got, `"maxPods":77`) {
			t.Errorf("the kubelet of %s does not run with maxPods 77", m)
		}
	}
	after := u.recordPulse(t, cluster, machines)
	for _, m := range machines {
		for _, changed := range []string{
			"kubelet",                                          // its unit: it was restarted
			"file " + dropIn,                                   // the setting
			"file /var/lib/slipway/apply.lock",                 // its last holder
			"file /var/lib/slipway/ledger/log",                 // what was written
			"file /var/lib/slipway/units/kubelet.service.json", // what the kubelet was started with
		} {
			key := m + " " + changed
			if before[key] == after[key] {
				t.Errorf("a kubelet setting and a label: %s is as it was: %q", key, after[key])
			}
			delete(before, key)
			delete(after, key)
		}
	}
	stillBeats(t, "a kubelet setting and a label", before, after)
	u.requireEmptyPlan(t, file)
	if r := u.mustExit(t, 2, "apply", "-f", saved, "--yes"); !strings.Contains(r.stderr, "have changed since this plan was made") {
		t.Errorf("a plan that was applied is refused for another reason:\n%s", textTail(r.stderr))
	}
}

// plansExactly asserts that a plan has a kubelet setting on all machines and a
// label on the second in it, and no more.
func (u *user) plansExactly(t *testing.T, text string, machines []string) {
	want := []planStep{
		{"nodes.settings", machines[1], "node", machines[1]},
		{"record.cluster", "", "object", "ConfigMap kube-system/slipway-cluster"},
	}
	lines := map[planStep][]string{
		want[0]: {"label example.com/zone=east", "annotation slipway.dev/labels=example.com/zone,node-role.kubernetes.io/worker"},
		want[1]: {"update", "+labels:", "+example.com/zone: east", "+maxPods: 77"},
	}
	for _, m := range machines {
		file, unit := planStep{"kubernetes.kubelet", m, "file", dropIn}, planStep{"kubelet.settings", m, "unit", "kubelet.service"}
		want = append(want, file, unit)
		lines[file], lines[unit] = []string{"content", "+maxPods: 77"}, []string{"restart: " + dropIn + " changes"}
	}
	var got []planStep
	said := map[planStep][]string{}
	for _, s := range decodeJSON[planned](t, text).Steps {
		for _, c := range s.Changes {
			step := planStep{s.Task, s.Host, c.Kind, c.Target}
			got = append(got, step)
			said[step] = append(strings.Split(c.Summary, ", "), changedLines(c.Diff)...)
		}
	}
	byText := func(a, b planStep) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(want, byText)
	slices.SortFunc(got, byText)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the plan for a kubelet setting and a label (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lines, said); diff != "" {
		t.Errorf("what the plan says of each change (-want +got):\n%s", diff)
	}
}

// changedLines returns the lines that a unified diff removes or adds, without their
// indentation.
func changedLines(diff string) []string {
	var out []string
	for line := range strings.Lines(diff) {
		header := strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")
		if !header && (line[0] == '-' || line[0] == '+') {
			out = append(out, line[:1]+strings.TrimSpace(line[1:]))
		}
	}
	return out
}
