package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

func upgradePipeline(t *testing.T, env module.Env) engine.Pipeline {
	t.Helper()
	p, err := UpgradeCluster(env, testParts())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUpgradeCluster_MatchesGolden(t *testing.T) {
	c := plainCluster()
	threeControlPlanes(c)
	env := newEnv(t, c)
	env.Leader = "cp1"
	on := blankHosts(env)
	for _, h := range on {
		h.Facts.Present = []string{module.ClientCert}
	}
	all := operationLists(t, upgradePipeline(t, env), on)
	var b strings.Builder
	for _, at := range slices.Sorted(maps.Keys(all)) {
		if _, host, _ := strings.Cut(at, " on "); strings.HasPrefix(at, "upgrade.") && (host == "cp1" || host == "w1") {
			fmt.Fprintf(&b, "%s\n%s\n", at, printOperations(t, all[at]))
		}
	}
	golden.Check(t, "testdata/upgrade.golden", b.String())
}

// Nodes are upgraded alone or a few at a time: first the leader control plane. A host that
// is not a node is not drained.
func TestUpgradeCluster_OrdersNodesInWaves(t *testing.T) {
	c := plainCluster()
	threeControlPlanes(c)
	c.Spec.Hosts = append(c.Spec.Hosts, host("w8", "192.0.2.98", v1alpha1.RoleWorker), host("w9", "192.0.2.99", v1alpha1.RoleWorker))
	for _, tc := range []struct {
		name, leader string
		how          module.Upgrade
		want         map[string]int
		pauses       []int
	}{
		{"one at a time", "cp1", module.Upgrade{}, map[string]int{"cp1": 0, "cp2": 1, "cp3": 2, "w1": 3, "w2": 4, "w8": 5, "w9": 6}, nil},
		{
			"two at a time", "cp2",
			module.Upgrade{MaxUnavailable: "2", PauseAfter: module.PauseCanary},
			map[string]int{"cp2": 0, "cp1": 1, "cp3": 2, "w1": 3, "w2": 3, "w8": 4, "w9": 4},
			[]int{0},
		},
		{
			"a share", "cp1",
			module.Upgrade{MaxUnavailable: "75%", PauseAfter: module.PauseControlPlane},
			map[string]int{"cp1": 0, "cp2": 1, "cp3": 2, "w1": 3, "w2": 3, "w8": 3, "w9": 4},
			[]int{2},
		},
		{
			"back", "cp2",
			module.Upgrade{MaxUnavailable: "2", IsRollback: true},
			map[string]int{"cp2": 4, "cp1": 3, "cp3": 2, "w1": 1, "w2": 1, "w8": 0, "w9": 0},
			nil,
		},
		{
			"a small share", "cp1",
			module.Upgrade{MaxUnavailable: "1%", PauseAfter: module.PauseWave},
			map[string]int{"cp1": 0, "cp2": 1, "cp3": 2, "w1": 3, "w2": 4, "w8": 5, "w9": 6},
			[]int{0, 1, 2, 3, 4, 5, 6},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := newEnv(t, c)
			env.Leader, env.Upgrade = tc.leader, tc.how
			p := upgradePipeline(t, env)
			m := p.Modules[slices.IndexFunc(p.Modules, func(m engine.Module) bool { return m.Waves != nil })]
			got := map[string]int{}
			for _, h := range blankHosts(env) {
				got[h.Name] = m.Waves(h)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			var pauses []int
			for wave := range 7 {
				if m.Pause(wave) {
					pauses = append(pauses, wave)
				}
			}
			if d := cmp.Diff(tc.pauses, pauses); d != "" {
				t.Errorf("pauses (-want +got):\n%s", d)
			}
		})
	}
	env := newEnv(t, c)
	env.Upgrade.MaxUnavailable = "all"
	if _, err := UpgradeCluster(env, testParts()); err == nil {
		t.Error("an invalid number is accepted")
	}
}

// Everything that a host unpacks in its wave was transferred to it earlier.
func TestUpgradeCluster_PrefetchesUnpackedContent(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Cluster){
		"stacked": func(*v1alpha1.Cluster) {},
		"Docker":  func(c *v1alpha1.Cluster) { c.Spec.ContainerRuntime.Type = "docker" },
		"managed": func(c *v1alpha1.Cluster) {
			c.Spec.Etcd.Type = spec.EtcdManaged
			c.Spec.Hosts = append(c.Spec.Hosts, host("e1", "192.0.2.31", v1alpha1.RoleEtcd))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := plainCluster()
			change(c)
			env := newEnv(t, c)
			env.Leader = "cp1"
			ahead, later := map[string][]string{}, map[string][]string{}
			for at, list := range operationLists(t, upgradePipeline(t, env), blankHosts(env)) {
				step, host, _ := strings.Cut(at, " on ")
				for _, o := range list {
					switch {
					case step == "bundle.ahead" && o.Kind() != op.KindFetchBlob:
						t.Errorf("%s does not only fetch: %s %s", at, o.Kind(), o.Target())
					case step == "bundle.ahead":
						ahead[host] = append(ahead[host], o.Target())
					case o.Kind() == op.KindFetchBlob:
						later[host] = append(later[host], o.Target())
					}
				}
			}
			for _, by := range []map[string][]string{ahead, later} {
				for _, names := range by {
					slices.Sort(names)
				}
			}
			if d := cmp.Diff(later, ahead); d != "" || len(ahead) != len(c.Spec.Hosts) {
				t.Errorf("(-unpacked +ahead):\n%s", d)
			}
		})
	}
}

