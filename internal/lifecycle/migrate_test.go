package lifecycle

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
)

// dockered is a world in whose cache is a bundle with Docker, and in which a cluster
// runs by one runtime.
func dockered(t *testing.T, runtime string, names ...string) *world {
	t.Helper()
	w := newWorld(t, names...)
	w.cache = t.TempDir()
	w.bundled(t, true, "")
	w.runtime = runtime
	w.create(event.Succeeded)
	return w
}

// bundled has bundles of versions, "" for the default, be in the cache, with Docker
// or without.
func (w *world) bundled(t *testing.T, docker bool, versions ...string) {
	t.Helper()
	for _, version := range versions {
		w.bundledWith(t, version, bundle.BuildOptions{Docker: docker})
	}
}

// bundledWith has the bundle of a version be in the cache, with what these options say.
func (w *world) bundledWith(t *testing.T, version string, o bundle.BuildOptions) {
	t.Helper()
	var more []string
	if version != "" {
		more = []string{version}
	}
	site, sums := bundletest.NewSite(t, more...), filepath.Join(t.TempDir(), "releases.yaml")
	if err := os.WriteFile(sums, []byte(site.DockerSums()), 0o600); err != nil {
		t.Fatal(err)
	}
	releases, err := release.Load(sums)
	if err != nil {
		t.Fatal(err)
	}
	o.Kubernetes, o.Arches, o.Source, o.Cache, o.Releases, o.Upstream = version, []string{"amd64"}, bundle.Upstream, w.cache, releases, site.Options()
	if _, err := bundle.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// moving has the file name the other runtime.
func (w *world) moving() Request {
	was := w.runtime
	w.runtime = "docker"
	if was == "docker" {
		w.runtime = "containerd"
	}
	return Request{Kind: operation.Apply, Cluster: w.cluster()}
}

// runBy wants the nodes to be run by a runtime, in service, and the way of their
// kubelets to lead there.
func (w *world) runBy(runtime string) {
	w.t.Helper()
	socket := map[string]string{"docker": "unix:///run/cri-dockerd.sock", "containerd": "unix:///run/containerd/containerd.sock"}[runtime]
	for name, m := range w.machines {
		if m.has(module.DockerUnit) != (runtime == "docker") {
			t := "no Docker"
			if runtime == "docker" {
				t = "Docker"
			}
			w.t.Errorf("%s is to have %s", name, t)
		}
		for _, file := range []string{"/etc/kubernetes/kubelet.conf.d/50-slipway.conf", "/etc/crictl.yaml"} {
			if !strings.Contains(m.files[file], socket) {
				w.t.Errorf("%s: %s does not lead to %s: %s", name, file, socket, m.files[file])
			}
		}
	}
	for name, version := range w.versions() {
		if strings.Contains(version, "cordoned") {
			w.t.Errorf("%s is out of service", name)
		}
	}
}

// backAt wants machines as they were. The bundle's blobs that have come to a host
// since stay until the cluster goes.
func (w *world) backAt(before map[string]map[string]string) {
	w.t.Helper()
	for name, m := range w.machines {
		for _, blob := range []string{"docker", "cri-dockerd"} {
			maps.DeleteFunc(m.state, func(what, _ string) bool {
				return strings.HasPrefix(what, keptBlob+blob+" ") && before[name][what] == ""
			})
		}
	}
	w.asBefore(before)
}

func TestMigrate(t *testing.T) {
	for from, to := range map[string]string{"containerd": "docker", "docker": "containerd"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			w := dockered(t, from, threeAndTwo...)
			w.whole()
			request := w.moving()
			w.events = nil
			w.do(request, event.Succeeded)
			for _, step := range []string{"upgrade.drain", "reset.runtime", "upgrade.uncordon"} {
				if d := cmp.Diff(threeAndTwo, w.turns(step)); d != "" {
					t.Errorf("%s: one after the other, control planes first (-want +got):\n%s", step, d)
				}
			}
			w.before("upgrade.drain", "runtime.ahead")
			w.runBy(to)
			w.whole()
			w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "create Succeeded")
			w.do(Request{Kind: operation.Delete, Name: "prod"}, event.Succeeded)
			w.bare()
		})
	}
}

