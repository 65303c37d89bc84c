package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// A rollback is possible after several failed attempts.
func TestRollback_WorksAfterSeveralFailedAttempts(t *testing.T) {
	t.Parallel()
	t.Run("a cluster that never ran is removed", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		w.Hosts["w1"].Refuse = breaking("join.kubelet-start")
		w.create(event.Failed)
		w.do(applying(w.changed()), event.Failed)
		w.Hosts["w1"].Refuse = nil
		if p, _ := w.rollback(event.Succeeded); len(p.Removes) != 2 {
			t.Errorf("the plan removes %v: want both hosts", p.Removes)
		}
		w.bare()
		w.wantStatus("", "rollback Succeeded", "create Failed", "create Failed")
	})
	t.Run("a cluster that runs without some hosts keeps running", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1", "w2")
		w.Hosts["w2"].Down = errDown
		w.do(CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Partial)
		w.Hosts["w2"].Down = nil
		w.Hosts["w1"].Refuse = breaking("kubernetes.kubelet")
		w.do(applying(w.changed()), event.Failed)
		w.Hosts["w1"].Refuse = nil
		if p, _ := w.rollback(event.Succeeded); len(p.Removes) > 0 {
			t.Errorf("the plan removes %v: the cluster ran before", p.Removes)
		}
		w.whole()
	})
}

// An operation of an unknown kind is refused before any host is asked.
func TestUnknownOperation_IsRefusedWithoutQueryingHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.Hosts["w1"].Refuse = breaking("join.kubelet-start")
	w.create(event.Failed)
	s := w.service()
	ops, err := s.Records.Operations().List(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range w.Hosts {
		m.Down = errDown
	}
	o := ops[0]
	o.Spec.Kind = "bogus"
	if err := s.Records.Operations().Save(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	_, err = s.PrepareResume(t.Context(), resuming(), nil)
	refusal(t, err, idUnknownOperation)
	_, err = s.PrepareRollback(t.Context(), rollingBack(), nil)
	refusal(t, err, idUnknownOperation)
}

// A plan whose cluster name differs from its spec is refused.
func TestSavedPlan_RefusesOtherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	s := w.service()
	p := w.prepared(s.Prepare(t.Context(), creating(w.Manifest()), nil))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	saved := *p.Plan()
	saved.Cluster = "other"
	_, err := s.PrepareSaved(t.Context(), &saved, ApplyOptions{}, nil)
	refusal(t, err, idPlanChanged)
	saved.Spec = nil
	_, err = s.PrepareSaved(t.Context(), &saved, ApplyOptions{}, nil)
	refusal(t, err, idPlanChanged)
}

// A rollback restores the cluster file that belongs to the restored spec.
func TestRollback_RestoresClusterFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason   string
		first          []byte
		firstOutcome   event.Outcome
		want           string // "" means no file
		settled        []byte // an apply in between that needs no operation
		partialBetween bool
	}{
		{
			name: "created from a file", reason: "the hosts use it again", first: []byte("# first"),
			firstOutcome: event.Succeeded, want: "# first",
		},
		{name: "created without one", reason: "the saved file belongs to the change that was rolled back", firstOutcome: event.Succeeded},
		{
			name: "created in part", reason: "there is no other file to restore", first: []byte("# first"),
			firstOutcome: event.Partial, want: "# first",
		},
		{
			name: "changed meanwhile", reason: "an apply without changes saves its file too", first: []byte("# first"),
			firstOutcome: event.Succeeded, settled: []byte("# settled"), want: "# settled",
		},
		{
			name: "an apply in part", reason: "a rollback restores the last complete state", first: []byte("# first"),
			firstOutcome: event.Succeeded, partialBetween: true, want: "# first",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			if tc.firstOutcome == event.Partial {
				w.Hosts["w1"].Down = errDown
			}
			first := Subject{Cluster: w.Manifest(), Source: tc.first, File: "/prod.yaml"}
			w.do(CreateRequest{Subject: first, Options: Options{IgnoreErrors: true}}, tc.firstOutcome)
			w.Hosts["w1"].Down = nil
			if tc.settled != nil {
				c := w.Manifest()
				c.Spec.SSH.Password = "changed"
				w.do(ApplyRequest{Subject: Subject{Cluster: c, Source: tc.settled}}, event.Succeeded)
			}
			w.Hosts["w1"].Refuse = breaking("kubernetes.kubelet")
			if tc.partialBetween {
				partial := applying(w.changed())
				partial.IgnoreErrors = true
				partial.Source = []byte("# partial")
				w.do(partial, event.Partial)
			}
			w.do(ApplyRequest{Subject: Subject{Cluster: w.changed(), Source: []byte("# second")}}, event.Failed)
			w.Hosts["w1"].Refuse = nil
			if source, err := w.service().Records.Clusters().LoadSource(t.Context(), "prod"); err != nil || string(source.Text) != "# second" {
				t.Errorf("before the rollback the file is %+v, %v", source, err)
			}
			w.rollback(event.Succeeded)
			source, err := w.service().Records.Clusters().LoadSource(t.Context(), "prod")
			if errors.Is(err, records.ErrNotFound) {
				source, err = new(records.Source), nil
			}
			if err != nil || string(source.Text) != tc.want {
				t.Errorf("the file is %+v (%v), want %q: %s", source, err, tc.want, tc.reason)
			}
			w.wantPhase(v1alpha1.PhaseRunning)
		})
	}
}

