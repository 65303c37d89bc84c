//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
)

// A site is three machines and the cluster on them, made again and again
// under the same names and addresses, so that what is on the machines can be
// compared.
type site struct {
	*user
	name, file string
	machines   []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	const name = "e2e-crash"
	s := &site{user: newUser(t), name: name, machines: []string{name + "-1", name + "-2", name + "-3"}}
	s.file = s.user.machines(t, name, len(s.machines), "--range", "198.19.0.0/16")
	return s
}

// An outcome is a cluster that was made: what is on its machines, and the
// boundaries that its journal has, in order.
type outcome struct {
	hosts      map[string]snapshot
	boundaries []string
}

// undisturbed makes the cluster without any trouble.
func undisturbed(t *testing.T) outcome {
	t.Helper()
	var out outcome
	t.Run("undisturbed", func(t *testing.T) {
		s := newSite(t)
		o := s.start(t, "create", "cluster", "-f", s.file, "--yes")
		for h := range o.events {
			if b := h.boundary(); b != "" && !slices.Contains(out.boundaries, b) {
				out.boundaries = append(out.boundaries, b)
			}
		}
		if code := o.wait(); code != 0 {
			t.Fatalf("create ends with %d:\n%s", code, tail(o.stderr.String()))
		}
		out.hosts = s.look(t)
	})
	if out.hosts == nil {
		t.FailNow()
	}
	return out
}

// look describes the machines of a cluster that has come to rest.
func (s *site) look(t *testing.T) map[string]snapshot {
	t.Helper()
	s.nodes(t, s.name, s.machines...)
	for _, workload := range []string{"deployment/coredns", "daemonset/kube-proxy"} {
		s.kubectl(t, s.name, "-n", "kube-system", "rollout", "status", workload, "--timeout=120s")
	}
	out := map[string]snapshot{}
	for _, m := range s.machines {
		out[m] = s.snapshot(t, m)
	}
	return out
}

// sameCluster asserts that a disturbed run ended where the undisturbed did:
// an empty plan, the same hosts file by file, a working cluster.
func (s *site) sameCluster(t *testing.T, want outcome) {
	t.Helper()
	s.unchanged(t, s.file)
	for m, got := range s.look(t) {
		same(t, m+" of the undisturbed and of the disturbed cluster", "cluster", want.hosts[m], got)
	}
	s.smoke(t, s.name, s.nodes(t, s.name, s.machines...))
}

// createKilledAt creates the cluster and kills the manager each time one of
// the kills comes up, resuming after each, until it is done. Every kill must
// have come up.
func (s *site) createKilledAt(t *testing.T, kills []kill) {
	t.Helper()
	left := slices.Clone(kills)
	match := func(h happening) bool {
		i := slices.IndexFunc(left, func(k kill) bool { return k.at(h) })
		if i < 0 {
			return false
		}
		t.Logf("kill: %s", left[i].name)
		left = slices.Delete(left, i, i+1)
		return true
	}
	watch := look(oneKubeadm)
	defer watch.end(t)
	args := []string{"create", "cluster", "-f", s.file, "--yes"}
	for range len(kills) + 1 {
		o := s.start(t, args...)
		killed, code := o.killWhen(match)
		if !killed {
			if code != 0 {
				t.Fatalf("%s ends with %d:\n%s", strings.Join(args, " "), code, tail(o.stderr.String()))
			}
			break
		}
		args = s.next()
	}
	for _, k := range left {
		t.Errorf("never came up: %s", k.name)
	}
}

// next is what a user types after a crash: resume if the operation was
// recorded, create if the manager died before that.
func (s *site) next() []string {
	if s.recorded() {
		return []string{"resume", s.name, "--yes"}
	}
	return []string{"create", "cluster", "-f", s.file, "--yes"}
}

// A kill is a moment at which the manager dies.
type kill struct {
	name string
	at   func(happening) bool
}

// after is the end of a step.
func after(boundary string) kill {
	return kill{"after " + boundary, func(h happening) bool { return h.boundary() == boundary }}
}

// during is the middle of a task: something has come from its host already.
func during(task string) kill {
	return kill{"during " + task, func(h happening) bool {
		return strings.HasPrefix(h.Task, task) && (h.Type == "step.output" || h.Type == "step.progress" && h.Done > 0 && h.Done < h.Total)
	}}
}

// duringTransfer is the middle of a blob's way to a host.
func duringTransfer() kill {
	return kill{"inside a blob transfer", func(h happening) bool {
		return h.Type == "step.progress" && h.Done > 0 && h.Done < h.Total
	}}
}

// TestCrash kills the manager at five fixed points of one create: early and
// late task boundaries, inside a transfer, inside kubeadm's init and join.
// TestLongCrashEveryBoundary takes them all.
func TestCrash(t *testing.T) {
	want := undisturbed(t)
	t.Run("killed", func(t *testing.T) {
		s := newSite(t)
		s.createKilledAt(t, []kill{
			after(want.boundaries[len(want.boundaries)/6]),
			duringTransfer(),
			during("kubeadm.init."),
			during("join."),
			after(want.boundaries[len(want.boundaries)-2]),
		})
		s.sameCluster(t, want)
	})
}
