package lifecycle

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

// aged returns a world with a running cluster of the older version.
func aged(t *testing.T, names ...string) *world {
	t.Helper()
	w := newWorld(t, names...)
	w.age(t)
	return w
}

// age creates a running cluster of the older version.
func (w *world) age(t *testing.T) {
	t.Helper()
	built.older.Do(func() { build(t, older) })
	w.Version = older
	w.create(event.Succeeded)
	w.backable(t)
}

// backable makes an etcd snapshot and all other contents of a backup set available.
func (w *world) backable(t testing.TB) {
	e := &ensemble{}
	for i, name := range slices.Sorted(maps.Keys(w.Hosts)) {
		m := w.Hosts[name]
		if !strings.HasPrefix(name, "cp") && !w.ManagedEtcd {
			continue
		}
		e.members = append(e.members,
			&voter{
				id: uint64(10 + i), leader: 10, name: name, at: m.Address, db: 30 << 20, used: 12 << 20,
				most: 2 << 30, index: 5000, applied: 5000, version: "3.6.8",
			})
		m.Snapshot = lifecycletest.NewEtcdSnapshot(t, 20)
		for _, key := range append(etcdbackup.AuthorityKeys(), etcdbackup.EtcdKeys()...) {
			if !m.HasFile(key) {
				m.Files[key] = "shared " + key
			}
		}
	}
	e.on(w)
}

var toNewest = UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.37.1"}

// versions returns the kubelet versions of nodes, with a note on cordoned nodes.
func (w *world) versions() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for name := range w.Hosts {
		if strings.HasPrefix(name, "e") { // it is not a node
			continue
		}
		w.API.Mu.Lock()
		out[name], _ = w.API.Objects["/api/v1/nodes/"+name]["status"].(object)["nodeInfo"].(object)["kubeletVersion"].(string)
		if _, closed := w.API.Objects["/api/v1/nodes/"+name]["spec"].(object)["unschedulable"]; closed {
			out[name] += " cordoned"
		}
		w.API.Mu.Unlock()
	}
	return out
}

func (w *world) wantVersions(want map[string]string) {
	w.t.Helper()
	if d := cmp.Diff(want, w.versions()); d != "" {
		w.t.Errorf("kubelets (-want +got):\n%s", d)
	}
}

func all(names []string, version string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		out[n] = version
	}
	return out
}

// An upgrade makes a backup, then changes one node at a time, control planes first;
// programs are fetched before the drain.
func TestUpgrade_ChangesOneNodeAtATimeAfterBackup(t *testing.T) {
	t.Parallel()
	w := aged(t, threeAndTwo...)
	w.wantVersions(all(threeAndTwo, older))
	w.events = nil
	w.fetchingAhead()
	res := w.do(toNewest, event.Succeeded)
	if res.Onward != "" {
		t.Errorf("the result names a next version: %s", res.Onward)
	}
	w.keptAs(older, res)
	w.wantVersions(all(threeAndTwo, "v1.37.1"))
	var order []string
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Task == "kubelet.running" && e.Outcome == event.Changed {
			order = append(order, e.Host)
		}
	}
	if d := cmp.Diff(threeAndTwo, order); d != "" {
		t.Errorf("want one host after the other, control planes first (-want +got):\n%s", d)
	}
	w.before("upgrade.drain", "bundle.ahead")
	w.Version = "v1.37.1"
	w.whole()
	w.wantStatus(v1alpha1.PhaseRunning, "upgrade Succeeded", "create Succeeded")
	c, err := w.service().Cluster(t.Context(), "prod")
	if err != nil || c.Spec.Kubernetes.Version != "v1.37.1" {
		t.Errorf("the saved version is %s, %v", c.Spec.Kubernetes.Version, err)
	}
	if p := w.prepared(w.service().Prepare(t.Context(), toNewest, nil)); !p.Plan().IsEmpty() {
		t.Errorf("after the upgrade, something is left to do: %+v", p.Plan().Steps)
	}
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// fetchingAhead makes each fetch of a program fail, except in the step before the drain.
func (w *world) fetchingAhead() {
	for _, m := range w.Hosts {
		m.Refuse = func(step string, o op.Op) *op.Error {
			if step == "bundle.ahead" || o.Kind() != op.KindFetchBlob {
				return nil
			}
			return &op.Error{Reason: "NoBlob", Message: step + " fetches " + o.Target()}
		}
	}
}

