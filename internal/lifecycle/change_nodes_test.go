package lifecycle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

// of describes a cluster on some of the machines.
func (w *world) of(names ...string) *v1alpha1.Cluster {
	c := w.Manifest()
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return !slices.Contains(names, h.Name) })
	return c
}

// running returns a world in which a cluster runs on some of the machines.
func running(t *testing.T, machines, cluster []string) *world {
	t.Helper()
	w := newWorld(t, machines...)
	w.do(creating(w.of(cluster...)), event.Succeeded)
	return w
}

func (w *world) flag(name string) spec.HostFlag {
	return spec.HostFlag{Address: w.Hosts[name].Address, Name: name, Roles: []v1alpha1.Role{v1alpha1.RoleWorker}}
}

// wantHosts checks that the cluster runs on exactly these machines, also in both saved
// states. The other machines must be reset.
func (w *world) wantHosts(names ...string) {
	w.t.Helper()
	w.wantRecords(names...)
	all := w.Hosts
	w.Hosts = map[string]*lifecycletest.Host{}
	for name, m := range all {
		if slices.Contains(names, name) {
			w.Hosts[name] = m
			continue
		}
		if m.Down == nil && (len(m.AllState()) > 0 || m.HasLedger || m.Lock.Held) {
			w.t.Errorf("%s was not reset: %v", name, m.AllState())
		}
		if w.API.HasObject("/api/v1/nodes/" + name) {
			w.t.Errorf("%s is still a node", name)
		}
	}
	w.whole()
	w.Hosts = all
	w.wantPhase(v1alpha1.PhaseRunning)
}

// touched returns the hosts that a plan has steps on.
func touched(p *plan.Plan) (hosts []string) {
	for _, s := range p.Steps {
		if s.Host != "" && s.Task != "certs.approve" && !slices.Contains(hosts, s.Host) {
			hosts = append(hosts, s.Host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// withoutKubelets removes the list of approved kubelets, which only control planes have,
// from the files of a machine.
func withoutKubelets(look map[string]string) map[string]string {
	delete(look, "/etc/slipway/approve.json")
	return look
}

func TestChangeNodes_TouchesOnlyChangedHosts(t *testing.T) {
	t.Parallel()
	machines := []string{"cp1", "w1", "w2", "w3"}
	for _, tc := range []struct {
		name, reason string
		before       []string
		request      func(*world) Request
		touches      []string
		asks         []string // machines that are connected to
		removes      int
		after        []string
	}{
		{
			"add one", "other nodes are unchanged, and only the control plane is queried",
			[]string{"cp1", "w1"},
			func(w *world) Request {
				return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w2")}}
			},
			[]string{"w2"},
			[]string{"cp1", "w2"},
			0,
			[]string{"cp1", "w1", "w2"},
		},
		{
			"add many from a file", "all new hosts of the file",
			[]string{"cp1", "w1"},
			func(w *world) Request { return AddNodesRequest{Subject: Subject{Cluster: w.Manifest()}} },
			[]string{"w2", "w3"},
			[]string{"cp1", "w2", "w3"},
			0,
			[]string{"cp1", "w1", "w2", "w3"},
		},
		{
			"add one before others", "state has the order of the file, and a later apply changes nothing",
			[]string{"cp1", "w2"},
			func(w *world) Request { return AddNodesRequest{Subject: Subject{Cluster: w.of("cp1", "w1", "w2")}} },
			[]string{"w1"},
			[]string{"cp1", "w1"},
			0,
			[]string{"cp1", "w1", "w2"},
		},
		{
			"apply a file with one more", "the same plan, after checking all hosts",
			[]string{"cp1", "w1"},
			func(w *world) Request { return applying(w.of("cp1", "w1", "w2")) },
			[]string{"w2"},
			[]string{"cp1", "w1", "w2"},
			0,
			[]string{"cp1", "w1", "w2"},
		},
		{
			"remove one", "the others are unchanged",
			[]string{"cp1", "w1", "w2"},
			func(*world) Request { return DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}} },
			[]string{"w1"},
			[]string{"cp1", "w1"},
			1,
			[]string{"cp1", "w2"},
		},
		{
			"remove many", "by a selector", machines,
			func(*world) Request {
				return DeleteNodesRequest{Name: "prod", Nodes: []string{"w[2:3]"}}
			},
			[]string{"w2", "w3"},
			[]string{"cp1", "w2", "w3"},
			2,
			[]string{"cp1", "w1"},
		},
		{
			"apply a file with one less and one more", "the new node is ready before the old one leaves",
			[]string{"cp1", "w1", "w2"},
			func(w *world) Request { return applying(w.of("cp1", "w2", "w3")) },
			[]string{"w1", "w3"},
			machines, 1,
			[]string{"cp1", "w2", "w3"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, machines, tc.before)
			asked := w.dialled()
			p := w.prepared(w.service().Prepare(t.Context(), tc.request(w), nil))
			if d := cmp.Diff(tc.touches, touched(p.Plan())); d != "" {
				t.Errorf("hosts with steps (-want +got):\n%s%s", d, tc.reason)
			}
			if d := cmp.Diff(tc.asks, asked()); d != "" {
				t.Errorf("connected hosts (-want +got):\n%s%s", d, tc.reason)
			}
			if len(p.Plan().Removes) != tc.removes {
				t.Errorf("the plan removes %v", p.Plan().Removes)
			}
			others := map[string]map[string]string{}
			for name, m := range w.Hosts {
				if !slices.Contains(tc.touches, name) {
					others[name] = withoutKubelets(m.AllState())
				}
			}
			w.apply(p, event.Succeeded)
			for name, was := range others {
				if d := cmp.Diff(was, withoutKubelets(w.Hosts[name].AllState())); d != "" {
					t.Errorf("%s was changed (-before +after):\n%s", name, d)
				}
			}
			w.wantHosts(tc.after...)
		})
	}
}

// Removing a node also removes a pod of CoreDNS. The operation waits for its replacement,
// so the next plan need not wait.
func TestRemoveNode_WaitsForCoreDNS(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		dead         bool
	}{
		{"drained", "its pods are recreated elsewhere while it is reset", false},
		{"dead", "its pods are recreated when it is force-removed", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, threeAndTwo, threeAndTwo)
			if tc.dead {
				w.Hosts["w1"].Down = errDown
				w.API.MarkNodeLost("w1")
			}
			w.API.DNSMoving = 2
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Forget: tc.dead}, event.Succeeded)
			if w.API.DNSAway != 0 {
				t.Errorf("the operation ended while a CoreDNS pod was missing: %s", tc.reason)
			}
			w.wantHosts("cp1", "cp2", "cp3", "w2")
		})
	}
}

