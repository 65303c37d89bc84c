package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
)

// refusal checks for a diagnostic with this id and a hint.
func refusal(t *testing.T, err error, id string) {
	t.Helper()
	var list diag.List
	switch {
	case !errors.As(err, &list) || len(list) == 0:
		t.Errorf("got %v, want error %s", err, id)
	case list[0].ID != id:
		t.Errorf("refused as %s (%s), want %s", list[0].ID, list[0].Message, id)
	case list[0].Hint == "":
		t.Errorf("%s has no hint: %s", id, list[0].Message)
	}
}

// breaking makes an operation of one task fail on a machine.
func breaking(task string) func(string, op.Op) *op.Error {
	return func(step string, _ op.Op) *op.Error {
		if step == task {
			return &op.Error{Reason: "DiskFull", Message: "no space left on the disk"}
		}
		return nil
	}
}

// An apply without changes starts no operation, and a delete removes everything that was
// installed on the hosts.
func TestDelete_ResetsHostsAfterCreateAndApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	res := w.create(event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
	w.whole()
	if res.Kubeconfig == "" || len(res.Ready) == 0 || res.Changed == 0 {
		t.Errorf("the result is incomplete: %+v", res)
	}

	res = w.do(applying(w.Manifest()), event.Succeeded)
	if res.Operation != "" || res.Changed != 0 {
		t.Errorf("an apply without changes began operation %q", res.Operation)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")

	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.wantStatus("", "delete Succeeded", "create Succeeded")
	w.bare()
}

// changed describes the cluster with another kubelet setting.
func (w *world) changed() *v1alpha1.Cluster {
	c := w.Manifest()
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)}
	return c
}

func TestApply_ChangesOnlyDifferingSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	p := w.prepared(w.service().Prepare(t.Context(), applying(w.changed()), nil))
	for _, s := range p.Plan().Steps {
		switch s.Task {
		case "kubernetes.kubelet", "kubelet.settings", "record.cluster":
		default:
			t.Errorf("the plan has step %s on %s: only kubelets change", s.Task, s.Host)
		}
	}
	w.apply(p, event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "create Succeeded")
}

// A report of a node from before its kubelet restarted does not count: the restarted
// kubelet first reports that it is not ready.
func TestApply_WaitsForReadyReportAfterKubeletRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	w.Hosts["w1"].KubeletStarted = time.Now()
	var steps []string
	for _, s := range w.prepared(w.service().Prepare(t.Context(), applying(w.Manifest()), nil)).Plan().Steps {
		steps = append(steps, s.Task+" on "+s.Host)
	}
	if want := []string{"nodes.ready on w1"}; !slices.Equal(steps, want) {
		t.Errorf("the plan has %v, want %v", steps, want)
	}
	w.API.ReportReady("w1", time.Now())
	if p := w.prepared(w.service().Prepare(t.Context(), applying(w.Manifest()), nil)).Plan(); len(p.Steps) != 0 {
		t.Errorf("the kubelet has reported, and the plan has %v", p.Steps)
	}
}

// A password of the cluster file is in no plan, so a new one needs no operation. It must
// be saved all the same.
func TestApply_SavesNewPasswordWithoutOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	c := w.Manifest()
	c.Spec.SSH.Password = "canary"
	w.do(applying(c), event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
	recorded, err := w.service().Records.Clusters().Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Spec.SSH.Password != "canary" {
		t.Error("the new password is not saved")
	}
}

// State of earlier versions always has the user root and port 22. A file without a login
// changes nothing, and the login is kept.
func TestApply_KeepsLoginSavedByEarlierVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	s := w.service()
	recorded, err := s.Records.Clusters().Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Spec.SSH.User != "" || recorded.Spec.SSH.Port != 0 {
		t.Errorf("a new record has a login without one in the file: %+v", recorded.Spec.SSH)
	}
	old := w.Manifest() // as earlier versions saved it, here and in the cluster
	old.Spec.SSH.User, old.Spec.SSH.Port = "root", 22
	w.do(applying(old), event.Succeeded)
	for name, c := range map[string]*v1alpha1.Cluster{"the file leaves it open": w.Manifest(), "as recorded": nil} {
		r := ApplyRequest{Subject: Subject{Cluster: c, Name: "prod"}}
		if p := w.prepared(w.service().Prepare(t.Context(), r, nil)).Plan(); len(p.Steps) != 0 {
			t.Errorf("%s: the plan has %v", name, p.Steps)
		}
		w.do(r, event.Succeeded)
		is, err := s.Records.Clusters().Load(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		if is.Spec.SSH.User != "root" || is.Spec.SSH.Port != 22 {
			t.Errorf("%s: the saved login is %+v", name, is.Spec.SSH)
		}
	}
}

