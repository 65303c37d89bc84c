package lifecycle

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

func managed(t *testing.T) *world {
	w := newWorld(t, "cp1", "e1", "w1")
	w.ManagedEtcd = true
	return w
}

// Each member has its own keys and the key of the etcd CA; a dedicated etcd host has
// neither a kubelet nor a container runtime and is not a node.
func TestManagedEtcd_InstallsOnlyEtcdOnDedicatedHost(t *testing.T) {
	t.Parallel()
	w := managed(t)
	w.create(event.Succeeded)
	w.whole()
	for name, m := range w.Hosts {
		keys := 0
		for path, content := range m.Files {
			switch {
			case !strings.HasSuffix(path, ".key") || !strings.HasPrefix(path, module.EtcdPKI):
			case strings.HasPrefix(content, "key of "):
				if content != "key of "+name {
					t.Errorf("%s of %s is the %s", path, name, content)
				}
				keys++
			case signsForEtcd(content) && path == lifecycletest.EtcdCAKey:
				keys++
			}
		}
		if keys != 4 {
			t.Errorf("%s has %d etcd keys, want three and the key of the CA", name, keys)
		}
		_, kubelet := m.State["unit kubelet.service"]
		if name == "e1" &&
			(kubelet || m.State["containerd.service started"] != "" || m.State["kernel-modules /etc/modules-load.d/slipway.conf"] != "") {
			t.Errorf("e1 runs only etcd, but has more: %v", slices.Sorted(maps.Keys(m.AllState())))
		}
	}
	if nodes := w.recordedNodes(); slices.Contains(nodes, "e1") || len(nodes) != 2 {
		t.Errorf("the cluster's nodes are %v", nodes)
	}
}

// recordedNodes returns the nodes in the saved state.
func (w *world) recordedNodes() (names []string) {
	w.t.Helper()
	c, err := w.service().Cluster(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range c.Status.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// A manager that is killed while it sets up etcd leaves some members started and others
// not. They form one cluster when the operation is resumed.
func TestManagedEtcd_FormsOneClusterAfterKilledCreate(t *testing.T) {
	w := managed(t)
	request := creating(w.Manifest())
	for i, m := range w.killed(t, request) {
		if !strings.Contains(m.name, "etcd") && i%7 != 0 {
			continue // the same as with stacked etcd
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			data := k.data()
			k.goOn(request)
			k.whole()
			for name, was := range data {
				if was != "" && k.Hosts[name].Files[facts.EtcdData] != was {
					t.Errorf("the data of %s were changed", name)
				}
			}
			if len(k.API.ManagedEtcd.Running) != 3 {
				t.Errorf("%d members run", len(k.API.ManagedEtcd.Running))
			}
		})
	}
}

func (w *world) data() map[string]string {
	out := map[string]string{}
	for name, m := range w.Hosts {
		out[name] = m.Files[facts.EtcdData]
	}
	return out
}

func TestManagedEtcd_IsRemovedAfterKilledDelete(t *testing.T) {
	w := managed(t)
	w.create(event.Succeeded)
	request := DeleteRequest{Subject: Subject{Name: "prod"}}
	for _, m := range w.killed(t, request) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.world.useT(t)
			m.world.goOn(request)
			m.world.bare()
		})
	}
}

// Apply is refused if the first etcd host has lost its data, as with a new disk. If it has
// lost only its CA, it gets the CA of the others.
func TestManagedEtcd_HostLosesDataOrCA(t *testing.T) {
	t.Parallel()
	w := managed(t)
	w.create(event.Succeeded)
	ca := w.Hosts["w1"].Files[module.EtcdCA]
	lost := w.Hosts["cp1"]
	delete(lost.Files, facts.EtcdData)
	_, err := w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
	var list diag.List
	if !errors.As(err, &list) || list.Errors()[0].ID != "etcd-data-lost" {
		t.Fatalf("the data are lost, but apply returns %v", err)
	}
	lost.Files[facts.EtcdData] = "data of cp1"
	delete(lost.Files, module.EtcdCA)
	delete(lost.Files, module.EtcdPKI+"/ca.key")
	w.do(applying(w.Manifest()), event.Succeeded)
	if got := lost.Files[module.EtcdCA]; got != ca {
		t.Errorf("it has the CA %q, the others have %q", got, ca)
	}
	w.whole()
}

// membersInTurn checks that each member changes only in its turn: a host that reboots
// earlier starts its member unchanged. The returned function checks that members were
// restarted one at a time.
func (w *world) membersInTurn(what string) func() {
	var mu sync.Mutex
	in, most := 0, 0
	for _, m := range w.Hosts {
		m.OnChange = func(did string) {
			mu.Lock()
			defer mu.Unlock()
			step, on, _ := strings.Cut(did, " ")
			switch {
			case did == "etcd.running "+facts.EtcdJoined: // after its health check
				in--
			case on != what:
			case step == "etcd.running":
				in++
			default:
				w.t.Errorf("%s: changed before its turn", did)
			}
			most = max(most, in)
		}
	}
	return func() {
		w.t.Helper()
		if most != 1 || in != 0 {
			w.t.Errorf("%d members were restarted at once, %d not waited for", most, in)
		}
	}
}