// keptAs checks that there is one backup set, of a cluster with this version, and that the
// result names its file.
func (w *world) keptAs(version string, res *Result) {
	w.t.Helper()
	sets, err := w.service().Snapshots(w.t.Context(), "prod")
	if err != nil || len(sets) != 1 || sets[0].Kubernetes != version {
		w.t.Fatalf("backup sets %+v, %v: want one of %s", sets, err, version)
	}
	if !slices.ContainsFunc(res.Ready, func(line string) bool { return strings.HasSuffix(line, sets[0].File) }) {
		w.t.Errorf("%q does not name %s", res.Ready, sets[0].File)
	}
	w.noneLeft()
}

// Without a backup, nothing is changed.
func TestUpgrade_ChangesNothingIfBackupFails(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	refuse := func(_ string, o op.Op) *op.Error {
		if o.Kind() != op.KindEtcdSnapshot {
			return nil
		}
		return &op.Error{Reason: "DiskFull", Message: "there is no room"}
	}
	before := w.Hosts["cp1"].AllState()
	w.Hosts["cp1"].Refuse = refuse
	res := w.do(toNewest, event.Failed)
	if len(res.Failures) != 1 || !strings.Contains(res.Failures[0].Message, "there is no room") {
		t.Errorf("%+v", res.Failures)
	}
	if d := cmp.Diff(before, w.Hosts["cp1"].AllState()); d != "" {
		t.Errorf("cp1 has changed (-was +is):\n%s", d)
	}
	w.Hosts["cp1"].Refuse = nil
	w.keptAs(older, w.resume(event.Succeeded))
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.37.1"))
}

// An upgrade within a minor version uses the same steps; etcd has the same version.
func TestUpgrade_InstallsPatchReleaseOfSameMinor(t *testing.T) {
	t.Parallel()
	const from, to = "v1.35.4", "v1.35.6"
	names := []string{"cp1", "cp2", "cp3", "w1"}
	w := newWorld(t, names...)
	w.cache = t.TempDir()
	w.bundled(t, false, from, to)
	w.Version = from
	w.create(event.Succeeded)
	w.backable(t)
	w.wantVersions(all(names, from))
	w.events = nil
	request := UpgradeRequest{Subject: Subject{Name: "prod"}, Version: to}
	res := w.do(request, event.Succeeded)
	if res.Onward != "" {
		t.Errorf("the result names a next version: %s", res.Onward)
	}
	w.keptAs(from, res)
	w.wantVersions(all(names, to))
	if d := cmp.Diff(names, w.restarted()); d != "" {
		t.Errorf("want one host after the other, control planes first (-want +got):\n%s", d)
	}
	w.Version = to
	w.whole()
	w.wantStatus(v1alpha1.PhaseRunning, "upgrade Succeeded", "create Succeeded")
	if p := w.prepared(w.service().Prepare(t.Context(), request, nil)); !p.Plan().IsEmpty() {
		t.Errorf("after the upgrade, something is left to do: %+v", p.Plan().Steps)
	}
}

// An upgrade over several minor versions is one operation for each of them.
func TestUpgrade_NextMinor(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1")
	s := w.service()
	r := UpgradeRequest{Subject: Subject{Name: "prod", Source: []byte("the file")}, Version: "v1.37.1"}
	c, err := s.Cluster(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	c.Spec.Kubernetes.Version, c.Status.Version = "v1.35.6", "v1.35.6"
	p := s.start(r)
	p.recorded = c
	next, err := r.nextMinor(t.Context(), p)
	if err != nil || next.Spec.Kubernetes.Version != older || r.Version != "v1.37.1" || p.request.Source != nil {
		t.Errorf("the next version is %s on the path to %s (%v); the file is kept: %t", next.Spec.Kubernetes.Version,
			r.Version, err, p.request.Source != nil)
	}
}

// Wherever an upgrade stops, the cluster keeps running, and a resume upgrades the rest.
func TestUpgrade_StopsAtFailureAndResumes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host, step string
		want             map[string]string
	}{
		{
			"canary", "cp1", "upgrade.control-plane",
			map[string]string{"cp1": older + " cordoned", "cp2": older, "cp3": older, "w1": older, "w2": older},
		},
		{
			"control plane", "cp2", "upgrade.control-plane",
			map[string]string{"cp1": "v1.37.1", "cp2": older + " cordoned", "cp3": older, "w1": older, "w2": older},
		},
		{
			"worker", "w1", "kubernetes.programs",
			map[string]string{"cp1": "v1.37.1", "cp2": "v1.37.1", "cp3": "v1.37.1", "w1": older + " cordoned", "w2": older},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			w.Hosts[tc.host].Refuse = func(step string, _ op.Op) *op.Error {
				if step != tc.step {
					return nil
				}
				return &op.Error{Reason: op.ReasonNotServing, Message: "it does not serve"}
			}
			res := w.do(toNewest, event.Failed)
			if len(res.Failures) != 1 || res.Failures[0].Host != tc.host {
				t.Errorf("%+v", res.Failures)
			}
			w.wantVersions(tc.want)
			w.wantPhase(v1alpha1.PhaseFailed)
			for _, r := range []Request{
				applying(w.Manifest()),
				DeleteNodesRequest{Name: "prod", Nodes: []string{"w2"}},
				toNewest,
			} {
				_, err := w.service().Prepare(t.Context(), r, nil)
				wantRefused(t, err, idUpgradeUnfinished)
			}
			w.Hosts[tc.host].Refuse = nil
			w.resume(event.Succeeded)
			w.wantVersions(all(threeAndTwo, "v1.37.1"))
			w.Version = "v1.37.1"
			w.whole()
		})
	}
}

