package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
)

// turns returns the hosts that a step has changed, in the order of the changes.
func (w *world) turns(task string) (hosts []string) {
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Task == task && e.Outcome == event.Changed {
			hosts = append(hosts, e.Host)
		}
	}
	return hosts
}

// The plan lists the restart of each kubelet, and hosts are changed one after the other,
// control planes first.
func TestReconfigure_RestartsKubeletsOneHostAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.create(event.Succeeded)
	p := w.prepared(w.service().Prepare(t.Context(), applying(w.changed()), nil))
	var told []string
	for _, s := range p.Plan().Steps {
		for _, c := range s.Changes {
			if c.Kind == op.KindUnit {
				told = append(told, s.Host+" "+c.Target+" "+c.Summary)
			}
		}
	}
	var want []string
	for _, name := range threeAndTwo {
		want = append(want, name+" kubelet.service restart: /etc/kubernetes/kubelet.conf.d/50-slipway.conf changes")
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("restarts in the plan (-want +got):\n%s", d)
	}
	w.events = nil
	w.apply(p, event.Succeeded)
	for _, step := range []string{"kubernetes.kubelet", "kubelet.settings"} {
		if d := cmp.Diff(threeAndTwo, w.turns(step)); d != "" {
			t.Errorf("%s: want one host after the other, control planes first (-want +got):\n%s", step, d)
		}
	}
}

// Settings that restart nothing are also applied host by host. Dedicated etcd hosts come
// after control planes and before workers.
func TestReconfigure_ChangesHostSettingsOneHostAtATime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, step string
		change     func(*v1alpha1.Cluster)
		want       []string
	}{
		{
			"sysctl", "os.kernel", func(c *v1alpha1.Cluster) { c.Spec.System.Sysctls = map[string]string{"vm.swappiness": "1"} },
			[]string{"cp1", "cp2", "w1", "w2"},
		},
		{
			"time", "os.time", func(c *v1alpha1.Cluster) { c.Spec.System.NTPServers = []string{"ntp.example"} },
			[]string{"cp1", "cp2", "e1", "w1", "w2"},
		},
		{
			"hosts entries", "os.hosts",
			func(c *v1alpha1.Cluster) { c.Spec.DNS.Hosts = map[string][]string{"192.0.2.99": {"x.example"}} },
			[]string{"cp1", "cp2", "e1", "w1", "w2"},
		},
		{"mirror", "runtime.registries", func(c *v1alpha1.Cluster) {
			c.Spec.Registry.Mirrors = map[string][]string{"docker.io": {"https://mirror.example"}}
		}, []string{"cp1", "cp2", "w1", "w2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "cp2", "e1", "w1", "w2")
			w.ManagedEtcd = true
			w.create(event.Succeeded)
			c := w.Manifest()
			tc.change(c)
			w.events = nil
			w.do(applying(c), event.Succeeded)
			if d := cmp.Diff(tc.want, w.turns(tc.step)); d != "" {
				t.Errorf("want one host after the other (-want +got):\n%s", d)
			}
		})
	}
}

// A node waits only for hosts that change before it. The API server of the first control
// plane waits until all nodes have their settings.
func TestReconfigure_ChangesNodesBeforeAPIServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeAndTwo...)
	w.create(event.Succeeded)
	c := w.changed()
	c.Spec.Kubernetes.APIServer.ExtraArgs = map[string]string{"profiling": "false"}
	w.events = nil
	w.do(ApplyRequest{Subject: Subject{Cluster: c}, ApplyOptions: ApplyOptions{MaxUnavailable: "2"}}, event.Succeeded)
	var got []string
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed &&
			slices.Contains([]string{"kubelet.settings", "kubeadm.init.control-plane", "join.settings"}, e.Task) {
			got = append(got, e.Task+" "+e.Host)
		}
	}
	slices.Sort(got[3:5]) // they run in parallel
	want := []string{
		"kubelet.settings cp1", "kubelet.settings cp2", "kubelet.settings cp3", "kubelet.settings w1", "kubelet.settings w2",
		"kubeadm.init.control-plane cp1", "join.settings cp2", "join.settings cp3",
	}
	slices.Sort(got[6:])
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A bad setting keeps one machine from becoming healthy.
type bad struct {
	name, reason string
	host, says   string // where it fails, and part of the failure message
	managed      bool
	change       func(*v1alpha1.Cluster)
	spoil        func(*lifecycletest.Host)
}

