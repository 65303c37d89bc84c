package lifecycle

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

var (
	onHAProxy    = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointHAProxy}
	onUpdater    = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointUpdater}
	onKeepalived = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: virtualAddress}
	onExternal   = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "192.0.2.200"}
)

// endpointFiles lists the files of each mode on workers and on control planes.
var endpointFiles = map[v1alpha1.EndpointMode]struct{ workers, controlPlanes []string }{
	v1alpha1.EndpointHAProxy: {workers: []string{"/etc/kubernetes/manifests/slipway-haproxy.yaml", "/etc/kubernetes/slipway/haproxy.cfg"}},
	v1alpha1.EndpointUpdater: {workers: []string{
		"/etc/kubernetes/manifests/slipway-relay.yaml", "/etc/kubernetes/slipway/relay-address.conf", "/etc/kubernetes/slipway/relay.cfg",
	}},
	v1alpha1.EndpointKeepalived: {controlPlanes: []string{
		"/etc/kubernetes/manifests/slipway-keepalived.yaml",
		"/etc/kubernetes/slipway/keepalived.conf", "/etc/kubernetes/slipway/keepalived.passwd",
	}},
}

// wantEndpoint checks that each machine has exactly the files of the mode, and that the
// Service for the API exists only in the mode that needs it.
func (w *world) wantEndpoint(mode v1alpha1.EndpointMode) {
	w.t.Helper()
	for name, m := range w.Hosts {
		var got []string
		for path := range m.AllState() {
			if strings.Contains(path, "slipway-") && strings.HasPrefix(path, "/etc/kubernetes/manifests/") ||
				strings.HasPrefix(path, "/etc/kubernetes/slipway/") && !strings.HasSuffix(path, ".yaml") && path != facts.EtcdJoined {
				got = append(got, path)
			}
		}
		want := endpointFiles[mode].workers
		if strings.HasPrefix(name, "cp") {
			want = endpointFiles[mode].controlPlanes
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			w.t.Errorf("mode %s: %s has %v, want %v", mode, name, got, want)
		}
	}
	if has := w.API.HasObject("/api/v1/namespaces/kube-system/services/apiserver"); has != (mode == v1alpha1.EndpointUpdater) {
		w.t.Errorf("mode %s: the Service for the API exists: %t", mode, has)
	}
}

// reachable makes the machines answer like real ones: an API address is reachable while
// the files that provide it exist.
func (w *world) reachable() {
	for _, m := range w.Hosts {
		m.Reaches = func(m *lifecycletest.Host, address string) bool {
			u, err := url.Parse(address)
			if err != nil {
				return false
			}
			switch u.Hostname() {
			case "127.0.0.1":
				return m.HasFile("/etc/kubernetes/manifests/slipway-haproxy.yaml")
			case virtualAddress:
				if m.HasFile(module.KeepalivedManifest) {
					return true
				}
				for name, cp := range w.Hosts {
					if strings.HasPrefix(name, "cp") && !strings.HasPrefix(m.Name, "cp") {
						cp.Mu.Lock()
						ok := cp.HasFile("/etc/kubernetes/manifests/slipway-keepalived.yaml")
						cp.Mu.Unlock()
						if ok {
							return true
						}
					}
				}
				return false
			case onExternal.Address:
				return true
			}
			return m.HasFile("/etc/kubernetes/manifests/slipway-relay.yaml")
		}
	}
}

// TestEndpointChange_AddsNewEndpointBeforeRemovingOld switches a running cluster from each mode to the next. The new
// endpoint exists on all machines before a node uses it, and the old one until no node
// does.
func TestEndpointChange_AddsNewEndpointBeforeRemovingOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &onHAProxy
	w.reachable()
	w.create(event.Succeeded)
	w.wantEndpoint(v1alpha1.EndpointHAProxy)
	before := onHAProxy
	for _, next := range []v1alpha1.ControlPlaneEndpoint{onUpdater, onKeepalived, onExternal, onKeepalived, onHAProxy} {
		var mu sync.Mutex
		var steps []string
		for name, m := range w.Hosts {
			m.OnChange = func(what string) {
				mu.Lock()
				defer mu.Unlock()
				if step, _, _ := strings.Cut(what, " "); strings.HasPrefix(step, "endpoint.") {
					steps = append(steps, step+" "+name)
				}
			}
		}
		w.Endpoint = &next
		w.do(applying(w.Manifest()), event.Succeeded)
		w.wantEndpoint(next.Mode)
		w.whole()
		t.Run(fmt.Sprintf("from %s to %s", before.Mode, next.Mode), func(t *testing.T) { inOrder(t, steps, next.Mode) })
		before = next
	}
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// inOrder checks that the order of the steps of a switch leaves every node with an
// endpoint at any time.
func inOrder(t *testing.T, steps []string, mode v1alpha1.EndpointMode) {
	last := func(prefix string) int {
		at := -1
		for i, s := range steps {
			if strings.HasPrefix(s, prefix) {
				at = i
			}
		}
		return at
	}
	first := func(prefix string) int {
		return slices.IndexFunc(steps, func(s string) bool { return strings.HasPrefix(s, prefix) })
	}
	for _, worker := range []string{"w1", "w2"} {
		makes := map[v1alpha1.EndpointMode]string{
			v1alpha1.EndpointHAProxy: "endpoint.haproxy " + worker, v1alpha1.EndpointUpdater: "endpoint.relay " + worker,
			v1alpha1.EndpointKeepalived: "endpoint.keepalived",
		}[mode]
		if made, named := first(makes), first("endpoint.name "+worker); named < 0 || makes != "" && (made < 0 || made > named) {
			t.Errorf("%s uses the new endpoint in step %d, which exists from step %d", worker, named, made)
		}
		if named, told := last("endpoint.name "+worker), first("endpoint.pods "+worker); told < named {
			t.Errorf("pods of %s get the address in step %d, and the hosts file is written in step %d", worker, told, named)
		}
	}
	if ended, told := first("endpoint.retire"), last("endpoint.pods"); ended >= 0 && ended < told {
		t.Errorf("the old endpoint is removed in step %d, and pods get the address in step %d: %v", ended, told, steps)
	}
}