// An upgrade can pause after the first control plane and after all control planes; a CA
// rotation is refused meanwhile.
func TestUpgrade_PausesAfterCanaryAndControlPlanes(t *testing.T) {
	t.Parallel()
	w := aged(t, threeAndTwo...)
	r := toNewest
	r.PauseAfter = PauseCanary
	w.do(r, event.Paused)
	want := all(threeAndTwo, older)
	want["cp1"] = "v1.37.1"
	w.wantVersions(want)
	w.wantPhase(v1alpha1.PhasePaused)
	// A CA rotation needs all control planes at the same version.
	_, err := w.service().Prepare(t.Context(), RotateCARequest{Name: "prod", Names: []string{certs.Cluster}}, nil)
	wantRefused(t, err, idUpgradeUnfinished)
	p, err := w.service().PrepareResume(t.Context(), ResumeRequest{Subject: Subject{Name: "prod"}, PauseAfter: PauseControlPlane}, nil)
	w.apply(w.prepared(p, err), event.Paused)
	want["cp2"], want["cp3"] = "v1.37.1", "v1.37.1"
	w.wantVersions(want)
	w.resume(event.Succeeded)
	w.wantVersions(all(threeAndTwo, "v1.37.1"))
}

// The only node is not drained: no other node could run its pods.
func TestUpgrade_DoesNotDrainOnlyNode(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1")
	p := w.prepared(w.service().Prepare(t.Context(), toNewest, nil))
	for _, s := range p.Plan().Steps {
		if s.Task == "upgrade.drain" || s.Task == "upgrade.uncordon" {
			t.Errorf("%s is planned", s.Task)
		}
	}
	w.apply(p, event.Succeeded)
	w.wantVersions(map[string]string{"cp1": "v1.37.1"})
}

func TestUpgrade_RefusesInvalidRequestOrUnreadyNode(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	changed, unsaid := w.Manifest(), w.Manifest()
	changed.Spec.Kubernetes.Version, changed.Spec.Kubernetes.ProxyMode = "v1.37.1", "iptables"
	unsaid.Spec.Kubernetes.Version = ""
	for _, tc := range []struct {
		name string
		r    Request
		id   string
	}{
		{"a downgrade", UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.35.6"}, "upgrade-path"},
		{"not a version", UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "newest"}, "unsupported-kubernetes"},
		{"a file with more", UpgradeRequest{Subject: Subject{Cluster: changed}}, idUpgradeHow},
		{"two versions", UpgradeRequest{Subject: Subject{Cluster: changed}, Version: "v1.36.4"}, idUpgradeHow},
		{"a file without a version", UpgradeRequest{Subject: Subject{Cluster: unsaid}}, idUpgradeHow},
		{
			"how many",
			UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.37.1", MaxUnavailable: "many"},
			idUpgradeHow,
		},
		{"by apply", applying(func() *v1alpha1.Cluster {
			c := w.Manifest()
			c.Spec.Kubernetes.Version = "v1.37.1"
			return c
		}()), "not-supported-yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := w.service().Prepare(t.Context(), tc.r, nil)
			wantRefused(t, err, tc.id)
		})
	}
	if _, err := w.service().Prepare(t.Context(), UpgradeRequest{Subject: Subject{Name: "other"}, Version: "v1.37.1"},
		nil); !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("an unknown cluster: %v", err)
	}
	w.API.MarkNodeLost("w1")
	_, err := w.service().Prepare(t.Context(), toNewest, nil)
	wantRefused(t, err, "upgrade-node-unready")
	w.wantVersions(map[string]string{"cp1": older, "w1": older})
}

