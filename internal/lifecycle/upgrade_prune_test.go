package lifecycle

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module/containerruntime"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// brought returns the items that bundles have brought, by machine.
func (w *world) brought() map[string][]string {
	out := map[string][]string{}
	for name, m := range w.Hosts {
		m.Mu.Lock()
		out[name] = m.BundleEntries()
		m.Mu.Unlock()
	}
	return out
}

// keeping checks that machines keep all present items until the step that prunes them, and
// that no step follows it there.
func (w *world) keeping(t *testing.T) {
	for name, had := range w.brought() {
		if len(had) == 0 {
			t.Fatalf("nothing was brought to %s", name)
		}
		m, retires := w.Hosts[name], false
		m.Refuse = func(step string, o op.Op) *op.Error {
			lacks := slices.DeleteFunc(slices.Clone(had), func(what string) bool { return m.State[what] != "" })
			if len(lacks) > 0 || retires {
				t.Errorf("%s before %s %s: it lacks %v, or is already pruned", name, step, o.Target(), lacks)
			}
			retires = step == containerruntime.StepPrune
			return nil
		}
	}
}

// An upgrade removes items that only the previous version has brought at its end, and not
// before.
func TestUpgrade_PrunesPreviousItems(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]func(*testing.T) *world{
		"stacked": func(t *testing.T) *world { return aged(t, threeAndTwo...) },
		"managed etcd": func(t *testing.T) *world {
			w := newWorld(t, "cp1", "e1", "e2", "e3", "w1")
			w.ManagedEtcd = true
			w.age(t)
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := shape(t)
			was := w.brought()
			w.keeping(t)
			p := w.prepared(w.service().Prepare(t.Context(), toNewest, nil))
			var told []string
			for _, s := range p.Plan().Steps {
				if s.Task == containerruntime.StepPrune {
					told = append(told, s.Host)
				}
			}
			if len(told) != len(w.Hosts) {
				t.Errorf("the plan prunes %v, want all hosts", told)
			}
			w.apply(p, event.Succeeded)
			for name, is := range w.brought() {
				for _, what := range was[name] {
					if strings.HasSuffix(what, ":"+older) && slices.Contains(is, what) {
						t.Errorf("%s still has %s", name, what)
					}
				}
				both := slices.DeleteFunc(slices.Clone(is), func(what string) bool { return !slices.Contains(was[name], what) })
				if len(is) == 0 || len(both) == len(was[name]) {
					t.Errorf("%s has %v, and had %v", name, is, was[name])
				}
			}
			w.Version = "v1.37.1"
			w.whole()
		})
	}
}

// A rollback finds all previous items and leaves no item of the newer version.
func TestRollback_PrunesNewerItems(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"kubelet.running", "upgrade.rights"} {
		t.Run(step, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			was := w.brought()
			w.refusing("cp1", step)
			w.do(toNewest, event.Failed)
			for name, m := range w.Hosts {
				m.Mu.Lock()
				is := m.BundleEntries()
				m.Mu.Unlock()
				if lacks := slices.DeleteFunc(slices.Clone(was[name]),
					func(what string) bool { return slices.Contains(is, what) }); len(lacks) > 0 || len(is) == len(was[name]) {
					t.Errorf("%s lacks %v, and has %d things instead of %d", name, lacks, len(is), len(was[name]))
				}
				m.Refuse = func(_ string, o op.Op) *op.Error {
					if o.Kind() != op.KindFetchBlob {
						return nil
					}
					return &op.Error{Reason: "NoBlob", Message: "nobody has " + o.Target()}
				}
			}
			w.rollback(event.Succeeded)
			if d := cmp.Diff(was, w.brought()); d != "" {
				t.Errorf("(-was +is):\n%s", d)
			}
			w.whole()
		})
	}
}

// After an upgrade has started to prune, it cannot be rolled back, only resumed.
func TestUpgrade_CannotRollBackAfterPruning(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	ctx, cut := context.WithCancel(t.Context())
	p := w.prepared(w.service().Prepare(ctx, toNewest, nil))
	res, err := p.Apply(ctx, event.SinkFunc(func(e event.Event) {
		if e.Type == event.StepStarted && e.Task == containerruntime.StepPrune {
			cut()
		}
	}))
	if err != nil || res.Outcome != event.Cancelled {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = w.service().PrepareRollback(t.Context(), rollingBack(), nil)
	wantRefused(t, err, idUpgradeCommitted)
	w.resume(event.Succeeded)
	w.Version = "v1.37.1"
	w.whole()
}

// A host that cannot prune does not fail the upgrade. The next apply prunes it.
func TestUpgrade_SucceedsIfPruningFails(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	w.refusing("w1", containerruntime.StepPrune)
	w.do(toNewest, event.Succeeded)
	w.Version = "v1.37.1"
	w.Hosts["w1"].Refuse = nil
	p := w.prepared(w.service().Prepare(t.Context(), applying(w.Manifest()), nil))
	if steps := p.Plan().Steps; len(steps) != 1 || steps[0].Task != containerruntime.StepPrune || steps[0].Host != "w1" {
		t.Errorf("left to do: %+v", steps)
	}
	w.apply(p, event.Succeeded)
	w.whole()
	w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "upgrade Succeeded", "create Succeeded")
}

// Adding a node prunes nothing on other hosts.
func TestAddNodes_PrunesNothing(t *testing.T) {
	t.Parallel()
	w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1"})
	for _, name := range []string{"cp1", "w1"} {
		w.Hosts[name].State[lifecycletest.KeptBlob+"of an earlier bundle"] = "yes"
	}
	p := w.prepared(w.service().Prepare(t.Context(),
		AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w2")}}, nil))
	for _, s := range p.Plan().Steps {
		if s.Task == containerruntime.StepPrune {
			t.Errorf("the plan prunes %s", s.Host)
		}
	}
}