// dialled starts to record connections and returns a function that lists the connected
// machines.
func (w *world) dialled() func() []string {
	w.Dials = map[string]bool{}
	return func() (out []string) {
		for name := range w.Dials {
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
}

func TestRemoveNode_DeadHost(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(w *world, forget bool) Request{
		"by name": func(_ *world, forget bool) Request {
			return DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Forget: forget}
		},
		"by a file": func(w *world, forget bool) Request {
			r := applying(w.of("cp1", "w2"))
			r.Forget = forget
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1", "w2"})
			w.Hosts["w1"].Down = errDown
			_, err := w.service().Prepare(t.Context(), request(w, false), nil)
			refusal(t, err, "host-unreachable")
			if err != nil && !strings.Contains(err.Error(), "--forget") {
				t.Errorf("the refusal has no remedy: %v", err)
			}
			w.API.MarkNodeLost("w1")
			res := w.do(request(w, true), event.Succeeded)
			if len(res.Ready) == 0 || !strings.Contains(res.Ready[0], "its files remain on the host") {
				t.Errorf("the result is %v, want the files that remain", res.Ready)
			}
			w.wantHosts("cp1", "w2")

			if ids := w.forgotten(); !strings.Contains(ids, "id-w1") {
				t.Errorf("the cluster does not reject the machine: it rejects %q", ids)
			}

			w.Hosts["w1"].Down = nil
			add := AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w1")}}
			_, err = w.service().Prepare(t.Context(), add, nil)
			refusal(t, err, idHostReturned)
			w.Hosts["192.0.2.12"] = w.Hosts["w1"] // the user names it by its address now
			w.do(DeleteNodesRequest{Name: "prod", Hosts: []spec.HostFlag{{Address: "192.0.2.12"}}}, event.Succeeded)
			delete(w.Hosts, "192.0.2.12")
			if ids := w.forgotten(); ids != "" {
				t.Errorf("the machine is reset, and the cluster still rejects %q", ids)
			}
			w.wantHosts("cp1", "w2")
			w.do(add, event.Succeeded)
			if !w.API.HasObject("/api/v1/nodes/w1") {
				t.Error("w1 did not join again")
			}
		})
	}
}