// Requests that do not fit the state of the cluster are refused with a hint, and the
// cluster keeps running.
func TestRefusedRequests_DoNotChangeCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	s := w.service()
	ctx := t.Context()
	if _, err := s.Prepare(ctx, DeleteRequest{Subject: Subject{Name: "prod"}}, nil); !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("deleting an unknown cluster: %v", err)
	}
	if _, err := s.PrepareResume(ctx, resuming(), nil); !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("resuming an unknown cluster: %v", err)
	}
	refusal(t, s.Cancel(ctx, "prod", nil), idNothingRunning)
	w.create(event.Succeeded)

	_, err := s.Prepare(ctx, creating(w.Manifest()), nil)
	refusal(t, err, idClusterExists)
	if !strings.Contains(err.Error(), "slipway apply") {
		t.Errorf("%v: does not name apply", err)
	}
	_, err = s.PrepareResume(ctx, resuming(), nil)
	refusal(t, err, idNothingUnfinished)
	_, err = s.PrepareRollback(ctx, rollingBack(), nil)
	refusal(t, err, idNothingUnfinished)

	other := w.Manifest()
	other.Spec.Network.PodCIDR = []string{"10.99.0.0/16"}
	_, err = s.Prepare(ctx, applying(other), nil)
	refusal(t, err, "immutable-field")
	bundled := w.Manifest()
	bundled.Spec.Bundle = filepath.Join(w.home, "missing")
	_, err = s.Prepare(ctx, applying(bundled), nil)
	if err == nil {
		t.Error("a missing bundle is accepted")
	}
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
	w.whole()
}

// After a failed creation, a second create is refused; a resume or an apply finishes it,
// and a rollback resets the hosts.
func TestFailedCreate_CanBeResumedAppliedOrRolledBack(t *testing.T) {
	t.Parallel()
	broken := func(t *testing.T) *world {
		w := newWorld(t, "cp1", "w1")
		w.Hosts["w1"].Refuse = breaking("join.kubelet-start")
		res := w.create(event.Failed)
		if f := res.Failures[0]; f.Host != "w1" || f.Reason != "DiskFull" || len(res.Failures) != 1 {
			t.Errorf("the root cause is %+v", res.Failures)
		}
		w.wantStatus(v1alpha1.PhaseFailed, "create Failed")
		if tokens := w.API.JoinTokens(); len(tokens) > 0 {
			t.Error("a join token is left by the operation that failed")
		}
		_, err := w.service().Prepare(t.Context(), creating(w.Manifest()), nil)
		refusal(t, err, idClusterExists)
		if !strings.Contains(err.Error(), "slipway resume") {
			t.Errorf("%v: does not name resume", err)
		}
		w.Hosts["w1"].Refuse = nil
		return w
	}
	t.Run("resume", func(t *testing.T) {
		w := broken(t)
		w.resume(event.Succeeded)
		w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
		w.whole()
	})
	t.Run("apply", func(t *testing.T) {
		w := broken(t)
		res := w.do(applying(w.changed()), event.Succeeded)
		if !strings.Contains(res.Operation, "-create-") {
			t.Errorf("operation %s, want a create: the cluster never ran", res.Operation)
		}
		w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded", "create Failed")
	})
	t.Run("rollback", func(t *testing.T) {
		w := broken(t)
		p, _ := w.rollback(event.Succeeded)
		if len(p.Removes) != 2 {
			t.Errorf("the plan removes %v, want both hosts", p.Removes)
		}
		w.wantStatus("", "rollback Succeeded", "create Failed")
		w.bare()
		w.create(event.Succeeded)
	})
	t.Run("failed rollback resumes", func(t *testing.T) {
		w := broken(t)
		w.Hosts["w1"].Refuse = breaking("reset.restore")
		w.rollback(event.Failed)
		w.Hosts["w1"].Refuse = nil
		w.resume(event.Succeeded)
		w.bare()
	})
}

