// Package content has the cluster's bundle at hand.
package content

import (
	"context"
	"slices"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

// A Source finds or makes the bundle.
type Source interface {
	// Have answers the bundle if it is there, else nil.
	Have(context.Context) (module.Content, error)
	// Make makes it; tell hears of progress, and notes.
	Make(ctx context.Context, tell func(event.Event)) (module.Content, error)
	// Describe says what Make would do, for people.
	Describe() string
}

// New is the module.
func New(src Source) engine.Module {
	return engine.Module{Name: "bundle", Tasks: []engine.Task{{
		ID: "bundle.ready", Title: "have the bundle", Manager: true, Timeout: 3 * time.Hour,
		Provides: []engine.KeyRef{module.KeyContent.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				c, err := src.Have(ctx)
				if err != nil {
					return nil, err
				}
				if c != nil {
					engine.Provide(s, module.KeyContent, c)
					return nil, nil
				}
				return []plan.OpChange{{Kind: "bundle", Target: "bundle", Summary: src.Describe()}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				c, err := src.Make(ctx, s.Emit)
				if err != nil {
					return err
				}
				engine.Provide(s, module.KeyContent, c)
				return nil
			},
		},
	}}}
}

// Ahead is the module that has on hosts what modules are to unpack there later: a node
// that is taken out of service for that does not wait for it then.
func Ahead(modules ...engine.Module) engine.Module {
	var from []engine.Task
	for _, m := range modules {
		for _, t := range m.Tasks {
			if slices.Equal(t.Consumes, []engine.KeyRef{module.KeyContent.Ref()}) { // others are not known yet
				from = append(from, t)
			}
		}
	}
	wants := func(t engine.Task, h *engine.Host) bool { return t.On == nil || t.On(h) }
	return engine.Module{Name: "bundle", Tasks: []engine.Task{{
		ID: "bundle.ahead", Title: "fetch programs ahead", Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		On: func(h *engine.Host) bool {
			return slices.ContainsFunc(from, func(t engine.Task) bool { return wants(t, h) })
		},
		Ops: func(s *engine.Scope) (op.List, error) {
			var list op.List
			for _, t := range from {
				if !wants(t, s.Host()) || t.When != nil && !t.When(s) {
					continue
				}
				ops, err := t.Ops(s)
				if err != nil {
					return nil, err
				}
				list = append(list, fetched(ops)...)
			}
			return list, nil
		},
	}}}
}

// fetched are those operations that fetch.
func fetched(ops op.List) op.List {
	return slices.DeleteFunc(ops, func(o op.Op) bool { return o.Kind() != op.KindFetchBlob })
}