// before wants a step to have been done on each host before another is begun there.
func (w *world) before(step, done string) {
	w.t.Helper()
	has, begun := map[string]bool{}, 0
	for _, e := range w.events {
		switch {
		case e.Task == done && e.Type == event.StepFinished && e.Outcome == event.Changed:
			has[e.Host] = true
		case e.Task == step && e.Type == event.StepStarted:
			if begun++; !has[e.Host] {
				w.t.Errorf("%s on %s is not behind %s", step, e.Host, done)
			}
		}
	}
	if begun == 0 {
		w.t.Errorf("%s was never begun", step)
	}
}

// As many workers at once as may be away are, and each node is drained before what
// it runs ends, and back in service before the next is touched.
func TestMigrateInTurn(t *testing.T) {
	w := dockered(t, "containerd", "cp1", "w1", "w2", "w3")
	request := w.moving()
	request.Rollout.MaxUnavailable = "2"
	w.events = nil
	w.do(request, event.Succeeded)
	away, most := 0, 0
	for _, e := range w.events {
		if e.Type != event.StepFinished || e.Outcome != event.Changed {
			continue
		}
		switch e.Task {
		case "upgrade.drain":
			away++
		case "upgrade.uncordon":
			away--
		}
		most = max(most, away)
	}
	if away != 0 || most != 2 {
		t.Errorf("%d nodes were away at once, want 2, and %d still are", most, away)
	}
}

// A change of the runtime and of something else would not tell what a node does not
// serve with.
func TestMigrateAlone(t *testing.T) {
	w := dockered(t, "containerd", "cp1", "w1")
	request := w.moving()
	request.Cluster.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(9)}
	_, err := w.service().Prepare(t.Context(), request, nil)
	refusal(t, err, idMigrationAlone)

	request.Cluster = w.cluster()
	request.Cluster.Spec.SSH.Password = "canary" // of which no plan tells
	w.prepared(w.service().Prepare(t.Context(), request, nil))
}

func TestKilledMigrate(t *testing.T) {
	for _, from := range []string{"containerd", "docker"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			w := dockered(t, from, "cp1", "cp2", "w1")
			before := w.looks()
			request := w.moving()
			for _, m := range w.killed(t, request) {
				t.Run(m.name, func(t *testing.T) {
					k := m.world.fork(t)
					k.goOn(request)
					k.runBy(k.runtime)
					k.whole()
					k.same(w)
				})
				t.Run(m.name+", and back", func(t *testing.T) {
					k := m.world.fork(t)
					p, err := k.service().PrepareRollback(t.Context(), "prod", Request{}, nil)
					if unbegun(err) {
						return
					}
					k.apply(k.prepared(p, err), event.Succeeded)
					k.runtime = from
					k.runBy(from)
					k.backAt(before)
				})
			}
		})
	}
}

// A host that is gone for good is taken off in the midst of a change, which then is
// finished, or taken back, without it; the same command goes on as well.
func TestMigrateLosesAHost(t *testing.T) {
	for _, host := range []string{"cp1", "cp2", "w1"} {
		for name, goOn := range map[string]func(*world, Request){
			"and on":   func(w *world, _ Request) { w.resume(event.Succeeded) },
			"and back": func(w *world, _ Request) { w.runtime = "containerd"; w.rollback(event.Succeeded) },
			"and the same again": func(w *world, r Request) {
				r.Cluster = w.cluster()
				w.do(r, event.Succeeded)
			},
		} {
			t.Run(host+" "+name, func(t *testing.T) {
				w := dockered(t, "containerd", threeAndTwo...)
				w.machines[host].refuse = breaking("runtime.docker")
				request := w.moving()
				w.do(request, event.Failed)
				gone := Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{host}, Forget: true}
				_, err := w.service().Prepare(t.Context(), gone, nil)
				wantRefused(t, err, idMigrationAlone) // it answers
				w.machines[host].down = errDown
				w.api.lost(host)
				w.api.lose(host)
				_, err = w.service().Prepare(t.Context(), Request{Kind: operation.DeleteNodes, Name: "prod", Nodes: []string{host}}, nil)
				wantRefused(t, err, idMigrationAlone)
				_, err = w.service().PrepareResume(t.Context(), "prod", Request{}, nil)
				refusal(t, err, string(remote.Unreachable))
				w.do(gone, event.Succeeded)
				delete(w.machines, host)
				w.wantPhase(v1alpha1.PhaseFailed)
				if w.api.has("/api/v1/nodes/"+host) || w.api.etcd(host) != "" {
					t.Errorf("%s is still a node, or a member of etcd", host)
				}
				goOn(w, request)
				w.runBy(w.runtime)
				w.whole()
			})
		}
	}
}