// A later file must not omit a host that an attempt to create the cluster has changed: its
// files would be left behind.
func TestApply_RefusesToOmitChangedHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	w.Hosts["w2"].Refuse = breaking("join.kubelet-start")
	w.create(event.Failed)
	without := w.Manifest()
	without.Spec.Hosts = without.Spec.Hosts[:2]
	_, err := w.service().Prepare(t.Context(), applying(without), nil)
	refusal(t, err, idHostLeft)

	moved := w.Manifest()
	moved.Spec.Hosts[2].Address, w.Hosts["w2"].Address = "192.0.2.99", "192.0.2.99"
	_, err = w.service().Prepare(t.Context(), applying(moved), nil)
	refusal(t, err, idHostLeft)
	w.Hosts["w2"].Address = "192.0.2.13"

	named := w.Manifest() // the same machine, with a host name as its address
	named.Spec.Hosts[2].Address = "w2.example.com"
	w.Hosts["w2"].Refuse = nil
	w.do(applying(named), event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "create Succeeded", "create Failed")
}

// Preparing the hosts in between does not change that.
func TestApply_RefusesToOmitChangedHostAfterInitOS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	w.Hosts["w2"].Refuse = breaking("join.kubelet-start")
	w.create(event.Failed)
	prepared := w.Manifest()
	prepared.Spec.System.Sysctls = map[string]string{"vm.max_map_count": "300000"}
	if res := w.do(InitOSRequest{Subject: Subject{Cluster: prepared}}, event.Succeeded); res.Operation == "" {
		t.Fatal("the hosts were not prepared")
	}
	without := w.Manifest()
	without.Spec.Hosts = without.Spec.Hosts[:2]
	_, err := w.service().Prepare(t.Context(), applying(without), nil)
	refusal(t, err, idHostLeft)
}

// A host that was never reached can be omitted from a later file.
func TestApply_MayOmitUntouchedHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1", "w2")
	w.Hosts["cp1"].Refuse = breaking("kubeadm.init.certs")
	w.Hosts["w2"].Down = errDown
	w.do(CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Failed)
	w.Hosts["cp1"].Refuse = nil
	without := w.Manifest()
	without.Spec.Hosts = without.Spec.Hosts[:2]
	w.do(applying(without), event.Succeeded)
	w.wantPhase(v1alpha1.PhaseRunning)
}