// TestEndpointChange_KeepsOldWhenNewIsNotReached: if a node does not reach the API at the new endpoint, all nodes
// keep the old one.
func TestEndpointChange_KeepsOldWhenNewIsNotReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &onHAProxy
	w.reachable()
	w.create(event.Succeeded)
	was := w.Hosts["w1"].AllState()
	w.Endpoint = &onKeepalived
	reaches := w.Hosts["w1"].Reaches
	w.Hosts["w1"].Reaches = func(m *lifecycletest.Host, address string) bool {
		return !strings.Contains(address, virtualAddress) && reaches(m, address)
	}
	w.do(applying(w.Manifest()), event.Failed)
	now := w.Hosts["w1"].AllState()
	for path := range now {
		if strings.Contains(path, "API") && was[path] != now[path] {
			t.Errorf("%s was changed on a node that does not reach the API", path)
		}
	}
	for _, name := range []string{"w1", "w2"} {
		for _, path := range endpointFiles[v1alpha1.EndpointHAProxy].workers {
			if w.Hosts[name].AllState()[path] == "" {
				t.Errorf("%s no longer has %s", name, path)
			}
		}
	}
	w.Hosts["w1"].Reaches = reaches
	w.resume(event.Succeeded)
	w.wantEndpoint(v1alpha1.EndpointKeepalived)
	w.whole()
}

// TestEndpointChange_FromNoneWithNewControlPlanes: one apply adds control planes to a cluster in mode none, and an
// endpoint for all of them.
func TestEndpointChange_FromNoneWithNewControlPlanes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointNone}
	w.reachable()
	w.do(creating(w.of("cp1", "w1")), event.Succeeded)
	w.Endpoint = &onHAProxy
	w.do(applying(w.Manifest()), event.Succeeded)
	w.wantHosts(threeAndTwo...)
	w.wantEndpoint(v1alpha1.EndpointHAProxy)
}

// TestEndpointChange_ResumesAfterKill: a change of mode that was killed at any moment can be resumed.
func TestEndpointChange_ResumesAfterKill(t *testing.T) {
	w := newWorld(t, "cp1", "cp2", "w1")
	w.Endpoint = &onHAProxy
	w.create(event.Succeeded)
	w.Endpoint = &onKeepalived
	request := applying(w.Manifest())
	for _, m := range w.killed(t, request) {
		if !strings.Contains(m.name, " endpoint.") {
			continue // the same as in any apply
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(request)
			k.wantEndpoint(v1alpha1.EndpointKeepalived)
			k.whole()
			k.same(w)
		})
	}
}

// keepalivedWorld returns a cluster whose control planes hold an address.
func keepalivedWorld(t *testing.T) *world {
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &onKeepalived
	w.create(event.Succeeded)
	return w
}