// A node that does not serve by the new runtime takes all back to the one before.
func TestMigrateGoesBack(t *testing.T) {
	for _, host := range []string{"cp1", "cp2", "w1"} {
		t.Run(host, func(t *testing.T) {
			w := dockered(t, "containerd", "cp1", "cp2", "w1")
			before := w.looks()
			w.machines[host].spoils = func(m *machine, _ string, o op.Op) *op.Error {
				if u, ok := o.(op.Unit); !ok || u.Name != "cri-docker.service" {
					return nil
				}
				return &op.Error{Reason: "UnitFailed", Message: "it does not start"}
			}
			request := w.moving()
			res := w.do(request, event.Failed)
			if !res.Reverted || len(res.Failures) != 1 || res.Failures[0].Host != host {
				t.Fatalf("%+v: want it back by itself, and a failure of %s", res, host)
			}
			w.runtime = "containerd"
			w.runBy("containerd")
			w.backAt(before)
			if turns := w.turns("reset.runtime"); slices.Contains(turns, "w1") != (host == "w1") {
				t.Errorf("those after %s were begun: %v", host, turns)
			}
		})
	}
}

// endsAPI has the API go with what a host runs, until its kubelet is started again:
// its member of etcd is the only one, or the others are too few without it. A step
// fails there for as long as broken says.
func (w *world) endsAPI(host, step, reason string, broken *bool) {
	w.machines[host].refuse = func(of string, o op.Op) *op.Error {
		silent := func(is bool) {
			for name, m := range w.machines {
				if strings.HasPrefix(name, "cp") {
					m.silent = is
				}
			}
		}
		switch u, unit := o.(op.Unit); {
		case o.Kind() == op.KindReset:
			silent(true)
		case of == step && *broken:
			return &op.Error{Reason: reason, Message: "it does not come up"}
		case unit && u.Name == "kubelet.service":
			silent(false)
		}
		return nil
	}
}

// Where the API ends with the node that changes over, it is this node that goes on,
// or back, before anybody is asked.
func TestMigrateEndsTheAPI(t *testing.T) {
	for _, hosts := range [][]string{{"cp1", "w1"}, {"cp1", "cp2", "w1"}} {
		at, base := hosts[len(hosts)-2], dockered(t, "containerd", hosts...)
		for name, tc := range map[string]struct {
			step, reason string
			then         func(w *world, broken *bool)
		}{
			"and on": {"runtime.containerd", "DiskFull", func(w *world, broken *bool) {
				*broken = false
				w.resume(event.Succeeded)
			}},
			"and back": {"runtime.docker", "DiskFull", func(w *world, broken *bool) {
				*broken = false
				w.runtime = "containerd"
				w.rollback(event.Succeeded)
			}},
			"and back by itself": {"runtime.docker", "UnitFailed", func(w *world, _ *bool) { w.runtime = "containerd" }},
		} {
			t.Run(at+" "+name, func(t *testing.T) {
				t.Parallel()
				w, broken := base.fork(t), true
				w.endsAPI(at, tc.step, tc.reason, &broken)
				request := w.moving()
				if res := w.do(request, event.Failed); res.Reverted != (tc.reason == "UnitFailed") {
					t.Fatalf("%+v", res)
				}
				tc.then(w, &broken)
				w.runBy(w.runtime)
				w.whole()
			})
		}
	}
}