// forgotten returns the machine ids that the cluster rejects.
func (w *world) forgotten() string {
	for p, o := range w.API.Objects {
		if strings.HasSuffix(p, "/validatingadmissionpolicies/slipway-forgotten-machines") {
			return o["metadata"].(object)["annotations"].(object)["slipway.dev/machine-ids"].(string)
		}
	}
	return ""
}

// TestReplaceNode_DeadMachine replaces a dead machine.
func TestReplaceNode_DeadMachine(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(*world) Request{
		"by a flag": func(w *world) Request {
			return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w1")}}
		},
		"by a file": func(w *world) Request { return applying(w.Manifest()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1", "w2"})
			w.Hosts["w1"] = lifecycletest.NewHost("w1", "192.0.2.31", w.API)
			w.Hosts["w1"].MachineID = "id-new"
			_, err := w.service().Prepare(t.Context(), request(w), nil)
			refusal(t, err, "node-runs")
			w.API.MarkNodeLost("w1")
			p := w.prepared(w.service().Prepare(t.Context(), request(w), nil))
			if !slices.ContainsFunc(p.Plan().Steps, func(s plan.Step) bool {
				return s.Task == "leave.replaced" && s.Host == "w1" && strings.Contains(s.Changes[0].Summary, "machine id id-w1")
			}) {
				t.Errorf("the plan does not list the removal of the other machine's node: %+v", p.Plan().Steps)
			}
			w.apply(p, event.Succeeded)
			w.wantHosts("cp1", "w1", "w2")
			if ids := w.forgotten(); ids != "id-w1" {
				t.Errorf("the cluster rejects %q, want the previous machine", ids)
			}
			if got := w.API.Objects["/api/v1/nodes/w1"]["status"].(object)["nodeInfo"].(object)["machineID"]; got != "id-new" {
				t.Errorf("node w1 is machine %v", got)
			}
		})
	}
}

// TestChangeNodes_ReportsFinishedHosts makes one or both of two hosts fail, and checks which are reported as
// added or removed.
func TestChangeNodes_ReportsFinishedHosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		before  []string
		request func(*world) Request
		breaks  map[string]string // machine → task
		ready   []string
	}{
		{
			"one of two joins",
			[]string{"cp1"},
			func(w *world) Request { return AddNodesRequest{Subject: Subject{Cluster: w.Manifest()}} },
			map[string]string{"w2": "join.kubelet-start"},
			[]string{"1 node ready: w1"},
		},
		{
			"none joins",
			[]string{"cp1"},
			func(w *world) Request { return AddNodesRequest{Subject: Subject{Cluster: w.Manifest()}} },
			map[string]string{"w1": "join.kubelet-start", "w2": "join.kubelet-start"},
			nil,
		},
		{
			"one of two leaves",
			[]string{"cp1", "w1", "w2"},
			func(*world) Request {
				return DeleteNodesRequest{Name: "prod", Nodes: []string{"w1", "w2"}}
			},
			map[string]string{"w2": "reset.restore"},
			[]string{"w1 was removed from the cluster and reset"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1", "w2"}, tc.before)
			for name, task := range tc.breaks {
				w.Hosts[name].Refuse = breaking(task)
			}
			r := despiteErrors(tc.request(w))
			if d := cmp.Diff(tc.ready, w.do(r, event.Partial).Ready); d != "" {
				t.Errorf("reported hosts (-want +got):\n%s", d)
			}
		})
	}
}

