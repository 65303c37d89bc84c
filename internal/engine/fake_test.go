package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
)

// fakeHost keeps files in memory. It rejects other operations, except Exec, which runs a
// function of the test.
type fakeHost struct {
	name string
	exec func(ctx context.Context, name string) error

	mu    sync.Mutex
	files map[string]string
	log   []string
}

var _ remote.Host = (*fakeHost)(nil)

func (f *fakeHost) Name() string { return f.name }
func (f *fakeHost) Close() error { return nil }

func (f *fakeHost) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("a fake host opens no connections")
}

func (f *fakeHost) Check(_ context.Context, ops op.List) ([]op.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []op.Result
	for _, o := range ops {
		r := op.Result{Kind: o.Kind(), Target: o.Target(), Status: op.Unchanged}
		switch o := o.(type) {
		case op.File:
			if have, ok := f.files[o.Path]; !ok || have != string(o.Content) {
				r.Status, r.Summary = op.Changed, "write"
			}
		case op.Absent:
			if _, ok := f.files[o.Path]; ok {
				r.Status = op.Changed
			}
		case op.Wait:
			if _, ok := f.files[o.Path]; !ok {
				r.Status = op.Changed
			}
		case op.Unit, op.Dir: // as a reset has left them
			if _, gone := f.files["reset "+o.Target()]; gone {
				r.Status = op.Changed
			}
		case op.Reset:
			if _, done := f.files["reset"]; !done {
				r.Status = op.Changed
			}
		case op.ReadFile:
			have, ok := f.files[o.Path]
			r.Output, r.Missing = []byte(have), !ok
		case op.Exec:
			r.Status = op.Changed
			for _, c := range o.Creates {
				if _, ok := f.files[c]; ok {
					r.Status = op.Unchanged
				}
			}
		default:
			return nil, fmt.Errorf("the fake host does not know %s", o.Kind())
		}
		out = append(out, r)
	}
	return out, nil
}

func (f *fakeHost) Apply(ctx context.Context, b remote.Batch, _ func(remote.Progress)) ([]op.Result, error) {
	results, err := f.Check(ctx, b.Ops)
	if err != nil {
		return nil, err
	}
	for i, o := range b.Ops {
		if results[i].Status != op.Changed {
			continue
		}
		f.mu.Lock()
		f.log = append(f.log, b.Step+" "+o.Target())
		f.mu.Unlock()
		switch o := o.(type) {
		case op.File:
			f.setFile(o.Path, string(o.Content))
		case op.Absent:
			f.mu.Lock()
			delete(f.files, o.Path)
			f.mu.Unlock()
		case op.Unit, op.Dir:
			f.mu.Lock()
			delete(f.files, "reset "+o.Target())
			f.mu.Unlock()
		case op.Reset:
			for _, what := range append(append([]string{""}, o.Units...), o.Paths...) {
				f.setFile(strings.TrimSpace("reset "+what), "")
			}
		case op.Exec:
			if err := f.exec(ctx, o.Name); err != nil {
				results[i].Status = op.Failed
				results[i].Error = &op.Error{Reason: "CommandFailed", Message: err.Error()}
				return results[:i+1], nil
			}
			for _, c := range o.Creates {
				f.setFile(c, "made")
			}
		}
	}
	return results, nil
}

func (f *fakeHost) setFile(path, content string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[path] = content
}

// world has hosts a, b, c… and records what happened on them.
type world struct {
	hosts  []*Host
	fakes  map[string]*fakeHost
	mu     sync.Mutex
	events []event.Event
}

func newWorld(names ...string) *world {
	w := &world{fakes: map[string]*fakeHost{}}
	for _, n := range names {
		f := &fakeHost{name: n, files: map[string]string{}, exec: func(context.Context, string) error { return nil }}
		w.fakes[n] = f
		w.hosts = append(w.hosts, &Host{Host: v1alpha1.Host{Name: n, Roles: []v1alpha1.Role{v1alpha1.RoleWorker}}, Conn: f})
	}
	return w
}

func (w *world) newRun() *Run {
	return &Run{Hosts: w.hosts, Operation: "op-1", Cluster: "test", Emit: func(e event.Event) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		e.Time = time.Now()
		w.events = append(w.events, e)
		return nil
	}}
}

// planAndApply plans and applies.
func (w *world) planAndApply(t *testing.T, p Pipeline, tune ...func(*Run)) *Result {
	t.Helper()
	steps := w.planSteps(t, p)
	r := w.newRun()
	for _, f := range tune {
		f(r)
	}
	res, err := r.Apply(t.Context(), p, steps)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func (w *world) planSteps(t *testing.T, p Pipeline) []plan.Step {
	t.Helper()
	res, err := w.newRun().Check(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Failures) > 0 {
		t.Fatalf("check failed: %+v", res.Failures)
	}
	return res.Steps
}

// outcomesByStep returns the outcomes of steps: "task@host" → outcome.
func (w *world) outcomesByStep() map[string]event.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]event.Outcome{}
	for _, e := range w.events {
		if e.Type == event.StepFinished {
			out[e.Task+"@"+e.Host] = e.Outcome
		}
	}
	return out
}

func pipelineOf(list ...Task) Pipeline {
	return Pipeline{Kind: "test", Modules: []Module{{Name: "m", Tasks: list}}}
}

func fileOps(path, content string) func(*Scope) (op.List, error) {
	return func(*Scope) (op.List, error) {
		return op.List{op.File{Path: path, Content: []byte(content)}}, nil
	}
}

func execOps(name string) func(*Scope) (op.List, error) {
	return func(*Scope) (op.List, error) {
		return op.List{op.Exec{Name: name, Argv: []string{name}, Creates: []string{"/done/" + name}}}, nil
	}
}

func onlyHost(name string) func(*Host) bool { return func(h *Host) bool { return h.Name == name } }
