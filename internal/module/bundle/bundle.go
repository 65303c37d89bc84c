// Package bundle provides the bundle of the cluster.
package bundle

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

// A Source finds or builds the bundle.
type Source interface {
	// Have returns the bundle if it exists, else nil.
	Have(context.Context) (module.Content, error)
	// Make builds it; tell is called with progress and notes.
	Make(ctx context.Context, tell func(event.Event)) (module.Content, error)
	// Describe returns what Make would do, for the user.
	Describe() string
}

// PrepareBundle is the module that opens the bundle, and builds it first if necessary.
func PrepareBundle(src Source) engine.Module {
	return engine.Module{Name: "bundle", Tasks: []engine.Task{{
		ID: "bundle.ready", Title: "prepare bundle", Manager: true, Timeout: 3 * time.Hour,
		Provides: []engine.KeyRef{module.KeyContent.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				c, err := src.Have(ctx)
				if err != nil {
					return nil, err
				}
				if c != nil {
					engine.ProvideValue(s, module.KeyContent, c)
					return nil, nil
				}
				return []plan.OpChange{{Kind: "bundle", Target: "bundle", Summary: src.Describe()}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				c, err := src.Make(ctx, s.EmitEvent)
				if err != nil {
					return err
				}
				engine.ProvideValue(s, module.KeyContent, c)
				return nil
			},
		},
	}}}
}

// PrefetchPrograms is the module that transfers the programs that modules unpack later,
// so that a drained node does not have to wait for them.
func PrefetchPrograms(modules ...engine.Module) engine.Module {
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
		ID: "bundle.ahead", Title: "prefetch programs", Consumes: []engine.KeyRef{module.KeyContent.Ref()},
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
				list = append(list, fetchOps(ops)...)
			}
			return list, nil
		},
	}}}
}

// fetchOps returns the operations that transfer content.
func fetchOps(ops op.List) op.List {
	return slices.DeleteFunc(ops, func(o op.Op) bool { return o.Kind() != op.KindFetchBlob })
}