// Settings reach members one at a time.
func TestManagedEtcd_RestartsOneMemberAtATime(t *testing.T) {
	t.Parallel()
	w := managed(t)
	w.create(event.Succeeded)
	c := w.Manifest()
	c.Spec.Etcd.ExtraArgs = map[string]string{"heartbeat-interval": "200"}
	oneByOne := w.membersInTurn(module.EtcdUnitFile)
	w.do(applying(c), event.Succeeded)
	oneByOne()
	for _, m := range w.Hosts {
		if !strings.Contains(m.Files["/etc/systemd/system/etcd.service"], `"--heartbeat-interval=200"`) {
			t.Errorf("%s has other arguments", m.Name)
		}
	}
}

// withMembers creates a cluster on some of four hosts, with managed etcd.
func withMembers(t *testing.T, names ...string) *world {
	t.Helper()
	w := newWorld(t, "cp1", "e1", "e2", "w1")
	w.ManagedEtcd = true
	w.do(creating(w.of(names...)), event.Succeeded)
	return w
}

// wantManaged checks that exactly these hosts are etcd members and that the API server
// uses them.
func (w *world) wantManaged(names ...string) {
	w.t.Helper()
	votes := slices.Sorted(maps.Keys(w.API.ManagedEtcd.Votes))
	if !slices.Equal(votes, names) || len(w.API.ManagedEtcd.Running) != len(names) {
		w.t.Errorf("members are %v, of which %d run, want %v", votes, len(w.API.ManagedEtcd.Running), names)
	}
	settings := w.Hosts["cp1"].Files["/etc/kubernetes/slipway/kubeadm.yaml"]
	for name, m := range w.Hosts {
		if asked := strings.Contains(settings, "https://"+m.Address+":2379"); asked != slices.Contains(names, name) {
			w.t.Errorf("the API server uses %s: %t", name, asked)
		}
	}
}

// Members are added and removed one at a time: from one to three, and then to another one.
func TestManagedEtcd_MembersChangeOneAtATime(t *testing.T) {
	t.Parallel()
	w := withMembers(t, "cp1")
	w.wantManaged("cp1")
	data := w.Hosts["cp1"].Files[facts.EtcdData]
	w.do(applying(w.of("cp1", "e1", "w1")), event.Succeeded)
	w.wantHosts("cp1", "e1", "w1")
	w.wantManaged("cp1", "e1", "w1")
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w1", "e1"}}, event.Succeeded)
	w.wantHosts("cp1")
	w.wantManaged("cp1")
	if got := w.Hosts["cp1"].Files[facts.EtcdData]; got != data {
		t.Errorf("the data of cp1 are %q, want %q", got, data)
	}
	flag := spec.HostFlag{Name: "e2", Address: w.Hosts["e2"].Address, Roles: []v1alpha1.Role{v1alpha1.RoleEtcd}}
	w.do(AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{flag}}, event.Succeeded)
	w.wantManaged("cp1", "e2")
}

// A change of members that was killed at any moment can be resumed.
func TestManagedEtcd_ResumesMemberChangeAfterKill(t *testing.T) {
	t.Parallel()
	w := withMembers(t, "cp1", "e1", "w1")
	request := applying(w.of("cp1", "e2", "w1"))
	for i, m := range w.killed(t, request) {
		if !strings.Contains(m.name, "etcd") && !strings.Contains(m.name, "leave") && !strings.Contains(m.name, "reset") && i%7 != 0 {
			continue // the same as with stacked etcd
		}
		t.Run(m.name, func(t *testing.T) {
			k := m.world
			k.useT(t)
			k.goOn(request)
			k.wantHosts("cp1", "e2", "w1")
			k.wantManaged("cp1", "e2", "w1")
			k.same(w)
		})
	}
}

// A member whose host is permanently lost is removed without the host. Another machine can
// replace a lost host.
func TestManagedEtcd_RemovesAndReplacesLostHost(t *testing.T) {
	t.Parallel()
	w := withMembers(t, "cp1", "e1", "w1")
	w.Hosts["e1"].Down = errDown
	w.API.StopMember("e1")
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"e1"}, Forget: true}, event.Succeeded)
	w.wantRecords("cp1", "w1")
	if votes := slices.Sorted(maps.Keys(w.API.ManagedEtcd.Votes)); !slices.Equal(votes, []string{"cp1", "w1"}) {
		t.Errorf("members are %v", votes)
	}

	w = withMembers(t, "cp1", "e1", "w1")
	w.Hosts["e1"] = lifecycletest.NewHost("e1", "192.0.2.31", w.API)
	w.Hosts["e1"].MachineID = "id-new"
	w.API.ManagedEtcd.StopMember("e1")
	w.do(applying(w.of("cp1", "e1", "w1")), event.Succeeded)
	w.wantHosts("cp1", "e1", "w1")
	w.wantManaged("cp1", "e1", "w1")
}

