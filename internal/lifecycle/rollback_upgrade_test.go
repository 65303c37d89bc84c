package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
)

// refusing makes a step fail on a host.
func (w *world) refusing(host, at string) {
	w.Hosts[host].Refuse = func(step string, _ op.Op) *op.Error {
		if step != at {
			return nil
		}
		return &op.Error{Reason: op.ReasonNotServing, Message: "it does not serve"}
	}
}

// restarted returns the hosts whose kubelets were restarted, in order.
func (w *world) restarted() (order []string) {
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Task == "kubelet.running" && e.Outcome == event.Changed {
			order = append(order, e.Host)
		}
	}
	return order
}

// Wherever an upgrade has stopped, a rollback restores the previous version. The hosts
// that were upgraded last are rolled back first.
func TestUpgrade_RollsBackFromAnyStep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host, step string
		order            []string
	}{
		{"before a host", "cp1", "runtime.images", nil},
		{"canary", "cp1", "upgrade.control-plane", []string{}},
		{"control plane", "cp2", "upgrade.control-plane", []string{"cp1"}},
		{"kubelet", "cp3", "kubelet.running", []string{"cp2", "cp1"}},
		{"worker", "w2", "kubelet.running", []string{"w1", "cp3", "cp2", "cp1"}},
		{"etcd", "cp2", "upgrade.etcd", nil},
		{"after the control plane, with another minor of etcd", "cp1", "upgrade.rights", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			was := map[string]map[string]string{}
			for name, m := range w.Hosts {
				was[name] = m.AllState()
			}
			w.refusing(tc.host, tc.step)
			w.do(toNewest, event.Failed)
			w.Hosts[tc.host].Refuse = nil
			w.events = nil
			w.rollback(event.Succeeded)
			w.wantVersions(all(threeAndTwo, older))
			if order := w.restarted(); tc.order != nil && !slices.Equal(order, tc.order) {
				t.Errorf("kubelets were rolled back in the order %v, want %v", order, tc.order)
			}
			w.wantStatus(v1alpha1.PhaseRunning, "rollback-upgrade Succeeded", "upgrade Failed", "create Succeeded")
			w.whole()
			for name, m := range w.Hosts {
				now := m.AllState()
				for path := range was[name] {
					if strings.HasPrefix(path, "/etc/kubernetes/") && now[path] != was[name][path] {
						t.Errorf("%s: %s differs from before:\n%s", name, path, cmp.Diff(was[name][path], now[path]))
					}
				}
			}
			c, err := w.service().Cluster(t.Context(), "prod")
			if err != nil || c.Spec.Kubernetes.Version != older || c.Status.Version != older {
				t.Errorf("saved are %s, %s, %v", c.Spec.Kubernetes.Version, c.Status.Version, err)
			}
			w.do(toNewest, event.Succeeded)
			w.wantVersions(all(threeAndTwo, "v1.37.1"))
			w.Version = "v1.37.1"
			w.whole()
		})
	}
}

// A paused upgrade can be rolled back like a failed one.
func TestUpgrade_RollsBackWhenPaused(t *testing.T) {
	t.Parallel()
	w := aged(t, threeAndTwo...)
	r := toNewest
	r.PauseAfter = PauseControlPlane
	w.do(r, event.Paused)
	w.rollback(event.Succeeded)
	w.wantVersions(all(threeAndTwo, older))
	w.whole()
}

// A rollback that was killed anywhere can be finished. Until then, other operations are
// refused.
func TestRollbackUpgrade_FinishesAfterKill(t *testing.T) {
	w := aged(t, "cp1", "cp2", "cp3", "w1")
	w.refusing("w1", "upgrade.kubelet-config")
	w.do(toNewest, event.Failed)
	w.Hosts["w1"].Refuse = nil
	for _, m := range w.killedAt(t, func(s *Service) (Prepared, error) { return s.PrepareRollback(t.Context(), rollingBack(), nil) }) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			if _, ops := k.status(); strings.HasPrefix(ops[0], "rollback-upgrade") && !strings.HasSuffix(ops[0], "Succeeded") &&
				!strings.HasSuffix(ops[0], "Pending") {
				_, err := k.service().Prepare(t.Context(), toNewest, nil)
				wantRefused(t, err, idUpgradeUnfinished)
			}
			p, err := k.service().PrepareRollback(t.Context(), rollingBack(), nil)
			if !unbegun(err) {
				k.apply(k.prepared(p, err), event.Succeeded)
			}
			k.wantVersions(all([]string{"cp1", "cp2", "cp3", "w1"}, older))
			k.whole()
			k.same(w)
		})
	}
}

// A completed upgrade cannot be rolled back; the error names the backup set to restore
// instead.
func TestUpgrade_CannotRollBackAfterSuccess(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	res := w.do(toNewest, event.Succeeded)
	_, err := w.service().PrepareRollback(t.Context(), rollingBack(), nil)
	wantRefused(t, err, idUpgradeCommitted)
	if file := res.Ready[len(res.Ready)-1]; !strings.Contains(err.Error(), file[strings.Index(file, "/"):]) {
		t.Errorf("%v, want it to name the same file as %q", err, file)
	}
}