// After a failed apply, Slipway does not create the cluster again or remove it, and still
// refuses to change fixed fields.
func TestFailedApply_CanBeResumedOrRolledBack(t *testing.T) {
	t.Parallel()
	broken := func(t *testing.T) *world {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		w.Hosts["w1"].Refuse = breaking("kubernetes.kubelet")
		w.do(applying(w.changed()), event.Failed)
		w.wantStatus(v1alpha1.PhaseFailed, "apply Failed", "create Succeeded")
		w.Hosts["w1"].Refuse = nil
		return w
	}
	t.Run("resume", func(t *testing.T) {
		w := broken(t)
		w.resume(event.Succeeded)
		w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "create Succeeded")
		if text := w.Hosts["w1"].Files["/etc/kubernetes/kubelet.conf.d/50-slipway.conf"]; !strings.Contains(text, "maxPods: 50") {
			t.Errorf("the kubelet's settings are\n%s", text)
		}
	})
	t.Run("rollback restores the previous description", func(t *testing.T) {
		w := broken(t)
		p, _ := w.rollback(event.Succeeded)
		if len(p.Removes) > 0 {
			t.Errorf("the plan removes %v", p.Removes)
		}
		w.wantStatus(v1alpha1.PhaseRunning, "apply Succeeded", "apply Failed", "create Succeeded")
		w.whole()
	})
	t.Run("apply is still an apply", func(t *testing.T) {
		w := broken(t)
		w.Hosts["w1"].Refuse = breaking("kubernetes.kubelet")
		w.do(applying(w.changed()), event.Failed)
		w.wantStatus(v1alpha1.PhaseFailed, "apply Failed", "apply Failed", "create Succeeded")
		p, err := w.service().PrepareRollback(t.Context(), rollingBack(), nil)
		if p = w.prepared(p, err); len(p.Plan().Removes) > 0 {
			t.Error("the rollback of a change removes the cluster")
		}
	})
	t.Run("immutable fields are still refused", func(t *testing.T) {
		w := broken(t)
		c := w.changed()
		c.Spec.Network.PodCIDR = []string{"10.99.0.0/16"}
		_, err := w.service().Prepare(t.Context(), applying(c), nil)
		refusal(t, err, "immutable-field")
	})
}

// Planning changes nothing; a saved plan is applied as saved, and is refused as stale
// when a host differs from it.
func TestSavedPlan_IsAppliedUnlessHostsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	s := w.service()
	save := func(r Request) *plan.Plan {
		p := w.prepared(s.Prepare(t.Context(), r, nil))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		return p.Plan()
	}
	again := save(creating(w.Manifest()))
	saved := save(creating(w.Manifest()))
	if again.Digest != saved.Digest {
		t.Errorf("two plans of the same request differ:\n%s", plan.Diff(again, saved))
	}
	for _, m := range w.Hosts {
		if m.HasLedger || m.Lock.Highest > 0 {
			t.Errorf("planning has changed %s", m.Name)
		}
	}
	if ops, err := s.Operations(t.Context(), ""); err != nil || len(ops) > 0 {
		t.Errorf("planning has saved operations %v, %v", ops, err)
	}
	w.apply(w.prepared(s.PrepareSaved(t.Context(), saved, ApplyOptions{}, nil)), event.Succeeded)
	w.whole()

	w.do(ApplyRequest{Subject: Subject{Cluster: w.changed(), Source: []byte("# mine")}}, event.Succeeded)
	saved = save(applying(w.Manifest()))
	w.apply(w.prepared(s.PrepareSaved(t.Context(), saved, ApplyOptions{}, nil)), event.Succeeded)
	if source, err := s.Records.Clusters().LoadSource(t.Context(), "prod"); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("the saved file is %+v (%v), want none as in the plan", source, err)
	}

	saved = save(applying(w.changed()))
	w.Hosts["w1"].Files["/etc/crictl.yaml"] = "edited"
	_, err := s.PrepareSaved(t.Context(), saved, ApplyOptions{}, nil)
	var stale *StaleError
	if !errors.As(err, &stale) || !strings.Contains(stale.Difference, "/etc/crictl.yaml") {
		t.Errorf("got %v, want a stale plan with the difference", err)
	}
}