// State holds exactly the hosts that remain, however the operation ended. A later
// operation neither joins a removed host again nor forgets a remaining one.
func TestRemoveNodes_SavesRemainingHosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		leave func(*world) Request
		end   event.Outcome
	}{
		{"failed", func(*world) Request {
			return DeleteNodesRequest{Name: "prod", Nodes: []string{"w1", "w2"}}
		}, event.Failed},
		{"failed, by a file", func(w *world) Request { return applying(w.of("cp1")) }, event.Failed},
		{"finished without one", func(*world) Request {
			return DeleteNodesRequest{Name: "prod", Options: Options{IgnoreErrors: true}, Nodes: []string{"w1", "w2"}}
		}, event.Partial},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1", "w2"})
			w.Hosts["w2"].Refuse = breaking("reset.restore")
			w.do(tc.leave(w), tc.end)
			w.wantRecords("cp1", "w2")
			list, err := w.service().Clusters(t.Context())
			if err != nil || list[0].Hosts != 2 || list[0].Ready > 2 {
				t.Errorf("clusters %+v, %v", list, err)
			}
			w.Hosts["w2"].Refuse = nil
			again := w.prepared(w.service().Prepare(t.Context(), ApplyRequest{Subject: Subject{Name: "prod"}}, nil))
			if slices.Contains(touched(again.Plan()), "w1") {
				t.Error("the next apply joins w1 again")
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			w.resume(event.Succeeded)
			w.wantHosts("cp1")
		})
	}
}

