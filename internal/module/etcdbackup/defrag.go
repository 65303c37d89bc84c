// Package etcdbackup maintains the data of etcd: it defragments the databases, takes
// scheduled snapshots, and restores them.
package etcdbackup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// ReclaimedFunc is called with the size of the database of a host before and after the
// defragmentation, in bytes.
type ReclaimedFunc func(host string, before, after int64)

// DefragMembers is the module that defragments etcd members: one at a time, the leader
// last, and only while all members are healthy.
func DefragMembers(env module.Env, reclaimed ReclaimedFunc) engine.Module {
	one := engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"}
	return engine.Module{Name: "backup", Tasks: []engine.Task{
		{
			ID: "defrag.compact", Title: "compact etcd revisions", On: isFirstMember(env), Timeout: 15 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) { return defragOps(env, op.DefragCompact), nil },
		},
		{
			ID: "defrag.follower", Title: "defragment etcd followers", On: isMember(env),
			Needs: []string{"defrag.compact"}, Rollout: one, Timeout: 15 * time.Minute,
			Ops:   func(*engine.Scope) (op.List, error) { return defragOps(env, op.DefragFollower), nil },
			After: reportDefrag(reclaimed),
		},
		{
			ID: "defrag.leader", Title: "defragment etcd leader", On: isMember(env), Needs: []string{"defrag.follower"},
			Rollout: one, Timeout: 15 * time.Minute,
			// Followers have nothing left to defragment at this point.
			Ops: func(s *engine.Scope) (op.List, error) {
				return defragOps(env, op.DefragAny), nil
			},
			After: reportDefrag(reclaimed),
		},
		{
			ID: "defrag.disarm", Title: "clear etcd alarms", On: isFirstMember(env), Needs: []string{"defrag.leader"},
			Ops: func(*engine.Scope) (op.List, error) { return defragOps(env, op.DefragDisarm), nil },
		},
	}}
}

// isMember selects the hosts that have an etcd member.
func isMember(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool { return hostroles.RunsEtcd(env.Cluster, h.Roles) }
}

func isFirstMember(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool {
		all := env.EtcdMembers(env.Cluster)
		return len(all) > 0 && all[0].Name == h.Name
	}
}

func defragOps(env module.Env, step op.DefragStep) op.List {
	o := op.EtcdDefrag{EtcdClient: module.EtcdClient(), Own: env.LocalMemberURL(), Do: step}
	for _, h := range env.EtcdMembers(env.Cluster) {
		o.Endpoints = append(o.Endpoints, module.EtcdURL(h, hostroles.EtcdClientPort))
	}
	return op.List{o}
}

// reportDefrag reports the result of a defragmentation.
func reportDefrag(reclaimed ReclaimedFunc) func(context.Context, *engine.Scope, []op.Result) error {
	return func(_ context.Context, s *engine.Scope, results []op.Result) error {
		if s.OperationID() == "" || len(results) == 0 || len(results[0].Output) == 0 {
			return nil
		}
		var d op.EtcdDefragged
		if err := json.Unmarshal(results[0].Output, &d); err != nil {
			return fmt.Errorf("reading the result of the defragmentation: %w", err)
		}
		s.ShowNote("etcd database: %s, was %s", bytesize.Format(d.After), bytesize.Format(d.Before))
		if reclaimed != nil {
			reclaimed(s.Host().Name, d.Before, d.After)
		}
		return nil
	}
}