// A plan holds no password. A plan that would need one later is not saved.
func TestSavePlan_RefusedWithPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	savable := func(r Request) error {
		t.Helper()
		p := w.prepared(w.service().Prepare(t.Context(), r, nil))
		err := p.Savable()
		return errors.Join(err, p.Close())
	}
	with := func(cluster, host string) *v1alpha1.Cluster {
		c := w.Manifest()
		c.Spec.SSH.Password, c.Spec.Hosts[1].SSH.Password = cluster, host
		return c
	}
	if err := savable(creating(w.Manifest())); err != nil {
		t.Errorf("without a password: %v", err)
	}
	refusal(t, savable(creating(with("canary", ""))), idPlanNoPassword)
	refusal(t, savable(creating(with("", "canary"))), idPlanNoPassword)
	w.do(creating(with("canary", "")), event.Succeeded)
	if err := savable(applying(with("canary", ""))); err != nil {
		t.Errorf("with a saved password: %v", err)
	}
	refusal(t, savable(applying(with("another", ""))), idPlanNoPassword)
	if err := savable(ApplyRequest{Subject: Subject{Name: "prod"}}); err != nil {
		t.Errorf("as saved: %v", err)
	}
}

// Two managers plan at the same time. The second one to apply must plan again.
func TestApply_StaleAfterAnotherApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	late := w.prepared(w.service().Prepare(t.Context(), creating(w.Manifest()), nil))
	w.create(event.Succeeded)
	var stale *StaleError
	if _, err := late.Apply(t.Context()); !errors.As(err, &stale) {
		t.Errorf("got %v, want a stale plan", err)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
}

// A lock of another process or manager stops an operation unless it is stale or the
// request breaks it.
func TestLock_BlocksOtherProcessesAndManagers(t *testing.T) {
	t.Parallel()
	t.Run("by another process", func(t *testing.T) {
		w := newWorld(t, "cp1")
		p := w.prepared(w.service().Prepare(t.Context(), creating(w.Manifest()), nil))
		l, err := w.service().Records.Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "op-1"})
		if err != nil {
			t.Fatal(err)
		}
		var locked *LockedError
		if _, err := p.Apply(t.Context()); !errors.As(err, &locked) || locked.Operation != "op-1" || locked.Elsewhere {
			t.Errorf("got %v, want the cluster locked by op-1", err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("by another manager", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.create(event.Succeeded)
		m := w.Hosts["cp1"]
		m.Lock = remote.LockState{
			Held:   true,
			Holder: remote.Lock{Operation: "theirs", Manager: "m2", By: "process 7 on mgr2 since noon", Fence: 7}, Highest: 7, AgeSeconds: 3,
		}
		p := w.prepared(w.service().Prepare(t.Context(), applying(w.changed()), nil))
		var locked *LockedError
		if _, err := p.Apply(t.Context()); !errors.As(err, &locked) || locked.Operation != "theirs" || !locked.Elsewhere ||
			locked.Holder != "process 7 on mgr2 since noon, last heartbeat 3 s ago" {
			t.Errorf("got %v, want a lock of operation theirs", err)
		}
		// The cluster is unchanged, and there is nothing to resume.
		w.wantStatus(v1alpha1.PhaseRunning, "apply Failed", "create Succeeded")
		_, err := w.service().PrepareResume(t.Context(), resuming(), nil)
		refusal(t, err, idNothingUnfinished)
		// the default
		recorded, err := w.service().Records.Clusters().Load(t.Context(), "prod")
		if err != nil || len(recorded.Spec.Kubernetes.Kubelet.Config) != 1 {
			t.Errorf("the state is from an operation that never began (%v)", err)
		}

		takes := applying(w.changed())
		takes.BreakLock = true
		w.do(takes, event.Succeeded)
		if m.Lock.Highest != 8 || m.Lock.Held {
			t.Errorf("lock %+v, want fence 8 and no holder", m.Lock)
		}
		m.Lock.Held, m.Lock.Stale = true, true
		w.do(applying(w.Manifest()), event.Succeeded)
		if m.Lock.Highest != 9 {
			t.Errorf("fence %d, want it to rise with each operation", m.Lock.Highest)
		}
	})
	t.Run("taken over in the middle", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		for _, m := range w.Hosts {
			m.OnChange = func(what string) {
				if strings.HasPrefix(what, "runtime.images") {
					m.Mu.Lock()
					m.Lock = remote.LockState{Held: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", Fence: 9}, Highest: 9}
					m.Mu.Unlock()
				}
			}
		}
		res := w.create(event.Failed)
		if f := res.Failures[0]; f.Reason != "Fenced" {
			t.Errorf("failure %+v, want reason Fenced", f)
		}
		if m := w.Hosts["cp1"]; m.Lock.Holder.Manager != "m2" || !m.Lock.Held {
			t.Errorf("the other's lock is now %+v", m.Lock)
		}
	})
}

// TestCreate_SkipsTokenCleanupBeforeFirstToken fails before there is an API server.
func TestCreate_SkipsTokenCleanupBeforeFirstToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.Hosts["cp1"].Refuse = func(step string, _ op.Op) *op.Error {
		if step == "kubeadm.init.etcd" {
			return &op.Error{Reason: "CommandFailed", Message: "no"}
		}
		return nil
	}
	var log bytes.Buffer
	s := w.service()
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.apply(w.prepared(s.Prepare(t.Context(), creating(w.Manifest()), nil)), event.Failed)
	if strings.Contains(log.String(), "tokens") {
		t.Errorf("it tries to delete join tokens: %s", log.String())
	}
}