// A resume continues with the saved cluster file. It warns about a changed file, and
// refuses one that is given with -f.
func TestResume_ReportsChangedFile(t *testing.T) {
	t.Parallel()
	const file = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  controlPlaneEndpoint: {domain: example.com}
  hosts:
  - {name: cp1, address: 192.0.2.11, roles: [control-plane]}
  - {name: w1, address: 192.0.2.12, roles: [worker]}
`
	kubelet := file + "  kubernetes: {kubelet: {config: {maxPods: 50}}}\n"
	password := file + "  ssh: {password: canary}\n"
	path := filepath.Join(t.TempDir(), "prod.yaml")
	begun := newWorld(t, "cp1", "w1")
	begun.Hosts["w1"].Refuse = breaking("join.kubelet-start")
	begun.do(CreateRequest{Subject: Subject{Cluster: loaded(t, file), Source: []byte(file), File: path}}, event.Failed)
	for _, tc := range []struct {
		name, reason, now string
		given             bool // with -f
		refused, told     bool
	}{
		{"gone", "there is no file to compare", "", false, false, false},
		{"the same, given", "there is nothing to report", file, true, false, false},
		{"another, given", "it would not be used", kubelet, true, true, false},
		{"another password, given", "the wrong one would be used", password, true, true, false},
		{"the same", "there is nothing to report", file, false, false, false},
		{"another comment", "it has the same settings", "# mine\n" + file, false, false, false},
		{"another", "the user may think that it is used", kubelet, false, false, true},
		{"no longer a cluster", "it has changed", "kind: [", false, false, true},
		{"another cluster", "the name is used for something else now", strings.Replace(file, "prod", "lab", 1), false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := begun.fork(t)
			if tc.now != "" {
				if err := os.WriteFile(path, []byte(tc.now), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := resuming()
			if tc.given {
				r.Cluster, r.Source, r.File = loaded(t, tc.now), []byte(tc.now), path
			}
			p, err := w.service().PrepareResume(t.Context(), r, nil)
			if tc.refused {
				refusal(t, err, idSpecChanged)
				if !strings.Contains(err.Error(), "slipway apply -f "+path) {
					t.Errorf("%v: does not name apply", err)
				}
				return
			}
			p = w.prepared(p, err)
			told := slices.ContainsFunc(p.Findings(), func(d diag.Diagnostic) bool {
				return d.ID == idSpecChanged && d.Severity == diag.Warning && strings.Contains(d.Hint, "slipway apply -f "+path)
			})
			if told != tc.told {
				t.Errorf("warning about the changed file: %t, want %t: %s; %v", told, tc.told, tc.reason, p.Findings())
			}
			if told { // the resume works anyway
				w.apply(p, event.Succeeded)
				w.wantPhase(v1alpha1.PhaseRunning)
			}
		})
	}
	t.Run("no file", func(t *testing.T) { // such as /dev/stdin, without a writer
		w := begun.fork(t)
		if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			p, err := w.service().PrepareResume(t.Context(), resuming(), nil)
			if err == nil {
				err = p.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a resume waits for a writer of the pipe")
		}
	})
	t.Run("a delete asks no file", func(t *testing.T) {
		w := begun.fork(t)
		w.Hosts["w1"].Refuse = breaking("reset.restore")
		w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Failed)
		w.Hosts["w1"].Refuse = nil
		r := resuming()
		r.Cluster, r.Source, r.File = loaded(t, kubelet), []byte(kubelet), path
		w.apply(w.prepared(w.service().PrepareResume(t.Context(), r, nil)), event.Succeeded)
		w.bare()
	})
}

func loaded(t *testing.T, text string) *v1alpha1.Cluster {
	t.Helper()
	l, err := spec.Load("prod.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l.Cluster
}

// A resume keeps the removal options of the first request unless it has others.
func TestResume_KeepsRemovalOptions(t *testing.T) {
	t.Parallel()
	asked := Removal{Force: true, DrainTimeout: time.Minute}
	for _, tc := range []struct {
		name        string
		again, want Removal
	}{
		{"kept", Removal{}, asked},
		{"replaced", Removal{DrainTimeout: time.Hour}, Removal{Force: true, DrainTimeout: time.Hour}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, []string{"cp1", "w1"}, []string{"cp1", "w1"})
			w.Hosts["w1"].Refuse = breaking("reset.restore")
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Removal: asked}, event.Failed)
			p := w.prepared(w.service().PrepareResume(t.Context(), ResumeRequest{Subject: Subject{Name: "prod"}, Removal: tc.again}, nil))
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, p.(*prepared).env.Removal); d != "" {
				t.Errorf("removal options (-want +got):\n%s", d)
			}
		})
	}
}

// The status of an operation counts its attempts, and has its plan from before it began.
func TestResume_CountsAttemptsAndKeepsPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.Hosts["w1"].Refuse = breaking("join.kubelet-start")
	res := w.create(event.Failed)
	first, err := w.service().Records.Operations().Load(t.Context(), res.Operation)
	if err != nil {
		t.Fatal(err)
	}
	f := first.Status.Failures
	if first.Status.Attempt != 1 || first.Status.Plan == nil || first.Status.Plan.Digest == "" || first.Status.Plan.Summary == "" ||
		len(f) != 1 || f[0].Host != "w1" || f[0].Task != "join.kubelet-start" || first.Status.Reason != f[0].Reason {
		t.Errorf("attempt %d, plan %+v, reason %q, failures %+v", first.Status.Attempt, first.Status.Plan, first.Status.Reason, f)
	}
	w.Hosts["w1"].Refuse = nil
	w.resume(event.Succeeded)
	second, err := w.service().Records.Operations().Load(t.Context(), res.Operation)
	if err != nil {
		t.Fatal(err)
	}
	if second.Status.Attempt != 2 || len(second.Status.Failures) > 0 || second.Status.Reason != "" {
		t.Errorf("attempt %d, reason %q, failures %+v", second.Status.Attempt, second.Status.Reason, second.Status.Failures)
	}
	if d := cmp.Diff(first.Status.Plan, second.Status.Plan); d != "" {
		t.Errorf("the resume has changed the plan (-first +second):\n%s", d)
	}
}