// A rollback is refused while the cluster has objects that the previous version does not
// know. The user deletes them, or restores the data from before the upgrade.
func TestRollback_RefusesUnknownKinds(t *testing.T) {
	t.Parallel()
	for _, restores := range []bool{false, true} {
		t.Run(map[bool]string{false: "deleted", true: "restored"}[restores], func(t *testing.T) {
			w := aged(t, "cp1", "w1")
			w.refusing("w1", "kubernetes.programs")
			w.do(toNewest, event.Failed)
			w.Hosts["w1"].Refuse = nil
			const of = "/apis/certificates.k8s.io/v1/clustertrustbundles/"
			bundle := func(name string) object {
				return object{"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": object{"name": name}}
			}
			w.API.PutObject(of+"kubernetes.io:kube-apiserver-serving:x", bundle("kubernetes.io:kube-apiserver-serving:x"))
			w.API.PutObject(of+"mine", bundle("mine"))
			_, err := w.service().PrepareRollback(t.Context(), rollingBack(), nil)
			wantRefused(t, err, idKindsInUse)
			if err != nil && (!strings.Contains(err.Error(), "clustertrustbundles mine") || strings.Contains(err.Error(), "serving:x")) {
				t.Errorf("the error names the wrong objects: %v", err)
			}
			sets, serr := w.service().Snapshots(t.Context(), "prod")
			if serr != nil || len(sets) != 1 {
				t.Fatalf("backup sets %+v, %v", sets, serr)
			}
			want := "or restore the data from before the upgrade, which loses these objects and all other later writes: " +
				"slipway etcd restore prod --from " +
				sets[0].File
			if hint := first(err).Hint; !strings.HasSuffix(hint, want) {
				t.Errorf("the hint is %q, want it to end with %q", hint, want)
			}
			if restores {
				w.do(restoring(sets[0].File), event.Succeeded)
			}
			w.API.RemoveObject(of + "mine")
			w.rollback(event.Succeeded)
			w.wantVersions(all([]string{"cp1", "w1"}, older))
		})
	}
}

// If this machine has no backup set from before the upgrade, the hint reports it.
func TestRollback_HintReportsMissingBackup(t *testing.T) {
	t.Parallel()
	s := newWorld(t, "cp1").service()
	o := &v1alpha1.Operation{Spec: v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}}}
	if got := s.describeRestoreInstead(t.Context(), o); !strings.Contains(got, "this machine has no backup set from before the upgrade") {
		t.Errorf("without a set: %s", got)
	}
}

// If the leader control plane is broken, the operation uses the other control planes.
func TestUpgrade_UsesOtherControlPlanes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version string
		do      func(*world)
	}{
		"rolled back": {older, func(w *world) { w.rollback(event.Succeeded) }},
		"resumed":     {"v1.37.1", func(w *world) { w.resume(event.Succeeded) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			w.refusing("cp1", "upgrade.control-plane")
			w.do(toNewest, event.Failed)
			m := w.Hosts["cp1"]
			m.Refuse, m.APIRefused = nil, true
			tc.do(w)
			m.APIRefused = false
			w.wantVersions(all(threeAndTwo, tc.version))
			w.Version = tc.version
			w.whole()
		})
	}
}

// A host that is permanently lost can be removed during an upgrade, which is then finished
// or rolled back without the host.
func TestUpgrade_FinishesWithoutLostHost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host, step string
		back             bool
	}{
		{"a worker, resumed", "w1", "kubernetes.programs", false},
		{"a worker, rolled back", "w1", "kubernetes.programs", true},
		{"a control plane, resumed", "cp2", "upgrade.control-plane", false},
		{"a control plane, rolled back", "cp2", "upgrade.control-plane", true},
		{"the first, resumed", "cp1", "upgrade.control-plane", false},
		{"the first, rolled back", "cp1", "upgrade.control-plane", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := aged(t, threeAndTwo...)
			w.refusing(tc.host, tc.step)
			w.do(toNewest, event.Failed)
			gone := DeleteNodesRequest{Name: "prod", Nodes: []string{tc.host}, Forget: true}
			_, err := w.service().Prepare(t.Context(), gone, nil)
			wantRefused(t, err, idUpgradeUnfinished) // the host is reachable
			w.Hosts[tc.host].Down = errDown
			w.API.StopMember(tc.host)
			w.API.MarkNodeLost(tc.host)
			_, err = w.service().Prepare(t.Context(), DeleteNodesRequest{Name: "prod", Nodes: []string{tc.host}}, nil)
			wantRefused(t, err, idUpgradeUnfinished)
			before := w.versions()
			w.do(gone, event.Succeeded)
			delete(before, tc.host)
			left := slices.DeleteFunc(slices.Clone(threeAndTwo), func(n string) bool { return n == tc.host })
			delete(w.Hosts, tc.host)
			w.wantVersions(before)
			w.wantPhase(v1alpha1.PhaseFailed)
			if w.API.HasObject("/api/v1/nodes/"+tc.host) || w.API.EtcdRole(tc.host) != "" {
				t.Errorf("%s is still a node or an etcd member", tc.host)
			}
			want := "v1.37.1"
			if tc.back {
				want = older
				w.rollback(event.Succeeded)
			} else {
				w.resume(event.Succeeded)
			}
			w.wantVersions(all(left, want))
			w.Version = want
			w.whole()
		})
	}
}
