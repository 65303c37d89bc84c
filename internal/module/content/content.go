// Package content has the cluster's bundle at hand.
package content

import (
	"context"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
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
