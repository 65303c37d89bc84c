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
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
)

// dockered returns a world with a running cluster of the given runtime. The bundle in its
// cache includes Docker.
func dockered(t *testing.T, runtime string, names ...string) *world {
	t.Helper()
	w := newWorld(t, names...)
	w.cache = t.TempDir()
	w.bundled(t, true, "")
	w.Runtime = runtime
	w.create(event.Succeeded)
	return w
}

// bundled puts the bundles of these versions into the cache, with or without Docker. "" is
// the default version.
func (w *world) bundled(t *testing.T, docker bool, versions ...string) {
	t.Helper()
	for _, version := range versions {
		w.bundledWith(t, version, bundle.BuildOptions{Docker: docker})
	}
}

// bundledWith builds the bundle of a version with these options and puts it into the
// cache.
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
	o.Kubernetes, o.Arches, o.Source, o.Cache = version, []string{"amd64"}, bundle.Upstream, w.cache
	o.Releases, o.Upstream = releases, site.Options()
	if _, err := bundle.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// moving returns a request to apply a file that names the other runtime.
func (w *world) moving() ApplyRequest {
	was := w.Runtime
	w.Runtime = "docker"
	if was == "docker" {
		w.Runtime = "containerd"
	}
	return applying(w.Manifest())
}

// runBy checks that all nodes use a runtime, that their kubelets use its socket, and that
// no node is cordoned.
func (w *world) runBy(runtime string) {
	w.t.Helper()
	socket := map[string]string{"docker": "unix:///run/cri-dockerd.sock", "containerd": "unix:///run/containerd/containerd.sock"}[runtime]
	for name, m := range w.Hosts {
		if m.HasFile(module.DockerUnit) != (runtime == "docker") {
			t := "no Docker"
			if runtime == "docker" {
				t = "Docker"
			}
			w.t.Errorf("%s: want %s", name, t)
		}
		for _, file := range []string{"/etc/kubernetes/kubelet.conf.d/50-slipway.conf", "/etc/crictl.yaml"} {
			if !strings.Contains(m.Files[file], socket) {
				w.t.Errorf("%s: %s does not name socket %s: %s", name, file, socket, m.Files[file])
			}
		}
	}
	for name, version := range w.versions() {
		if strings.Contains(version, "cordoned") {
			w.t.Errorf("%s is still cordoned", name)
		}
	}
}

// backAt checks that machines are as before. Bundle blobs that a host has received since
// then are kept until the cluster is deleted.
func (w *world) backAt(before map[string]map[string]string) {
	w.t.Helper()
	for name, m := range w.Hosts {
		for _, blob := range []string{"docker", "cri-dockerd"} {
			maps.DeleteFunc(m.State, func(what, _ string) bool {
				return strings.HasPrefix(what, lifecycletest.KeptBlob+blob+" ") && before[name][what] == ""
			})
		}
	}
	w.asBefore(before)
}

// Each node is drained, changes its runtime and is uncordoned, control planes first; the
// new runtime is fetched before the drain.
func TestMigrate_ChangesRuntimeOneNodeAtATime(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{"containerd": "docker", "docker": "containerd"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			w := dockered(t, from, threeAndTwo...)
			w.whole()
			request := w.moving()
			w.events = nil
			w.do(request, event.Succeeded)
			for _, step := range []string{"upgrade.drain", "reset.runtime", "upgrade.uncordon"} {
				if d := cmp.Diff(threeAndTwo, w.turns(step)); d != "" {
					t.Errorf("%s: want one host after the other, control planes first (-want +got):\n%s", step, d)
				}
			}
			w.before("upgrade.drain", "runtime.ahead")
			w.runBy(to)
			w.whole()
			w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "create Succeeded")
			w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
			w.bare()
		})
	}
}

// before checks that the step done has changed each host before the other step starts
// there.
func (w *world) before(step, done string) {
	w.t.Helper()
	has, begun := map[string]bool{}, 0
	for _, e := range w.events {
		switch {
		case e.Task == done && e.Type == event.StepFinished && e.Outcome == event.Changed:
			has[e.Host] = true
		case e.Task == step && e.Type == event.StepStarted:
			if begun++; !has[e.Host] {
				w.t.Errorf("%s on %s started before %s", step, e.Host, done)
			}
		}
	}
	if begun == 0 {
		w.t.Errorf("%s was never started", step)
	}
}

// As many nodes are out of service at once as the limit allows, and all are back in
// service at the end.
func TestMigrate_KeepsToMaxUnavailable(t *testing.T) {
	t.Parallel()
	w := dockered(t, "containerd", "cp1", "w1", "w2", "w3")
	request := w.moving()
	request.MaxUnavailable = "2"
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
		t.Errorf("%d nodes were out of service at once, want 2; %d still are", most, away)
	}
}

// A change of the runtime together with another change is refused: it would be unclear
// which of them breaks a node.
func TestMigrate_RefusesOtherChangesWithIt(t *testing.T) {
	t.Parallel()
	w := dockered(t, "containerd", "cp1", "w1")
	request := w.moving()
	request.Cluster.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(9)}
	_, err := w.service().Prepare(t.Context(), request, nil)
	refusal(t, err, idMigrationAlone)

	request.Cluster = w.Manifest()
	request.Cluster.Spec.SSH.Password = "canary" // plans do not show it
	w.prepared(w.service().Prepare(t.Context(), request, nil))
}

