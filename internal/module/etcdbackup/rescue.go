package etcdbackup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// A Rescue configures the recovery of an etcd that has lost quorum, from the data of a
// surviving member.
type Rescue struct {
	// Member is the host whose data is used. EtcdReach is how far that data goes. Database
	// reports whether only its database is used.
	Member string
	op.EtcdReach
	Database bool
	// Salvaged is called with the result.
	Salvaged func(op.EtcdRecovered)
}

// RescueMember is the module that rebuilds etcd with one member from a surviving
// member, and restarts everything that caches data of the API. Nothing is moved before
// its third step has ended. The data of other surviving members is moved aside, and
// they no longer start. Their hosts must be removed, and can be added again.
func RescueMember(env module.Env, src Source) engine.Module {
	best := src.keepsMember(env)
	stops := func(h *engine.Host) bool { return isMember(env)(h) || h.HasRole(v1alpha1.RoleControlPlane) }
	others := func(h *engine.Host) bool { return isMember(env)(h) && !best(h) }
	// The kubelet of a host with a member in a pod waits for the data of the member.
	nodes := func(h *engine.Host) bool { return module.IsNode(h) && !(env.HasStackedEtcd() && others(h)) }
	salvaged := op.RecoveredSnapshot(facts.DirEtcd, src.Key)
	return engine.Module{Name: "backup", Tasks: []engine.Task{
		restoreTask("stop", "stop etcd and control planes", stops, func(h *engine.Host) op.List {
			return op.List{stopHost(env, src, h, op.RestoreStop)}
		}),
		{
			ID: "rescue.salvage", Title: "take snapshot of surviving etcd data", On: best,
			Needs: []string{"restore.stop"}, Timeout: 30 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.EtcdRecover{
					Key: src.Key, Data: facts.DirEtcd, EtcdPrograms: module.EtcdPrograms(),
					EtcdReach: src.Rescue.EtcdReach, Database: src.Rescue.Database,
				}}, nil
			},
			After: reportSalvage(src.Rescue.Salvaged),
		},
		restoreTask("prepare", "create etcd data from snapshot", best, func(h *engine.Host) op.List {
			o := prepareData(env, src, h)
			o.From = salvaged
			return op.List{o}
		}, "rescue.salvage"),
		restoreTask("swap", "replace etcd data", best, func(h *engine.Host) op.List {
			o := stopHost(env, src, h, op.RestoreSwap)
			o.Data, o.From = facts.DirEtcd, salvaged
			return op.List{o}
		}, "restore.prepare"),
		{
			ID: "rescue.aside", Title: "move old etcd data aside", On: others, Needs: []string{StepSwap}, Timeout: 5 * time.Minute,
			Ops: func(s *engine.Scope) (op.List, error) {
				o := stopHost(env, src, s.Host(), op.RestoreAside)
				o.Data = facts.DirEtcd
				return op.List{o, module.MarkEtcdJoined()}, nil
			},
		},
		restoreTask("start", "start etcd", best, func(*engine.Host) op.List { return startMember(env, src) }, "rescue.aside"),
		restoreTask("etcd", "wait for etcd", best, func(*engine.Host) op.List { return op.List{etcdServes(env)} }, "restore.start"),
		restartKubeletsTask(src, nodes),
		waitServersTask(env, nodes),
		verifyRevisionTask(env, src),
		waitNodesTask(env, nodes),
	}}
}

// reportSalvage reports the result.
func reportSalvage(tell func(op.EtcdRecovered)) func(context.Context, *engine.Scope, []op.Result) error {
	return func(_ context.Context, s *engine.Scope, results []op.Result) error {
		if s.OperationID() == "" || len(results) == 0 || len(results[0].Output) == 0 {
			return nil
		}
		var is op.EtcdRecovered
		if err := json.Unmarshal(results[0].Output, &is); err != nil {
			return fmt.Errorf("reading the result of the snapshot: %w", err)
		}
		if is.Snapshot != nil {
			s.ShowNote("revision %d, %d keys", is.Snapshot.Revision, is.Snapshot.Keys)
			if tell != nil {
				tell(is)
			}
		}
		return nil
	}
}