// restarted makes a unit fail when it restarts while a file contains a text.
func restarted(unit, file, text string) func(*lifecycletest.Host) {
	return func(m *lifecycletest.Host) {
		m.Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
			u, ok := o.(op.Unit)
			if !ok || u.Name != unit || !strings.Contains(m.Files[file], text) {
				return nil
			}
			delete(m.State, unit+" started") // it does not run with these settings
			return &op.Error{Reason: op.ReasonUnhealthy, Message: unit + " says: " + text + " is bad"}
		}
	}
}

// memberFails makes the step fail that configures an etcd member in a static pod.
func memberFails(m *lifecycletest.Host) {
	m.Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
		e, ok := o.(op.Exec)
		if !ok || e.Then == nil || !strings.Contains(m.Files[lifecycletest.SettingsFile], "quota-backend-bytes") {
			return nil
		}
		m.State[lifecycletest.OperationID(o)] = "it has not succeeded"
		m.API.Mu.Lock()
		m.API.Minors.Away[m.Name] = true
		m.API.Mu.Unlock()
		return &op.Error{Reason: op.ReasonNotServing, Message: "etcd says: quota-backend-bytes is bad"}
	}
}

func badSettings() []bad {
	const dropIn, unit = "/etc/kubernetes/kubelet.conf.d/50-slipway.conf", "kubelet.service"
	kubelet := func(c *v1alpha1.Cluster) {
		c.Spec.Kubernetes.Kubelet.Config = map[string]any{"evictionHard": map[string]any{"memory.available": "plenty"}}
	}
	api := func(c *v1alpha1.Cluster) {
		c.Spec.Kubernetes.APIServer.ExtraArgs = map[string]string{"authorization-mode": "no-such-mode"}
	}
	quota := func(c *v1alpha1.Cluster) { c.Spec.Etcd.ExtraArgs = map[string]string{"quota-backend-bytes": "many"} }
	without := func(file, text string) func(*lifecycletest.Host) {
		return func(m *lifecycletest.Host) {
			m.IsSick = func(m *lifecycletest.Host) bool { return strings.Contains(m.Files[file], text) }
		}
	}
	sick := func(m *lifecycletest.Host) {
		m.IsSick = func(m *lifecycletest.Host) bool {
			return strings.Contains(m.Files[module.APIServerManifest], "no-such-mode")
		}
	}
	return []bad{
		{
			name: "kubelet cp1", reason: "no other host has started", host: "cp1", says: "evictionHard is bad",
			change: kubelet, spoil: restarted(unit, dropIn, "evictionHard"),
		},
		{
			name: "kubelet cp3", reason: "two earlier hosts are rolled back too", host: "cp3", says: "evictionHard is bad",
			change: kubelet, spoil: restarted(unit, dropIn, "evictionHard"),
		},
		{
			name: "kubelet w2", reason: "all other hosts are rolled back", host: "w2", says: "evictionHard is bad", change: kubelet,
			spoil: restarted(unit, dropIn, "evictionHard"),
		},
		{
			name: "containerd w1", reason: "its settings are in a new file", host: "w1", says: "level is bad",
			change: func(c *v1alpha1.Cluster) { c.Spec.ContainerRuntime.Config = "[debug]\nlevel = 7" },
			spoil:  restarted("containerd.service", "/etc/containerd/slipway.toml", "level"),
		},
		{
			name: "API server cp1", reason: "the leader control plane does not serve", host: "cp1",
			says: "nothing answers", change: api, spoil: sick,
		},
		{
			name: "API server cp2", reason: "the first control plane has it already", host: "cp2", says: "nothing answers",
			change: api, spoil: sick,
		},
		{
			name: "etcd cp1", reason: "only one member is unavailable", host: "cp1",
			says: "quota-backend-bytes is bad", change: quota, spoil: memberFails,
		},
		{
			name: "etcd cp2", reason: "the third member has not started", host: "cp2",
			says: "quota-backend-bytes is bad", change: quota, spoil: memberFails,
		},
		{
			name: "managed etcd", reason: "a service is restarted, not a pod", host: "cp2",
			says: "quota-backend-bytes is bad", managed: true, change: quota,
			spoil: restarted("etcd.service", "/etc/systemd/system/etcd.service", "quota-backend-bytes"),
		},
		{
			name: "sysctl", reason: "nothing is restarted for it", host: "w1", says: "no such key",
			change: func(c *v1alpha1.Cluster) { c.Spec.System.Sysctls = map[string]string{"net.no.such": "1"} },
			spoil: func(m *lifecycletest.Host) {
				m.Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
					if s, ok := o.(op.Sysctl); ok && s.Values["net.no.such"] != "" {
						m.Files[s.File] = "half of it"
						return &op.Error{Reason: "Error", Message: "no such key"}
					}
					return nil
				}
			},
		},
		{
			name: "sysctl cp2", reason: "the kernel accepts it, but the node is not healthy with it",
			host: "cp2", says: "its kubelet did not answer",
			change: func(c *v1alpha1.Cluster) {
				c.Spec.System.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "1 1"}
			},
			spoil: without("/etc/sysctl.d/90-slipway.conf", "port_range"),
		},
		{
			name: "kube-proxy w1", reason: "all other nodes have it and are rolled back", host: "w1", says: "proxyMode",
			change: func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.ProxyMode = "iptables" },
			spoil: func(m *lifecycletest.Host) {
				m.Reaches = func(m *lifecycletest.Host, url string) bool {
					return !strings.HasSuffix(url, "/proxyMode") || !m.API.RunsProxy("iptables")
				}
			},
		},
		{
			name: "mirror w2", reason: "it is the last host", host: "w2", says: "its kubelet did not answer",
			change: func(c *v1alpha1.Cluster) {
				c.Spec.Registry.Mirrors = map[string][]string{"docker.io": {"https://mirror.example"}}
			},
			spoil: without("/etc/containerd/certs.d/docker.io/hosts.toml", "mirror.example"),
		},
	}
}