// wantRecords checks that the manager's state and the state in the cluster list exactly
// these hosts.
func (w *world) wantRecords(names ...string) {
	w.t.Helper()
	c, err := w.service().Records.Clusters().Load(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	inside := &v1alpha1.Cluster{}
	text := w.API.Objects["/api/v1/namespaces/kube-system/configmaps/slipway-cluster"]["data"].(object)["cluster.yaml"].(string)
	if err := yaml.Unmarshal([]byte(text), inside); err != nil {
		w.t.Fatal(err)
	}
	for where, c := range map[string]*v1alpha1.Cluster{"the manager's record": c, "the record in the cluster": inside} {
		var have []string
		for _, h := range c.Spec.Hosts {
			have = append(have, h.Name)
		}
		if d := cmp.Diff(names, have); d != "" {
			w.t.Errorf("hosts on %s (-want +got):\n%s", where, d)
		}
	}
}

// The cluster file belongs to the user. Hosts added on the command line are missing from
// it, so a warning reports the difference.
func TestAddNodes_WarnsOfDifferentFile(t *testing.T) {
	t.Parallel()
	w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1"})
	warned := func(r Request) bool {
		t.Helper()
		p := w.prepared(w.service().Prepare(t.Context(), r, nil))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(p.Findings(), func(d diag.Diagnostic) bool { return d.ID == idFileDiffers && d.Severity == diag.Warning })
	}
	add := AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w2")}}
	if warned(add) {
		t.Error("a warning without a saved file")
	}
	text, err := spec.Marshal(w.of("cp1", "w1"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "prod.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w.do(ApplyRequest{Subject: Subject{Cluster: w.tuned("cp1", "w1"), Source: text, File: path}}, event.Succeeded)
	if !warned(add) {
		t.Error("no warning, but the file has no w2")
	}
	if warned(AddNodesRequest{Subject: Subject{Cluster: w.tuned("cp1", "w2", "w1"), Source: text, File: path}}) {
		t.Error("a warning about the order of hosts")
	}
	if !warned(AddNodesRequest{Subject: Subject{Cluster: w.of("cp1", "w1", "w2"), Source: text, File: path}}) {
		t.Error("no warning, but the file has another setting")
	}
}

// tuned describes a cluster on some of the machines, with a setting.
func (w *world) tuned(names ...string) *v1alpha1.Cluster {
	c := w.of(names...)
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)}
	return c
}

func TestChangeNodes_Refused(t *testing.T) {
	t.Parallel()
	roles := func(c *v1alpha1.Cluster, roles ...v1alpha1.Role) *v1alpha1.Cluster {
		c.Spec.Hosts[0].Roles = roles
		return c
	}
	renamed := func(c *v1alpha1.Cluster) *v1alpha1.Cluster {
		c.Spec.Hosts[1].Name = "w9"
		return c
	}
	for _, tc := range []struct {
		name, reason string
		request      func(*world) Request
		id           string
	}{
		{
			"last control plane", "nothing would be left",
			func(*world) Request {
				return DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}
			}, idLastControlPlane,
		},
		{
			"unknown node", "a misspelt name must not pass",
			func(*world) Request { return DeleteNodesRequest{Name: "prod", Nodes: []string{"w7"}} }, "unknown-host",
		},
		{
			"nothing new", "the file has no new host",
			func(w *world) Request { return AddNodesRequest{Subject: Subject{Cluster: w.of("cp1", "w1")}} }, idNoNewHost,
		},
		{"other roles", "roles cannot change", func(w *world) Request {
			return applying(roles(w.of("cp1", "w1"), v1alpha1.RoleControlPlane, v1alpha1.RoleWorker))
		}, "roles-fixed"},
		{"renamed", "one machine is not two nodes", func(w *world) Request {
			w.Hosts["w9"] = w.Hosts["w1"]
			return applying(renamed(w.of("cp1", "w1")))
		}, idHostRenamed},
		{"replaces a dead node under a new name", "it must not count as the other node", func(w *world) Request {
			w.Hosts["w9"] = lifecycletest.NewHost("w9", w.Hosts["w1"].Address, w.API)
			w.Hosts["w1"].Down = errDown
			return ApplyRequest{Subject: Subject{Cluster: renamed(w.of("cp1", "w1"))}, ApplyOptions: ApplyOptions{Forget: true}}
		}, idHostRenamed},
		{"a second control plane, mode none", "the mode of the cluster counts", func(w *world) Request {
			flag := w.flag("w2")
			flag.Name, flag.Roles = "cp2", []v1alpha1.Role{v1alpha1.RoleControlPlane}
			return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{flag}}
		}, idEndpointMode},
		{"a second control plane, mode none in state", "an addition does not apply the mode of the file", func(w *world) Request {
			c := w.of("cp1", "w1", "w2")
			c.Spec.ControlPlaneEndpoint.Mode, c.Spec.Hosts[2].Roles = v1alpha1.EndpointHAProxy, []v1alpha1.Role{v1alpha1.RoleControlPlane}
			return AddNodesRequest{Subject: Subject{Cluster: c}}
		}, idEndpointMode},
		{"a node by its address", "it must be given by name", func(w *world) Request {
			return DeleteNodesRequest{Name: "prod", Hosts: []spec.HostFlag{{Address: w.Hosts["w1"].Address}}}
		}, idHostOnRecord},
		{"twice", "an address may be given once", func(*world) Request {
			return DeleteNodesRequest{Name: "prod", Hosts: []spec.HostFlag{{Address: "192.0.2.99"}, {Address: "192.0.2.99"}}}
		}, idHostTwice},
		{"other address", "the address of a node is fixed", func(w *world) Request {
			c := w.of("cp1", "w1")
			w.Hosts["w1"].SecondAddress = "192.0.2.99"
			c.Spec.Hosts[1].InternalAddress = "192.0.2.99"
			return applying(c)
		}, idAddressFixed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1", "w2"}, []string{"cp1", "w1"})
			_, err := w.service().Prepare(t.Context(), tc.request(w), nil)
			refusal(t, err, tc.id)
			if err != nil && tc.id == idEndpointMode && !strings.Contains(err.Error(), "cluster prod has endpoint mode none") {
				t.Errorf("%v: the error does not name the mode of the cluster", err)
			}
		})
	}
}

// TestDrain_StopsAtPodWithoutController adds a pod without a controller to a node that was already
// checked. The pod stops the drain and is kept; the removal resumes once the pod is gone.
func TestDrain_StopsAtPodWithoutController(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	w.create(event.Succeeded)
	const at = "/api/v1/namespaces/default/pods/lone"
	w.API.OnWrite = func(what string) {
		if what == "PATCH /api/v1/nodes/w2" && !w.API.HasObject(at) { // it is cordoned
			w.API.PutObject(at, object{
				"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "lone", "namespace": "default", "uid": "lone"},
				"spec": object{"nodeName": "w2"},
			})
		}
	}
	res := w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w2"}, Removal: module.Removal{DrainTimeout: 5 * time.Second}},
		event.Failed)
	if f := res.Failures[0]; f.Task != "leave.drain" || f.Reason != module.IDDrainBlocked ||
		!strings.Contains(f.Message, "default/lone has no controller") || !strings.Contains(f.Remedy, "--force") {
		t.Errorf("%+v", f)
	}
	if !w.API.HasObject(at) {
		t.Error("the pod was deleted")
	}
	w.API.OnWrite = nil
	w.API.RemoveObject(at)
	w.resume(event.Succeeded)
}
