package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/testutil/racesample"
)

// oneIn is the part of the kills that the tests try: all, and a tenth with the race detector.
var oneIn = racesample.OneIn(10)

// A moment is the world that a process leaves if it is killed then.
type moment struct {
	name  string
	world *world
}

// killed carries out a request. It returns the state that a killed process would leave
// behind, for the lock and after every step. The race detector gets only a sample of these
// moments.
func (w *world) killed(t *testing.T, r Request) []moment {
	t.Helper()
	return w.killedAt(t, func(s *Service) (Prepared, error) { return s.Prepare(t.Context(), r, nil) })
}

func (w *world) killedAt(t *testing.T, prepare func(*Service) (Prepared, error)) []moment {
	t.Helper()
	var moments []moment
	n := 0
	cut := func(name string) {
		if n++; n%oneIn == 0 {
			moments = append(moments, moment{fmt.Sprintf("%03d %s", n, name), w.fork(t)})
		}
	}
	for _, m := range w.Hosts {
		m.OnChange = func(what string) {
			if what == "lock" {
				cut("locking the cluster")
			}
		}
	}
	p := w.prepared(prepare(w.service()))
	res, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
		switch {
		case e.Type == event.OperationStarted, e.Type == event.OperationFinished:
			cut(string(e.Type))
		case e.Type == event.StepStarted && strings.Contains(e.Task, "kubelet-start"):
			cut("before " + e.Task + " on " + e.Host)
		case e.Type == event.StepFinished && e.Outcome == event.Changed:
			cut("after " + e.Task + " on " + e.Host)
		}
	}))
	if err != nil || res.Outcome != event.Succeeded {
		t.Fatalf("the undisturbed run: %+v, %v", res, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range w.Hosts {
		m.OnChange = nil
	}
	return moments
}

// unbegun reports whether there is nothing to resume.
func unbegun(err error) bool {
	var list diag.List
	return errors.Is(err, savedstate.ErrNotFound) || errors.As(err, &list) && list[0].ID == idNothingUnfinished
}

// goOn resumes an operation if it has started, and starts it otherwise.
func (w *world) goOn(r Request) {
	w.t.Helper()
	p, err := w.service().PrepareResume(w.t.Context(), resuming(), nil)
	if unbegun(err) {
		p, err = w.service().Prepare(w.t.Context(), r, nil)
	}
	w.apply(w.prepared(p, err), event.Succeeded)
}

// same checks that the machines look as after the undisturbed run.
func (w *world) same(undisturbed *world) {
	w.t.Helper()
	for name, m := range w.Hosts {
		if d := cmp.Diff(undisturbed.Hosts[name].AllState(), m.AllState()); d != "" {
			w.t.Errorf("%s differs from the undisturbed run (-want +got):\n%s", name, d)
		}
	}
}

func TestCreate_ResumesAfterKill(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	request := creating(w.Manifest())
	for _, m := range w.killed(t, request) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			if phase, ops := k.status(); phase == v1alpha1.PhaseCreating || slices.Contains(ops, "create Running") {
				t.Errorf("phase %q, operations %v: an operation still counts as running", phase, ops)
			}
			k.goOn(request)
			if _, ops := k.status(); ops[0] != "create Succeeded" {
				t.Errorf("operations %v", ops)
			}
			k.whole()
			k.same(w)
		})
	}
}

func TestApply_ResumesAfterKill(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	request := applying(w.changed())
	for _, m := range w.killed(t, request) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(request)
			if phase, ops := k.status(); phase != v1alpha1.PhaseRunning || ops[0] != "apply Succeeded" {
				t.Errorf("phase %q, operations %v", phase, ops)
			}
			k.same(w)
		})
	}
}

func TestDelete_ResumesAfterKill(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	request := DeleteRequest{Subject: Subject{Name: "prod"}}
	for _, m := range w.killed(t, request) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.wantNoDataLoss()
			k.goOn(request)
			k.bare()
			if phase, ops := k.status(); phase != "" || ops[0] != "delete Succeeded" {
				t.Errorf("phase %q, operations %v", phase, ops)
			}
		})
	}
}

// wantNoDataLoss checks that an apply does not call data lost that a delete has removed.
func (w *world) wantNoDataLoss() {
	w.t.Helper()
	p, err := w.service().Prepare(w.t.Context(), applying(w.Manifest()), nil)
	if err == nil {
		err = p.Close()
	}
	var list diag.List
	if errors.As(err, &list) && slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.ID == "etcd-data-lost" }) {
		w.t.Errorf("an apply after a killed delete returns %v", err)
	}
}

// A creation that was killed at any moment can be rolled back.
func TestCreate_RollsBackAfterKill(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	request := creating(w.Manifest())
	for i, m := range w.killed(t, request) {
		if i%5 != 1 {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.rollback(event.Succeeded)
			k.bare()
			k.wantStatus("", "rollback Succeeded", "create Failed")
		})
	}
}