func TestMigrate_ResumesOrRollsBackAfterKill(t *testing.T) {
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
					k.runBy(k.Runtime)
					k.whole()
					k.same(w)
				})
				t.Run(m.name+", rolled back", func(t *testing.T) {
					k := m.world.fork(t)
					p, err := k.service().PrepareRollback(t.Context(), rollingBack(), nil)
					if unbegun(err) {
						return
					}
					k.apply(k.prepared(p, err), event.Succeeded)
					k.Runtime = from
					k.runBy(from)
					k.backAt(before)
				})
			}
		})
	}
}

// A host that is permanently lost can be removed while a change of the runtime is
// unfinished. The change is then finished or rolled back without the host. The same
// command finishes it as well.
func TestMigrate_FinishesWithoutLostHost(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"cp1", "cp2", "w1"} {
		for name, goOn := range map[string]func(*world, ApplyRequest){
			"resumed":     func(w *world, _ ApplyRequest) { w.resume(event.Succeeded) },
			"rolled back": func(w *world, _ ApplyRequest) { w.Runtime = "containerd"; w.rollback(event.Succeeded) },
			"applied again": func(w *world, r ApplyRequest) {
				r.Cluster = w.Manifest()
				w.do(r, event.Succeeded)
			},
		} {
			t.Run(host+" "+name, func(t *testing.T) {
				w := dockered(t, "containerd", threeAndTwo...)
				w.Hosts[host].Refuse = breaking("runtime.docker")
				request := w.moving()
				w.do(request, event.Failed)
				gone := DeleteNodesRequest{Name: "prod", Nodes: []string{host}, Forget: true}
				_, err := w.service().Prepare(t.Context(), gone, nil)
				wantRefused(t, err, idMigrationAlone) // the host is reachable
				w.Hosts[host].Down = errDown
				w.API.StopMember(host)
				w.API.MarkNodeLost(host)
				_, err = w.service().Prepare(t.Context(), DeleteNodesRequest{Name: "prod", Nodes: []string{host}}, nil)
				wantRefused(t, err, idMigrationAlone)
				_, err = w.service().PrepareResume(t.Context(), resuming(), nil)
				refusal(t, err, string(remote.Unreachable))
				w.do(gone, event.Succeeded)
				delete(w.Hosts, host)
				w.wantPhase(v1alpha1.PhaseFailed)
				if w.API.HasObject("/api/v1/nodes/"+host) || w.API.EtcdRole(host) != "" {
					t.Errorf("%s is still a node or an etcd member", host)
				}
				goOn(w, request)
				w.runBy(w.Runtime)
				w.whole()
			})
		}
	}
}

// If a node does not become healthy with the new runtime, all nodes are rolled back to the
// previous one.
func TestMigrate_RollsBackWhenNodeIsUnhealthy(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"cp1", "cp2", "w1"} {
		t.Run(host, func(t *testing.T) {
			w := dockered(t, "containerd", "cp1", "cp2", "w1")
			before := w.looks()
			w.Hosts[host].Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
				if u, ok := o.(op.Unit); !ok || u.Name != "cri-docker.service" {
					return nil
				}
				return &op.Error{Reason: "UnitFailed", Message: "it does not start"}
			}
			request := w.moving()
			res := w.do(request, event.Failed)
			if !res.Reverted || len(res.Failures) != 1 || res.Failures[0].Host != host {
				t.Fatalf("%+v: want an automatic rollback and one failure, on %s", res, host)
			}
			w.Runtime = "containerd"
			w.runBy("containerd")
			w.backAt(before)
			if turns := w.turns("reset.runtime"); slices.Contains(turns, "w1") != (host == "w1") {
				t.Errorf("after the failure on %s, these hosts were started: %v", host, turns)
			}
		})
	}
}

// endsAPI makes the API unavailable from the reset of a host until its kubelet starts
// again. This plays a host without which etcd has no quorum. The step fails there while
// broken is true.
func (w *world) endsAPI(host, step, reason string, broken *bool) {
	w.Hosts[host].Refuse = func(of string, o op.Op) *op.Error {
		silent := func(is bool) {
			for name, m := range w.Hosts {
				if strings.HasPrefix(name, "cp") {
					m.APISilent = is
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

// If the API is unavailable while a node changes its runtime, this node is finished or
// rolled back first.
func TestMigrate_FinishesNodeWithoutAPI(t *testing.T) {
	for _, hosts := range [][]string{{"cp1", "w1"}, {"cp1", "cp2", "w1"}} {
		at, base := hosts[len(hosts)-2], dockered(t, "containerd", hosts...)
		for name, tc := range map[string]struct {
			step, reason string
			then         func(w *world, broken *bool)
		}{
			"resumed": {"runtime.containerd", "DiskFull", func(w *world, broken *bool) {
				*broken = false
				w.resume(event.Succeeded)
			}},
			"rolled back": {"runtime.docker", "DiskFull", func(w *world, broken *bool) {
				*broken = false
				w.Runtime = "containerd"
				w.rollback(event.Succeeded)
			}},
			"rolled back automatically": {"runtime.docker", "UnitFailed", func(w *world, _ *bool) { w.Runtime = "containerd" }},
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
				w.runBy(w.Runtime)
				w.whole()
			})
		}
	}
}