// TestPaused_CanBePlannedButNotApplied pauses a cluster in its file, before and after its
// creation.
func TestPaused_CanBePlannedButNotApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	paused := w.Manifest()
	paused.Spec.Paused = true
	refused := func(r Request) {
		t.Helper()
		before := w.Hosts["cp1"].AllState()
		_, err := w.prepared(w.service().Prepare(t.Context(), r, nil)).Apply(t.Context())
		var list diag.List
		if !errors.As(err, &list) || list[0].ID != idClusterPaused {
			t.Errorf("got error %v, want %s", err, idClusterPaused)
		}
		if d := cmp.Diff(before, w.Hosts["cp1"].AllState()); d != "" {
			t.Errorf("the host changed (-before +after):\n%s", d)
		}
	}
	refused(creating(paused))
	w.create(event.Succeeded)
	paused.Spec.DNS.Upstream = []string{"192.0.2.53"}
	refused(applying(paused))
	w.do(applying(w.Manifest()), event.Succeeded)
}

// A cancelled operation is paused and can be resumed or rolled back.
func TestCancel_StopsOperationAtSafePoint(t *testing.T) {
	stopped := func(t *testing.T, why error) *world {
		w := newWorld(t, "cp1", "w1")
		ctx, cancel := context.WithCancelCause(t.Context())
		w.Hosts["cp1"].OnChange = func(what string) {
			if strings.HasPrefix(what, "kubeadm.init.etcd") {
				cancel(why)
			}
		}
		p := w.prepared(w.service().Prepare(ctx, creating(w.Manifest()), nil))
		res, err := p.Apply(ctx)
		if err != nil || res.Outcome != event.Cancelled || len(res.Failures) > 0 {
			t.Fatalf("got %+v, %v, want a cancelled operation without failures", res, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		w.Hosts["cp1"].OnChange = nil
		w.wantStatus(v1alpha1.PhasePaused, "create Cancelled")
		return w
	}
	t.Run("resume", func(t *testing.T) {
		w := stopped(t, nil)
		w.resume(event.Succeeded)
		w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded")
		w.whole()
	})
	t.Run("with a cause of the caller's", func(t *testing.T) {
		w := stopped(t, errors.New("interrupted by SIGINT"))
		w.rollback(event.Succeeded)
		w.bare()
	})
	t.Run("while hosts are asked", func(t *testing.T) {
		w := newWorld(t, "cp1")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("interrupted by SIGINT")
		cancel(why)
		if _, err := w.service().Prepare(ctx, creating(w.Manifest()), nil); !errors.Is(err, why) {
			t.Errorf("got %v, want the interruption instead of unreachable hosts", err)
		}
	})
	t.Run("requested by another process", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		saved, noted := make(chan struct{}), make(chan string, 1)
		ended := make(chan error, 1)
		w.Hosts["cp1"].OnChange = func(what string) {
			if !strings.HasPrefix(what, "kubeadm.init.etcd") {
				return
			}
			go func() {
				progress := event.SinkFunc(func(event.Event) { close(saved) })
				ended <- w.service().Cancel(t.Context(), "prod", progress)
			}()
			<-saved
			if text := <-noted; !strings.Contains(text, records.ThisProcess().String()) {
				t.Errorf("note %q: it does not name the process", text)
			}
		}
		p := w.prepared(w.service().Prepare(t.Context(), creating(w.Manifest()), nil))
		res, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
			if e.Type == event.Note {
				noted <- e.Message
			}
		}))
		if err != nil || res.Outcome != event.Cancelled || len(res.Failures) > 0 {
			t.Fatalf("got %+v, %v, want a cancelled operation without failures", res, err)
		}
		if err := errors.Join(<-ended, p.Close()); err != nil {
			t.Error(err)
		}
		w.Hosts["cp1"].OnChange = nil
		w.wantStatus(v1alpha1.PhasePaused, "create Cancelled")
		w.resume(event.Succeeded) // the request was for the earlier process
		w.whole()
	})
	t.Run("saved as a request", func(t *testing.T) {
		w := stopped(t, errors.New("interrupted by SIGINT"))
		ops, err := w.service().Operations(t.Context(), "prod")
		if err != nil || len(ops) != 1 {
			t.Fatalf("%d operations, %v", len(ops), err)
		}
		r, err := w.service().Records.Operations().LoadCancelRequest(t.Context(), ops[0].Name)
		if err != nil || !r.By.IsSameProcess(records.ThisProcess()) || r.Holder.Operation != ops[0].Name {
			t.Errorf("request %+v, %v", r, err)
		}
	})
	t.Run("before its first step", func(t *testing.T) {
		w := newWorld(t, "cp1")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("interrupted by SIGINT")
		p := w.prepared(w.service().Prepare(ctx, creating(w.Manifest()), nil))
		w.Hosts["cp1"].OnChange = func(what string) {
			if what == "lock" {
				cancel(why)
			}
		}
		if _, err := p.Apply(ctx); !errors.Is(err, why) {
			t.Errorf("error %v, want the cause", err)
		}
		w.wantStatus("", "create Cancelled")
	})
	t.Run("without an operation", func(t *testing.T) {
		silent := event.SinkFunc(func(e event.Event) { t.Errorf("got message %q, but nothing was stopped", e.Message) })
		refusal(t, newWorld(t, "cp1").service().Cancel(t.Context(), "prod", silent), idNothingRunning)
	})
}