// broken returns a world with a running cluster, a cluster file with a bad setting, and
// the state of the machines.
func (b bad) broken(t *testing.T) (*world, *v1alpha1.Cluster, map[string]map[string]string) {
	t.Helper()
	w := newWorld(t, threeAndTwo...)
	w.ManagedEtcd = b.managed
	w.create(event.Succeeded)
	b.spoil(w.Hosts[b.host])
	c := w.Manifest()
	b.change(c)
	return w, c, w.looks()
}

// looks returns the state of all machines.
func (w *world) looks() map[string]map[string]string {
	out := map[string]map[string]string{}
	for name, m := range w.Hosts {
		out[name] = m.AllState()
	}
	return out
}

// asBefore checks that machines are as before and that nothing is left to do.
func (w *world) asBefore(before map[string]map[string]string) {
	w.t.Helper()
	if d := cmp.Diff(before, w.looks()); d != "" {
		w.t.Errorf("machines differ from before (-want +got):\n%s", d)
	}
	w.whole()
}

func TestBadSettings_AreRolledBack(t *testing.T) {
	t.Parallel()
	for _, b := range badSettings() {
		t.Run(b.name, func(t *testing.T) {
			w, c, before := b.broken(t)
			res := w.do(applying(c), event.Failed)
			if !res.Reverted {
				t.Fatalf("it was not rolled back: %+v; %s", res.Failures, b.reason)
			}
			f := res.Failures[0]
			if len(res.Failures) != 1 || f.Host != b.host || f.Reason != idReverted || !strings.Contains(f.Message, b.says) {
				t.Errorf("failures %+v: want one of %s that says %q", res.Failures, b.host, b.says)
			}
			w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "apply Failed", "create Succeeded")
			w.asBefore(before)
		})
	}
}

// The hosts that received their settings last are rolled back first.
func TestBadSettings_AreRolledBackInReverseOrder(t *testing.T) {
	t.Parallel()
	b := badSettings()[2]
	w, c, _ := b.broken(t)
	w.events = nil
	w.do(applying(c), event.Failed)
	var back []string
	for _, e := range w.events {
		if e.Type == event.Note && strings.HasPrefix(e.Message, "rollback: apply kubelet settings") {
			back = append(back, e.Host)
		}
	}
	if d := cmp.Diff([]string{"w2", "w1", "cp3", "cp2", "cp1"}, back); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestBadSettings_AreKeptWithKeepFailed(t *testing.T) {
	t.Parallel()
	b := badSettings()[0]
	w, c, _ := b.broken(t)
	res := w.do(ApplyRequest{Subject: Subject{Cluster: c}, ApplyOptions: ApplyOptions{KeepFailed: true}}, event.Failed)
	if res.Reverted || res.Failures[0].Reason != op.ReasonUnhealthy {
		t.Errorf("%+v: want the failed state kept", res)
	}
	w.wantStatus(v1alpha1.PhaseFailed, "apply Failed", "create Succeeded")
	if res := w.resume(event.Failed); res.Reverted {
		t.Error("a resume rolls back a state that --keep-failed keeps")
	}
	w.wantStatus(v1alpha1.PhaseFailed, "apply Failed", "create Succeeded")
}

// A host that fails without a change of its settings causes no rollback.
func TestDrift_CausesNoRollback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	delete(w.Hosts["w1"].State, "kubelet.service started")
	w.Hosts["w1"].Refuse = func(_ string, o op.Op) *op.Error {
		if o.Target() != "kubelet.service" {
			return nil
		}
		return &op.Error{Reason: "UnitFailed", Message: "it does not start"}
	}
	res := w.do(applying(w.Manifest()), event.Failed)
	if res.Reverted {
		t.Errorf("%+v: want no rollback", res)
	}
	w.wantStatus(v1alpha1.PhaseFailed, "apply Failed", "create Succeeded")
}

