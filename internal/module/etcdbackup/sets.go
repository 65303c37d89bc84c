package etcdbackup

import (
	"context"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// Tasks that make or test a backup set.
const (
	stepTakeSet = "snapshot.take"
	stepTestSet = "drill.test"
)

// setTime limits a task that makes or tests a set. Each of its steps has a limit too.
const setTime = 45 * time.Minute

// A SetFunc makes or tests a backup set on the manager; tell is called with its progress.
type SetFunc func(ctx context.Context, tell func(event.Event)) error

// TakeSet is the module that makes a backup set.
func TakeSet(take SetFunc) engine.Module {
	return engine.Module{Name: "snapshot", Tasks: []engine.Task{setTask(stepTakeSet, "back up etcd and keys", "save to a backup set", take)}}
}

// TestSet is the module that tests the restore of a backup set.
func TestSet(test SetFunc) engine.Module {
	return engine.Module{Name: "drill", Tasks: []engine.Task{setTask(stepTestSet, "verify backup set", "restore into a separate etcd", test)}}
}

func setTask(id, title, summary string, do SetFunc) engine.Task {
	return engine.Task{ID: id, Title: title, Manager: true, Timeout: setTime, Run: &engine.Action{
		Check: func(context.Context, *engine.Scope) ([]plan.OpChange, error) {
			return []plan.OpChange{{Kind: "backup", Target: "etcd", Summary: summary}}, nil
		},
		Apply: func(ctx context.Context, s *engine.Scope) error { return do(ctx, s.EmitEvent) },
	}}
}