// TestPrecheck_AcceptsRunningClusterByNameAndFile: a running cluster is checked as a running cluster, by name and by
// file, and not as a new one.
func TestPrecheck_AcceptsRunningClusterByNameAndFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	for name, of := range map[string]Subject{"by name": {Name: "prod"}, "by file": {Cluster: w.Manifest()}} {
		list, err := w.service().Precheck(t.Context(), ApplyRequest{Subject: of}, nil)
		if err != nil || list.Err() != nil {
			t.Errorf("%s: %v, %v; want no error", name, list, err)
		}
	}
}

// One precheck reports the problems of all hosts and saves nothing.
func TestPrecheck_ReportsProblemsOfAllHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	w.Hosts["w1"].Down = errDown
	w.Hosts["w2"].Files["/etc/kubernetes/kubelet.conf"] = "another cluster's"
	list, err := w.service().Precheck(t.Context(), applying(w.Manifest()), nil)
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]bool{}
	for _, d := range list {
		if d.Severity == diag.Error {
			hosts[d.Host] = true
		}
	}
	if !hosts["w1"] || !hosts["w2"] || hosts["cp1"] {
		t.Errorf("findings %v, want all findings of w1 and w2", list)
	}
	w.wantStatus("")
	_, err = w.service().Precheck(t.Context(), ApplyRequest{Subject: Subject{Name: "prod"}}, nil)
	if !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("got %v, want the error of an unknown cluster", err)
	}
}