// A component with another address is checked at that address.
func TestUpgradeCluster_ChecksComponentsAtTheirAddresses(t *testing.T) {
	c := plainCluster()
	c.Spec.Kubernetes.Scheduler.ExtraArgs = map[string]string{"bind-address": "192.0.2.11"}
	c.Spec.Kubernetes.ControllerManager.ExtraArgs = map[string]string{"bind-address": "0.0.0.0"}
	env := newEnv(t, c)
	var got []string
	for _, o := range operationLists(t, upgradePipeline(t, env), blankHosts(env))["upgrade.control-plane on cp1"] {
		if w, ok := o.(op.Wait); ok && w.HTTP != "" {
			got = append(got, w.HTTP)
		}
	}
	want := []string{"https://127.0.0.1:6443/readyz", "https://127.0.0.1:10257/healthz", "https://192.0.2.11:10259/healthz"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A member is replaced only when all members serve; otherwise etcd could lose quorum. If
// the member itself does not serve, nothing waits for it; in a rollback such a member goes
// first.
func TestUpgradeCluster_ReplacesMemberOnlyIfAllServe(t *testing.T) {
	c := plainCluster()
	threeControlPlanes(c)
	for _, back := range []bool{false, true} {
		env := newEnv(t, c)
		env.Leader = "cp1"
		p := upgradePipeline(t, env)
		if back {
			env.Upgrade = module.Upgrade{
				IsRollback: true,
				BegunSteps: map[string]bool{"upgrade.etcd@cp1": true, "upgrade.etcd@cp2": true, "upgrade.etcd@cp3": true},
			}
			var err error
			if p, err = RollbackUpgrade(env, testParts()); err != nil {
				t.Fatal(err)
			}
		}
		seen := 0
		for at, list := range operationLists(t, p, blankHosts(env)) {
			if !strings.HasPrefix(at, "upgrade.etcd ") {
				continue
			}
			seen++
			e, ok := list[0].(op.Exec)
			if !ok {
				t.Fatalf("%s begins with %T", at, list[0])
			}
			gated := e.Gate != nil && slices.Contains(e.Gate.Program, "--cluster") && e.Then != nil && !slices.Contains(e.Then.Program, "--cluster")
			if !gated {
				t.Errorf("%s, rollback %v: gate %+v, then %+v", at, back, e.Gate, e.Then)
			}
		}
		if seen != 3 {
			t.Errorf("rollback %v: %d members are replaced, want 3", back, seen)
		}
	}
}

// In a rollback no host has more steps than in the upgrade.
func TestRollbackUpgrade_RunsOnlyBegunSteps(t *testing.T) {
	c := plainCluster()
	threeControlPlanes(c)
	env := newEnv(t, c)
	env.Leader = "cp1"
	env.Upgrade = module.Upgrade{IsRollback: true, BegunSteps: map[string]bool{"upgrade.kubelet-config@cp2": true, "upgrade.etcd@cp1": true}}
	p, err := RollbackUpgrade(env, testParts())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for at := range operationLists(t, p, blankHosts(env)) {
		if strings.HasPrefix(at, "upgrade.kubelet-config ") || strings.HasPrefix(at, "upgrade.etcd ") {
			got = append(got, at)
		}
	}
	slices.Sort(got)
	if d := cmp.Diff([]string{"upgrade.etcd on cp1", "upgrade.kubelet-config on cp2"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// In a rollback no node is changed before kube-proxy: it must not be newer than an API
// server that it uses.
func TestRollbackUpgrade_RollsBackProxyFirst(t *testing.T) {
	env := newEnv(t, plainCluster())
	env.Upgrade.IsRollback = true
	p, err := RollbackUpgrade(env, testParts())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range p.Modules {
		for _, task := range m.Tasks {
			if m.Waves == nil {
				continue
			}
			if n++; !slices.Contains(task.Needs, "upgrade.proxy") {
				t.Errorf("%s does not wait for kube-proxy", task.ID)
			}
		}
	}
	if n == 0 {
		t.Error("no node is rolled back")
	}
}

// Files of earlier bundles are removed when everything else is done on all hosts, and
// imported images remain. A host that does not take part may still have the previous
// version.
func TestPruneBundles_RunsLast(t *testing.T) {
	c := plainCluster()
	c.Spec.Etcd.Type = spec.EtcdManaged
	c.Spec.Hosts = append(c.Spec.Hosts, host("e1", "192.0.2.31", v1alpha1.RoleEtcd))
	env := newEnv(t, c)
	env.Leader = "cp1"
	for name, build := range map[string]func(module.Env, Parts) (engine.Pipeline, error){
		"apply":   ApplyCluster,
		"upgrade": UpgradeCluster, "revert": RollbackUpgrade,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := build(env, testParts())
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			var last *engine.Task
			eachTask(p, func(task *engine.Task) {
				all, last = append(all, task.ID), task
			})
			if all = all[:len(all)-1]; last.ID != "runtime.retire" || !last.NeedsAll || !slices.Equal(last.Needs, all) {
				t.Errorf("the last task is %s, and needs %v", last.ID, last.Needs)
			}
			ops := operationLists(t, p, blankHosts(env))
			for _, h := range blankHosts(env) {
				var imports, stay []string
				for _, o := range ops["runtime.images on "+h.Name] {
					for _, img := range o.(op.ImportImages).Images {
						imports = append(imports, img.Ref)
					}
				}
				retires := ops["runtime.retire on "+h.Name]
				if len(retires) == 1 {
					stay = retires[0].(op.Prune).Images
				}
				if len(retires) != 1 || !slices.Equal(imports, stay) {
					t.Errorf("%s imports %v, but keeps %v", h.Name, imports, stay)
				}
			}
			if name == "apply" {
				return
			}
			env := env
			env.Absent = []v1alpha1.Host{host("w9", "192.0.2.39", v1alpha1.RoleWorker)}
			if p, err = build(env, testParts()); err != nil {
				t.Fatal(err)
			}
			eachTask(p, func(task *engine.Task) {
				if task.ID == "runtime.retire" {
					t.Error("files are removed although w9 does not take part")
				}
			})
		})
	}
}
