package bundle

import (
	"context"
	"errors"
	"testing"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// A shelf has a bundle, builds one, or neither.
type shelf struct {
	has  module.Content
	made int
	err  error
}

func (s *shelf) Have(context.Context) (module.Content, error) { return s.has, s.err }
func (s *shelf) Describe() string                             { return "build for Kubernetes v1.37.1" }

func (s *shelf) Make(_ context.Context, tell func(event.Event)) (module.Content, error) {
	tell(event.Event{Type: event.StepProgress, Message: "compiling", Done: 1, Total: 2, Unit: "packages"})
	s.made++
	s.has = bundle{}
	return s.has, s.err
}

type bundle struct{ module.Content }

// TestPrepareBundle_PassesContentToOtherTasks passes the bundle to another task.
func TestPrepareBundle_PassesContentToOtherTasks(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		shelf        shelf
		steps, made  int
		fails        bool
	}{
		{"there", "nothing to do", shelf{has: bundle{}}, 0, 0, false},
		{"not built yet", "the plan shows the build, and other tasks wait for it", shelf{}, 2, 1, false},
		{"damaged", "there is no plan", shelf{err: errors.New("digest differs")}, 0, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			taken := false
			take := engine.Task{
				ID: "take", Title: "take it", Manager: true, Consumes: []engine.KeyRef{module.KeyContent.Ref()},
				Run: &engine.Action{
					Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
						if _, taken = engine.GetValue(s, module.KeyContent).(bundle); taken {
							return nil, nil
						}
						return []plan.OpChange{{Kind: "take", Target: "it"}}, nil
					},
					Apply: func(context.Context, *engine.Scope) error { return nil },
				},
			}
			p := engine.Pipeline{Kind: "test", Modules: []engine.Module{PrepareBundle(&tc.shelf), {Name: "m", Tasks: []engine.Task{take}}}}
			found, err := (&engine.Run{}).Check(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Steps) != tc.steps || (len(found.Failures) > 0) != tc.fails {
				t.Fatalf("steps %+v, failures %+v: %s", found.Steps, found.Failures, tc.reason)
			}
			if tc.fails {
				return
			}
			var told []event.Event
			run := &engine.Run{Operation: "op", Emit: func(e event.Event) error {
				if e.Type == event.StepProgress {
					told = append(told, e)
				}
				return nil
			}}
			res, err := run.Apply(t.Context(), p, found.Steps)
			if err != nil || len(res.Failures) > 0 || !taken || tc.shelf.made != tc.made {
				t.Errorf("%+v, %v; taken %t, made %d times, want %d", res, err, taken, tc.shelf.made, tc.made)
			}
			if len(told) != tc.made || len(told) > 0 && (told[0].Task != "bundle.ready" || told[0].Unit != "packages") {
				t.Errorf("events %+v, want the progress of the build", told)
			}
		})
	}
}