// TestRemoveControlPlane_ReleasesAddressFirst: a leaving control plane releases the address before the others
// remove it from their lists, and before it is drained. The removal continues without it
// if it cannot, or is dead.
func TestRemoveControlPlane_ReleasesAddressFirst(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		change       func(*world)
		forget       bool
		released     bool
	}{
		{"alive", "it would take the address once the others are silent", func(*world) {}, false, true},
		{"its kubelet does not end the pod", "it leaves anyway, and its pods stop then", func(w *world) {
			w.Hosts["cp3"].Refuse = func(step string, o op.Op) *op.Error {
				if _, ok := o.(op.Wait); ok && step == "endpoint.release" {
					return &op.Error{Reason: "Timeout", Message: "it still runs"}
				}
				return nil
			}
		}, false, true},
		{"dead", "the host cannot be queried", func(w *world) {
			w.Hosts["cp3"].Down = errDown
			w.API.StopMember("cp3")
			w.API.MarkNodeLost("cp3")
		}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := keepalivedWorld(t)
			tc.change(w)
			var mu sync.Mutex
			var steps []string
			others := make(chan struct{})
			othersOnce := sync.OnceFunc(func() { close(others) })
			for name, m := range w.Hosts {
				m.OnChange = func(what string) {
					step, _, _ := strings.Cut(what, " ")
					switch step {
					case "endpoint.release":
						select { // it takes its time
						case <-others:
						case <-time.After(300 * time.Millisecond):
						}
					case "endpoint.keepalived":
						othersOnce()
					}
					mu.Lock()
					defer mu.Unlock()
					steps = append(steps, step+" "+name)
				}
			}
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp3"}, Forget: tc.forget}, event.Succeeded)
			w.wantHosts("cp1", "cp2", "w1", "w2")
			released := slices.Index(steps, "endpoint.release cp3")
			first := slices.IndexFunc(steps, func(s string) bool { return strings.HasPrefix(s, "endpoint.keepalived ") })
			if (released >= 0) != tc.released || first < 0 || released > first {
				t.Errorf("the host releases the address in step %d, the others remove it in step %d: %s", released, first, tc.reason)
			}
		})
	}
}

// TestKeepalived_ChangesOneAtATime: a configuration for all control planes changes on one at
// a time.
func TestKeepalived_ChangesOneAtATime(t *testing.T) {
	t.Parallel()
	w := keepalivedWorld(t)
	var mu sync.Mutex
	var order []string
	second := make(chan struct{})
	for name, m := range w.Hosts {
		m.OnChange = func(what string) {
			if !strings.HasPrefix(what, "endpoint.keepalived ") {
				return
			}
			mu.Lock()
			order = append(order, name)
			if other := order[0] != name; other && !slices.Contains(order[:len(order)-1], name) {
				close(second)
			}
			slow := len(order) == 1
			mu.Unlock()
			if slow { // so that another change could overlap
				select {
				case <-second:
				case <-time.After(300 * time.Millisecond):
				}
			}
		}
	}
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp3"}}, event.Succeeded)
	if got := slices.Compact(order); len(got) != 2 {
		t.Errorf("the configuration changed on %v, want one host at a time", got)
	}
}

// TestKeepalived_StopsWhenAddressDoesNotAnswer: if the address does not answer with the new
// configuration on one control plane, the others keep the old one.
func TestKeepalived_StopsWhenAddressDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := keepalivedWorld(t)
	var served atomic.Bool
	was := map[string]string{}
	for name, m := range w.Hosts {
		m.Reaches = func(*lifecycletest.Host, string) bool { return served.Load() }
		was[name] = m.AllState()["/etc/kubernetes/slipway/keepalived.conf"]
	}
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp3"}}, event.Failed)
	changed := 0
	for _, name := range []string{"cp1", "cp2"} {
		if w.Hosts[name].AllState()["/etc/kubernetes/slipway/keepalived.conf"] != was[name] {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d of 2 control planes have the new configuration, want the first alone", changed)
	}
	served.Store(true)
	w.resume(event.Succeeded)
	w.wantHosts("cp1", "cp2", "w1", "w2")
}

// TestKubeVIP_StopsWhenAddressDoesNotAnswer: if the address does not answer with new settings of
// kube-vip, only one control plane gets them.
func TestKubeVIP_StopsWhenAddressDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	vip := v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: virtualAddress, Interface: "eth0"}
	w.Endpoint = &vip
	w.create(event.Succeeded)
	var served atomic.Bool
	was := map[string]string{}
	for name, m := range w.Hosts {
		m.Reaches = func(*lifecycletest.Host, string) bool { return served.Load() }
		was[name] = m.AllState()[module.KubeVIPManifest]
	}
	vip.Interface = "wrong9"
	w.do(applying(w.Manifest()), event.Failed)
	changed := 0
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		if w.Hosts[name].AllState()[module.KubeVIPManifest] != was[name] {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d of 3 control planes have the new settings, want the first alone", changed)
	}
	served.Store(true)
	w.resume(event.Succeeded)
	w.whole()
}