func wantRefused(t *testing.T, err error, id string) {
	t.Helper()
	var list diag.List
	if !errors.As(err, &list) || !slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.ID == id }) {
		t.Errorf("%v, want %s", err, id)
	}
}

// Later operations do not hide an unfinished upgrade.
func TestUpgrade_StaysUnfinishedAfterLaterOperations(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	w.Hosts["w1"].Refuse = func(step string, _ op.Op) *op.Error {
		if step != "kubernetes.programs" {
			return nil
		}
		return &op.Error{Reason: "DiskFull", Message: "there is no room"}
	}
	w.do(toNewest, event.Failed)
	w.Hosts["w1"].Refuse = nil
	s := w.service()
	for _, k := range []operation.Kind{operation.RenewCerts, operation.DefragEtcd, operation.RestoreEtcd} {
		o, err := s.Records.Operations().Create(t.Context(), w.Now(), v1alpha1.OperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: string(k),
		}, &plan.Plan{Cluster: "prod"})
		if err != nil {
			t.Fatal(err)
		}
		now := metav1.NewTime(w.Now())
		o.Status.State, o.Status.StartTime = v1alpha1.OperationSucceeded, &now
		if err := s.Records.Operations().Save(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Prepare(t.Context(), applying(w.Manifest()), nil)
	wantRefused(t, err, idUpgradeUnfinished)
	w.resume(event.Succeeded)
	w.wantVersions(all([]string{"cp1", "w1"}, "v1.37.1"))
}

// An upgrade that was interrupted while it was saved is detected, wherever that was.
func TestUpgrade_IsDetectedIfKilledWhileSaved(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		noted bool // whether the cluster status is set
		goOn  func(*world)
		want  string
	}{
		{"saved", false, func(w *world) { w.do(toNewest, event.Succeeded) }, toNewest.Version},
		{"noted, resumed", true, func(w *world) { w.resume(event.Succeeded) }, toNewest.Version},
		{"noted, rolled back", true, func(w *world) { w.rollback(event.Succeeded) }, older},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			s := w.service()
			p := w.prepared(s.Prepare(t.Context(), toNewest, nil)).(*prepared)
			o, err := p.operation(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Records.Clusters().Save(t.Context(), p.env.Cluster, nil); err != nil {
				t.Fatal(err)
			}
			if tc.noted {
				if err := (execution{p}).note(t.Context(), o, execution{p}.noteBegin); err != nil {
					t.Fatal(err)
				}
			}
			c := w.Manifest()
			c.Spec.Kubernetes.Version = ""
			_, err = s.Prepare(t.Context(), applying(c), nil)
			refusal(t, err, idUpgradeUnfinished)
			tc.goOn(w)
			w.wantVersions(all(threeAndTwo, tc.want))
			w.Version = tc.want
			w.whole()
		})
	}
}

// An upgrade needs a cluster without unfinished operations.
func TestUpgrade_RefusesUnfinishedOperation(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	w.Hosts["w1"].Refuse = func(string, op.Op) *op.Error { return &op.Error{Reason: "DiskFull", Message: "there is no room"} }
	c := w.Manifest()
	c.Spec.Kubernetes.Kubelet.ExtraArgs = map[string]string{"v": "4"}
	w.do(applying(c), event.Failed)
	_, err := w.service().Prepare(t.Context(), toNewest, nil)
	wantRefused(t, err, idOperationUnfinished)
}

// An upgrade that was killed anywhere can be resumed, with the same result.
func TestUpgrade_ResumesAfterKill(t *testing.T) {
	w := aged(t, "cp1", "cp2", "cp3", "w1")
	for _, m := range w.killed(t, toNewest) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(toNewest)
			k.wantVersions(all([]string{"cp1", "cp2", "cp3", "w1"}, "v1.37.1"))
			k.Version = "v1.37.1"
			k.whole()
			k.same(w)
		})
	}
}

// A file names other files relative to its directory. An upgrade with that file is an
// upgrade of the same cluster settings.
func TestUpgrade_FindsFilesOfClusterFile(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hello.sh"), []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := w.Manifest()
	file.Spec.Hooks = []v1alpha1.Hook{{Name: "hello", Phase: v1alpha1.HookPostInstall, Script: "hello.sh"}}
	w.do(ApplyRequest{Subject: Subject{Cluster: file, Dir: dir}}, event.Succeeded)
	file.Spec.Kubernetes.Version = toNewest.Version
	p := w.prepared(w.service().Prepare(t.Context(), UpgradeRequest{Subject: Subject{Cluster: file, Dir: dir}}, nil))
	if p.Plan().IsEmpty() {
		t.Error("the plan is empty")
	}
}
