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

// backup is the task that must end before anything is changed.
const backup = "upgrade.backup"

// BackupFunc takes a backup set; tell is called with its progress.
type BackupFunc func(ctx context.Context, tell func(event.Event)) error

// BackUpCluster is the module that backs up the data and the keys of a cluster before
// an upgrade, for a restore if a rollback is not possible. The owner of an external
// etcd backs up its data; only the keys are backed up then.
func BackUpCluster(env module.Env, take BackupFunc) engine.Module {
	title, target, summary := "back up etcd and keys", "etcd", "save to a backup set on this machine, for slipway etcd restore"
	if env.Cluster.Spec.Etcd.External != nil {
		title, target = "back up keys", "keys"
		summary = "save to a backup set on this machine, without data: the owner of the external etcd backs up its data"
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
			Apply: func(ctx context.Context, s *engine.Scope) error { return take(ctx, s.EmitEvent) },
		},
	}}}
}

// AfterBackup makes all tasks of modules wait for the backup.
func AfterBackup(modules ...engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			t := &m.Tasks[i]
			t.Needs = append(slices.Clone(t.Needs), backup)
		}
	}
	return modules
}