// A change must keep a majority of the members that etcd counts, and at least one member
// with the data.
func TestManagedEtcd_KeepsMajorityAndData(t *testing.T) {
	t.Parallel()
	w := withMembers(t, "cp1", "e1", "w1")
	w.API.ManagedEtcd.StopMember("w1")
	for name, tt := range map[string]struct {
		request Request
		id      string
	}{
		"one of two that answer": {DeleteNodesRequest{Name: "prod", Nodes: []string{"e1"}}, op.IDEtcdQuorum},
		"all others":             {applying(etcdOn(w.of("cp1", "e1", "e2"), "e2")), "immutable-field"},
	} {
		var list diag.List
		if _, err := w.service().Prepare(t.Context(), tt.request, nil); !errors.As(err, &list) || list.Errors()[0].ID != tt.id {
			t.Errorf("%s: %v, want %s", name, err, tt.id)
		}
	}
}

// An existing etcd cluster is not initialized a second time, not even with
// --ignore-errors.
func TestManagedEtcd_NotInitializedAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		request      func(*world) Request
		id           string
	}{
		{"another machine at its address", "it is blank", func(w *world) Request {
			w.Hosts["e1"] = lifecycletest.NewHost("e1", "192.0.2.31", w.API)
			w.Hosts["e1"].MachineID = "id-new"
			return applying(etcdOn(w.of("cp1", "e1"), "e1"))
		}, idEtcdLost},
		{"it does not answer, and others join", "the others would form a separate cluster", func(w *world) Request {
			w.Hosts["e1"].Down = errDown
			return applying(etcdOn(w.of("cp1", "e1", "e2", "w1"), "e1", "e2", "w1"))
		}, string(remote.Unreachable)},
		{"it does not answer while another leaves", "etcd has already removed the other", func(w *world) Request {
			w.do(applying(etcdOn(w.of("cp1", "e1", "e2"), "e1", "e2")), event.Succeeded)
			w.Hosts["e2"].Refuse = breaking("reset.kubernetes")
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"e2"}}, event.Failed)
			w.Hosts["e1"].Down = errDown
			flag := spec.HostFlag{Name: "w1", Address: w.Hosts["w1"].Address, Roles: []v1alpha1.Role{v1alpha1.RoleEtcd}}
			return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{flag}}
		}, string(remote.Unreachable)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "e1", "e2", "w1")
			w.ManagedEtcd = true
			w.do(creating(etcdOn(w.of("cp1", "e1"), "e1")), event.Succeeded)
			r := tc.request(w)
			for _, r := range []Request{r, despiteErrors(r)} {
				_, err := w.service().Prepare(t.Context(), r, nil)
				refusal(t, err, tc.id)
			}
		})
	}
}

// etcdOn limits etcd to these hosts, and removes hosts that have no role left.
func etcdOn(c *v1alpha1.Cluster, names ...string) *v1alpha1.Cluster {
	for i, h := range c.Spec.Hosts {
		if !slices.Contains(names, h.Name) {
			c.Spec.Hosts[i].Roles = slices.DeleteFunc(slices.Clone(h.Roles), func(r v1alpha1.Role) bool { return r == v1alpha1.RoleEtcd })
		}
	}
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return len(h.Roles) == 0 })
	return c
}

// Hosts without etcd can be added and removed while an etcd member is down.
func TestManagedEtcd_OtherHostsChangeWhileMemberIsDown(t *testing.T) {
	t.Parallel()
	w := managed(t)
	w.create(event.Succeeded)
	w.Hosts["w2"] = lifecycletest.NewHost("w2", "192.0.2.20", w.API)
	w.Hosts["e1"].Down = errDown
	w.do(AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w2")}}, event.Succeeded)
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w2"}}, event.Succeeded)
}

// cluster-info queries etcd members on any host, and does not list a dedicated etcd host
// as a node.
func TestClusterInfo_ManagedEtcd(t *testing.T) {
	t.Parallel()
	w := managed(t)
	w.create(event.Succeeded)
	w.Hosts["cp1"].Down, w.Hosts["w1"].Down = errDown, errDown
	in, err := w.service().Info(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	if in.Etcd.Through != "e1" || len(in.Etcd.Members) == 0 {
		t.Errorf("etcd: %+v", in.Etcd)
	}
	for _, n := range in.Nodes {
		if n.Name == "e1" {
			t.Errorf("e1 is listed as a node: %+v", n)
		}
	}
}