// A failed rollback is reported and can be resumed.
func TestRevert_CanBeResumedAfterFailure(t *testing.T) {
	t.Parallel()
	b := badSettings()[0]
	w, c, before := b.broken(t)
	m := w.Hosts["cp1"]
	m.Spoil = func(m *lifecycletest.Host, _ string, o op.Op) *op.Error {
		if u, ok := o.(op.Unit); ok && u.Name == "kubelet.service" && u.RestartOn != nil {
			delete(m.State, "kubelet.service started")
			return &op.Error{Reason: op.ReasonUnhealthy, Message: "it never comes up again"}
		}
		return nil
	}
	res := w.do(applying(c), event.Failed)
	if res.Reverted || len(res.Failures) != 2 || res.Failures[1].Reason != idRevertFailed {
		t.Fatalf("%+v: want the failure and the failed rollback", res.Failures)
	}
	w.wantStatus(v1alpha1.PhaseFailed, "apply Failed", "apply Failed", "create Succeeded")
	m.Spoil = nil
	w.rollback(event.Succeeded)
	w.asBefore(before)
}

// No other process gets the lock between a failure and its rollback. A process that breaks
// the lock anyway is not disturbed.
func TestRevert_KeepsTheLock(t *testing.T) {
	t.Parallel()
	b := badSettings()[2]
	turns := func(t *testing.T, w *world, c *v1alpha1.Cluster, at func()) *Result {
		t.Helper()
		r := applying(c)
		r.BreakLock = true
		p := w.prepared(w.service().Prepare(t.Context(), r, nil))
		res, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
			if e.Type == event.Note && strings.HasPrefix(e.Message, "does not work with its new settings") {
				at()
			}
		}))
		if err := errors.Join(err, p.Close()); err != nil {
			t.Fatal(err)
		}
		return res
	}
	t.Run("kept", func(t *testing.T) {
		w, c, before := b.broken(t)
		res := turns(t, w, c, func() {
			var held *records.HeldError
			if _, err := w.service().Records.Locks().Acquire(t.Context(), "prod", records.Holder{}); !errors.As(err, &held) {
				t.Errorf("another process here: %v", err)
			}
			for _, cp := range []string{"cp1", "cp2", "cp3"} {
				if m := w.Hosts[cp]; !m.Lock.Held {
					t.Errorf("%s has no lock", cp)
				}
			}
		})
		if !res.Reverted {
			t.Errorf("it was not rolled back: %+v", res.Failures)
		}
		w.asBefore(before)
	})
	t.Run("taken", func(t *testing.T) {
		w, c, _ := b.broken(t)
		theirs := remote.LockState{Held: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", Fence: 40}, Highest: 40}
		res := turns(t, w, c, func() {
			for _, m := range w.Hosts {
				m.Lock = theirs
			}
		})
		if f := res.Failures; res.Reverted || len(f) != 2 || f[1].Reason != idRevertFailed || w.Hosts["cp1"].Lock.Holder != theirs.Holder {
			t.Errorf("reverted: %t, %+v; the lock is %+v", res.Reverted, f, w.Hosts["cp1"].Lock)
		}
	})
}

