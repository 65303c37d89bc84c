package upgrade

import (
	"context"
	"slices"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// backup is the task before which nothing is changed.
const backup = "upgrade.backup"

// Take takes a backup set; tell hears how far it is.
type Take func(ctx context.Context, tell func(event.Event)) error

// Backup is the module that keeps the data and the keys of a cluster as they are
// before a version is exchanged: what leads back when all else does not. The data
// of an etcd of others are theirs to keep, and the keys are kept alone.
func Backup(env module.Env, take Take) engine.Module {
	title, target, summary := "take a snapshot of etcd and the keys", "etcd", "to a backup set on this machine, from which slipway etcd restore goes back"
	if env.Cluster.Spec.Etcd.External != nil {
		title, target = "keep the keys", "keys"
		summary = "to a backup set on this machine, without data: those of etcd are its owner's to back up"
	}
	return engine.Module{Name: "backup", Tasks: []engine.Task{{
		ID: backup, Title: title, Manager: true, Once: true, Timeout: 30 * time.Minute,
		Run: &engine.Action{
			Check: func(context.Context, *engine.Scope) ([]plan.OpChange, error) {
				if !env.Upgrade.Backup {
					return nil, nil
				}
				return []plan.OpChange{{Kind: "backup", Target: target, Summary: summary}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error { return take(ctx, s.Emit) },
		},
	}}}
}

// Behind has all tasks of modules wait for the backup.
func Behind(modules ...engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			t := &m.Tasks[i]
			t.Needs = append(slices.Clone(t.Needs), backup)
		}
	}
	return modules
}