// TestRemoveControlPlane_StopsKubeVIPFirst: kube-vip on a leaving control plane stops while the API server
// there still serves. With BGP, it would otherwise continue to announce the address to
// routers.
func TestRemoveControlPlane_StopsKubeVIPFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: virtualAddress}
	w.create(event.Succeeded)
	var holds, serves bool
	m := w.Hosts["cp3"]
	m.OnChange = func(what string) {
		if strings.HasPrefix(what, "leave.begin ") {
			m.Mu.Lock()
			defer m.Mu.Unlock()
			holds, serves = holds || m.HasFile(module.KubeVIPManifest), serves || m.HasFile(module.APIServerManifest)
		}
	}
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp3"}}, event.Succeeded)
	if holds || !serves {
		t.Errorf("before its API server (running: %t) stops, it still holds the address: %t", serves, holds)
	}
	w.wantHosts("cp1", "cp2", "w1", "w2")
}

// TestKubeVIPCredentials_ExistOnlyInKubeVIPMode: every control plane has dedicated credentials for kube-vip, also
// one that joined. A change of mode removes them.
func TestKubeVIPCredentials_ExistOnlyInKubeVIPMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: virtualAddress}
	w.create(event.Succeeded)
	files := []string{module.KubeVIPDir + "/admin.conf", module.KubeVIPCert, module.KubeVIPManifest}
	objects := []string{
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slipway-kube-vip",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/slipway-kube-vip",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/slipway-kube-vip",
	}
	want := func(there bool) {
		t.Helper()
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			for _, f := range files {
				if w.Hosts[name].HasFile(f) != there {
					t.Errorf("%s has %s: %t", name, f, !there)
				}
			}
		}
		for _, o := range objects {
			if w.API.HasObject(o) != there {
				t.Errorf("%s exists: %t", o, !there)
			}
		}
	}
	want(true)
	w.whole()
	w.Endpoint = &onHAProxy
	w.do(applying(w.Manifest()), event.Succeeded)
	want(false)
	w.whole()
}

// TestEndpointChange_RemovesUpdaterObjects: objects that the apiserver-updater created are removed with
// it.
func TestEndpointChange_RemovesUpdaterObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &onUpdater
	w.create(event.Succeeded)
	made := map[string]object{
		"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/apiserver-ipv4": {
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": object{"name": "apiserver-ipv4"},
		},
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/apiserver-updater": {
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": "apiserver-updater"},
		},
	}
	for p, o := range made {
		w.API.PutObject(p, o)
	}
	w.Endpoint = &onHAProxy
	w.do(applying(w.Manifest()), event.Succeeded)
	w.wantEndpoint(v1alpha1.EndpointHAProxy)
	for p := range made {
		if w.API.HasObject(p) {
			t.Errorf("%s still exists", p)
		}
	}
	w.whole()
}

// TestRemoveControlPlane_SwitchesWorkersFirst: workers use the remaining control planes before another one
// leaves etcd.
func TestRemoveControlPlane_SwitchesWorkersFirst(t *testing.T) {
	t.Parallel()
	for _, ep := range []v1alpha1.ControlPlaneEndpoint{onHAProxy, onUpdater} {
		w := newWorld(t, threeAndTwo...)
		w.Endpoint = &ep
		w.create(event.Succeeded)
		left := make(chan struct{})
		var balanced, early atomic.Int32
		for name, m := range w.Hosts {
			m.OnChange = func(what string) {
				if strings.HasPrefix(what, "leave.member ") {
					close(left)
				}
				if strings.HasPrefix(name, "w") && strings.Contains(what, "/etc/kubernetes/manifests/slipway-") {
					select { // a slow worker
					case <-left:
						early.Add(1)
					case <-time.After(300 * time.Millisecond):
					}
					balanced.Add(1)
				}
			}
		}
		w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp3"}}, event.Succeeded)
		if early.Load() > 0 || balanced.Load() != 2 {
			t.Errorf("mode %s: a member left etcd before %d workers had switched; %d of 2 balancers changed", ep.Mode, early.Load(), balanced.Load())
		}
	}
}

// A file without a mode keeps the mode of the cluster and its settings. This holds even if
// the number of control planes would now select another mode.
func TestApply_KeepsModeThatFileOmits(t *testing.T) {
	t.Parallel()
	for _, created := range []v1alpha1.ControlPlaneEndpoint{{}, onKeepalived} {
		t.Run("created with "+string(created.Mode), func(t *testing.T) {
			w := newWorld(t, "cp1", "cp2", "w1")
			file := func(c *v1alpha1.Cluster) *v1alpha1.Cluster {
				text, err := yaml.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				loaded, err := spec.Load("prod.yaml", text)
				if err != nil {
					t.Fatal(err)
				}
				return loaded.Cluster
			}
			w.Endpoint = &created
			w.do(creating(file(w.Manifest())), event.Succeeded)
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}, event.Succeeded)
			w.Endpoint = &v1alpha1.ControlPlaneEndpoint{}
			p := w.prepared(w.service().Prepare(t.Context(), applying(file(w.of("cp2", "w1"))), nil))
			if len(p.Plan().Steps) > 0 {
				t.Errorf("the plan is not empty: %+v", p.Plan().Steps)
			}
		})
	}
}