// SSH settings are not rolled back: logins with the previous settings could fail.
func TestBadSettings_RollBackWithNewSSHSettings(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]func(*testing.T, *Service, ApplyRequest){
		"automatically": func(t *testing.T, s *Service, r ApplyRequest) {
			p, err := s.Prepare(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res, err := p.Apply(t.Context()); err != nil || !res.Reverted {
				t.Errorf("%+v, %v", res, err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		},
		"by rollback": func(t *testing.T, s *Service, r ApplyRequest) {
			r.KeepFailed = true
			for _, prepare := range []func() (Prepared, error){
				func() (Prepared, error) { return s.Prepare(t.Context(), r, nil) },
				func() (Prepared, error) { return s.PrepareRollback(t.Context(), rollingBack(), nil) },
			} {
				p, err := prepare()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Apply(t.Context()); err != nil {
					t.Error(err)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, c, _ := badSettings()[2].broken(t)
			c.Spec.SSH.User, c.Spec.Hosts[4].SSH.Port = "later", 2222
			s := w.service()
			s.Connect = func(ctx context.Context, h v1alpha1.Host, o remote.Options) (remote.Host, error) {
				if port := map[bool]int{true: 2222}[h.Name == "w2"]; h.SSH.User != "later" || h.SSH.Port != port {
					t.Errorf("%s is logged in to as %s, at port %d", h.Name, h.SSH.User, h.SSH.Port)
				}
				return w.Connect(ctx, h, o)
			}
			by(t, s, applying(c))
			is, err := s.Records.Clusters().Load(t.Context(), "prod")
			if err != nil || is.Status.Phase != v1alpha1.PhaseRunning || is.Spec.SSH.User != "later" || is.Spec.Hosts[4].SSH.Port != 2222 {
				t.Errorf("saved: phase %s, %+v, %v", is.Status.Phase, is.Spec.SSH, err)
			}
		})
	}
}

// If the manager is killed anywhere between the first change and the end of the automatic
// rollback, both resume and rollback restore the previous settings.
func TestBadSettings_AreRolledBackAfterKill(t *testing.T) {
	for _, b := range badSettings() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w, c, before := b.broken(t)
			for _, at := range w.killedWhile(t, func() { w.do(applying(c), event.Failed) }) {
				for _, how := range []string{"resume", "rollback"} {
					t.Run(at.name+" "+how, func(t *testing.T) {
						k := at.world.fork(t)
						k.useT(t)
						k.goBack(t, how)
						k.asBefore(before)
					})
				}
			}
		})
	}
}

// goBack finishes an operation whose process was killed.
func (w *world) goBack(t *testing.T, how string) {
	t.Helper()
	s := w.service()
	var p Prepared
	var err error
	if how == "rollback" {
		p, err = s.PrepareRollback(t.Context(), rollingBack(), nil)
	} else {
		p, err = s.PrepareResume(t.Context(), resuming(), nil)
	}
	if unbegun(err) {
		return
	}
	res, err := w.prepared(p, err).Apply(t.Context())
	if err != nil || res.Outcome != event.Succeeded && !res.Reverted {
		t.Fatalf("%+v, %v: want success or a rollback", res, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// killedWhile returns the states that a kill of the process would leave. It takes one
// state for every few changes of a machine.
func (w *world) killedWhile(t *testing.T, do func()) (moments []moment) {
	t.Helper()
	n := 0
	const every = 4
	for _, m := range w.Hosts {
		m.OnChange = func(what string) {
			w.mu.Lock()
			n++
			at := n
			w.mu.Unlock()
			if at%(every*oneIn) == every%(every*oneIn) { // there may be only a few changes
				f := w.fork(t)
				w.mu.Lock()
				moments = append(moments, moment{fmt.Sprintf("%03d %s", at, what), f})
				w.mu.Unlock()
			}
		}
	}
	do()
	for _, m := range w.Hosts {
		m.OnChange = nil
	}
	if len(moments) == 0 {
		t.Fatal("no moment to kill the process was found")
	}
	return moments
}

// kube-proxy reads feature gates when its pods start; its mode does not change.
func TestKubeProxy_RestartsForChangedFeatureGates(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	for _, gates := range []map[string]bool{{"AllAlpha": false}, {"AllBeta": false}} {
		c := w.Manifest()
		c.Spec.Kubernetes.FeatureGates = gates
		p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
		if !slices.ContainsFunc(p.Plan().Steps, func(s plan.Step) bool { return s.Task == "kubernetes.proxy-pods" }) {
			t.Errorf("with %v kube-proxy is not restarted", gates)
		}
		w.do(applying(c), event.Succeeded)
		if p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil)); !p.Plan().IsEmpty() {
			t.Errorf("with %v there is more to do: %+v", gates, p.Plan().Steps)
		}
	}
}

// kube-proxy applies a new mode when its pods restart, in both directions.
func TestKubeProxy_RunsInNewModeAfterApply(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	for _, mode := range []string{"iptables", "nftables", "iptables"} {
		c := w.Manifest()
		c.Spec.Kubernetes.ProxyMode = mode
		w.do(applying(c), event.Succeeded)
		if !w.API.RunsProxy(mode) {
			t.Errorf("kube-proxy does not run in mode %s", mode)
		}
		if p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil)); !p.Plan().IsEmpty() {
			t.Errorf("with mode %s there is more to do: %+v", mode, p.Plan().Steps)
		}
	}
}
