// Package backup looks after the data of etcd: it gives back what they have not in
// use, and restores them from a snapshot.
package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/iec"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// Won hears what was given back on a host, in bytes.
type Won func(host string, before, after int64)

// Defrag is the module that gives back what members of etcd have not in use: one
// at a time, the leader last, each only while all are well.
func Defrag(env module.Env, won Won) engine.Module {
	one := engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"}
	return engine.Module{Name: "backup", Tasks: []engine.Task{
		{
			ID: "defrag.compact", Title: "give up old revisions", On: isFirstMember(env), Timeout: 15 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) { return defrag(env, op.DefragCompact), nil },
		},
		{
			ID: "defrag.follower", Title: "defragment etcd", On: isMember(env), Needs: []string{"defrag.compact"}, Rollout: one, Timeout: 15 * time.Minute,
			Ops:   func(*engine.Scope) (op.List, error) { return defrag(env, op.DefragFollower), nil },
			After: tell(won),
		},
		{
			ID: "defrag.leader", Title: "defragment the leader of etcd", On: isMember(env), Needs: []string{"defrag.follower"}, Rollout: one, Timeout: 15 * time.Minute,
			// By then the others have nothing to give back any more.
			Ops: func(s *engine.Scope) (op.List, error) {
				return defrag(env, op.DefragAny), nil
			},
			After: tell(won),
		},
		{
			ID: "defrag.disarm", Title: "take alarms back", On: isFirstMember(env), Needs: []string{"defrag.leader"},
			Ops: func(*engine.Scope) (op.List, error) { return defrag(env, op.DefragDisarm), nil },
		},
	}}
}

// isMember selects the hosts that have a member of etcd.
func isMember(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool { return facts.RunsEtcd(env.Cluster, h.Roles) }
}

func isFirstMember(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool {
		all := env.Members(env.Cluster)
		return len(all) > 0 && all[0].Name == h.Name
	}
}

func defrag(env module.Env, step op.DefragStep) op.List {
	o := op.EtcdDefrag{EtcdClient: module.EtcdClient(), Own: env.OwnMember(), Do: step}
	for _, h := range env.Members(env.Cluster) {
		o.Endpoints = append(o.Endpoints, module.EtcdURL(h, facts.EtcdClientPort))
	}
	return op.List{o}
}

// tell tells what was won.
func tell(won Won) func(context.Context, *engine.Scope, []op.Result) error {
	return func(_ context.Context, s *engine.Scope, results []op.Result) error {
		if s.Operation() == "" || len(results) == 0 || len(results[0].Output) == 0 {
			return nil
		}
		var d op.EtcdDefragged
		if err := json.Unmarshal(results[0].Output, &d); err != nil {
			return fmt.Errorf("reading what was given back: %w", err)
		}
		s.Note("etcd's database: %s, before %s", iec.Bytes(d.After), iec.Bytes(d.Before))
		if won != nil {
			won(s.Host().Name, d.Before, d.After)
		}
		return nil
	}
}
