//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCreate is a cluster's whole life on three machines, with a fourth that
// nobody touches beside them.
func TestCreate(t *testing.T) {
	u := newUser(t)
	const name = "e2e-create"
	machines := []string{name + "-1", name + "-2", name + "-3"}
	control := name + "-4"
	file := u.machines(t, name, 4)
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:3] })

	before := map[string]snapshot{}
	for _, m := range append(slices.Clone(machines), control) {
		before[m] = u.snapshot(t, m)
		before[m].untouched(t, m)
	}

	t.Run("plan", func(t *testing.T) { u.plansAndTouchesNothing(t, file, machines, before) })
	if t.Failed() {
		return
	}
	r := u.create(t, file)
	t.Logf("created in %s, at most %d MiB", r.took.Round(100*time.Millisecond), r.maxRSS>>20)
	addresses := u.nodes(t, name, machines...)
	t.Run("smoke", func(t *testing.T) { u.smoke(t, name, addresses) })
	t.Run("host port", func(t *testing.T) { u.hostPort(t, name, machines[1], addresses[machines[1]]) })
	t.Run("refused", func(t *testing.T) { u.refusesSecondCreate(t, file) })
	t.Run("apply again", func(t *testing.T) { u.appliesNothing(t, name, file, machines) })
	t.Run("change", func(t *testing.T) { u.changesExactly(t, name, file, machines) })
	t.Run("delete", func(t *testing.T) {
		u.exits(t, 0, "delete", "cluster", name, "--yes", "--allow-removal")
		untouchedAfter := u.snapshot(t, control)
		same(t, control+", which nobody touched", "touched", before[control], untouchedAfter)
		for _, m := range machines {
			after := u.snapshot(t, m)
			same(t, m+" before and after", "touched", before[m], after)
			same(t, m+" and a machine never touched", "other", untouchedAfter, after)
		}
		if out := u.ok(t, "get", "clusters"); strings.Contains(out, name) {
			t.Errorf("the deleted cluster is still listed:\n%s", out)
		}
	})
}

// plansAndTouchesNothing plans twice: the same bytes, and hosts as before.
func (u *user) plansAndTouchesNothing(t *testing.T, file string, machines []string, before map[string]snapshot) {
	first := u.ok(t, "plan", "-f", file, "-o", "json")
	if second := u.ok(t, "plan", "-f", file, "-o", "json"); first != second {
		t.Errorf("two plans differ:\n%s\n%s", tail(first), tail(second))
	}
	if p := decode[planned](t, first); len(p.Steps) == 0 || p.Digest == "" {
		t.Errorf("a plan for fresh hosts has %d steps and digest %q", len(p.Steps), p.Digest)
	}
	for _, m := range machines {
		same(t, m+" after planning", "touched", before[m], u.snapshot(t, m))
	}
}

// refusesSecondCreate creates what exists: refused, with what to do instead.
func (u *user) refusesSecondCreate(t *testing.T, file string) {
	r := u.exits(t, 2, "create", "cluster", "-f", file, "--yes")
	if !strings.Contains(r.stderr, "slipway apply") {
		t.Errorf("the refusal does not name `slipway apply`:\n%s", r.stderr)
	}
}

// appliesNothing applies an unchanged file: nothing restarts, no file is
// written.
func (u *user) appliesNothing(t *testing.T, cluster, file string, machines []string) {
	u.unchanged(t, file)
	before := u.pulse(t, cluster, machines)
	r := u.exits(t, 0, "apply", "-f", file, "--yes")
	t.Logf("applied nothing in %s", r.took.Round(10*time.Millisecond))
	stillBeats(t, "an unchanged apply", before, u.pulse(t, cluster, machines))
}

// changesExactly changes a kubelet setting and a label: the plan names these
// and nothing else, and so do the hosts afterwards.
func (u *user) changesExactly(t *testing.T, cluster, file string, machines []string) {
	editSpec(t, file, func(spec map[string]any) {
		kubernetes := child(spec, "kubernetes")
		child(child(kubernetes, "kubelet"), "config")["maxPods"] = 77
		host := spec["hosts"].([]any)[1].(map[string]any)
		child(host, "labels")["example.com/zone"] = "east"
	})
	p := decode[planned](t, u.exits(t, 4, "plan", "-f", file, "--exit-code", "-o", "json").stdout)
	for _, s := range p.Steps {
		for _, c := range s.Changes {
			about := s.Task + " " + c.Kind + " " + c.Target + " " + c.Summary
			// The record of the spec in the cluster follows the spec.
			if !strings.Contains(about, "kubelet") && !strings.Contains(about, "label") && s.Task != "record.cluster" {
				t.Errorf("the plan for a kubelet setting and a label names %q on %q", about, s.Host)
			}
		}
	}
	before := u.pulse(t, cluster, machines)
	u.exits(t, 0, "apply", "-f", file, "--yes")
	u.nodes(t, cluster, machines...)
	if got := u.kubectl(t, cluster, "get", "node", machines[1], "-o", `jsonpath={.metadata.labels.example\.com/zone}`); got != "east" {
		t.Errorf("label is %q, want east", got)
	}
	for _, m := range machines {
		got := u.kubectl(t, cluster, "get", "--raw", "/api/v1/nodes/"+m+"/proxy/configz")
		if !strings.Contains(got, `"maxPods":77`) {
			t.Errorf("the kubelet of %s does not run with maxPods 77", m)
		}
	}
	after := u.pulse(t, cluster, machines)
	for key := range after {
		if strings.Contains(key, "kubelet") || strings.Contains(key, "slipway") {
			delete(before, key)
			delete(after, key)
		}
	}
	stillBeats(t, "a kubelet setting and a label", before, after)
	u.unchanged(t, file)
}
