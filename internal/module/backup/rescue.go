package backup

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

// A Rescue is an etcd that has lost too many members to go on: what one of those
// that are left has becomes that of all.
type Rescue struct {
	// Member is the host whose data are gone by; EtcdReach is how far they go, and
	// Database says that they are those of its database alone.
	Member string
	op.EtcdReach
	Database bool
	// Salvaged hears what the data came to.
	Salvaged func(op.EtcdSalvaged)
}

// Salvage is the module that makes an etcd of one member of what is left of one
// with several, and restarts all that keeps what the API has told. Until its third
// step ends nothing has been moved. Members that are left beside the chosen one
// have their data moved aside, and do not start any more: their hosts are to be
// taken off, and can be added again.
func Salvage(env module.Env, src Source) engine.Module {
	best := src.keeps(env)
	stops := func(h *engine.Host) bool { return isMember(env)(h) || h.HasRole(v1alpha1.RoleControlPlane) }
	others := func(h *engine.Host) bool { return isMember(env)(h) && !best(h) }
	// A kubelet that starts a member in a pod waits for its data.
	nodes := func(h *engine.Host) bool { return module.IsNode(h) && !(env.Stacked() && others(h)) }
	salvaged := op.SalvagedSnapshot(facts.DirEtcd, src.Key)
	return engine.Module{Name: "backup", Tasks: []engine.Task{
		step("stop", "stop etcd and control planes", stops, func(h *engine.Host) op.List {
			return op.List{stopping(env, src, h, op.RestoreStop)}
		}),
		{
			ID: "rescue.salvage", Title: "make a snapshot of a copy of its data", On: best, Needs: []string{"restore.stop"}, Timeout: 30 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.EtcdSalvage{Key: src.Key, Data: facts.DirEtcd, EtcdPrograms: module.EtcdPrograms(), EtcdReach: src.Rescue.EtcdReach, Database: src.Rescue.Database}}, nil
			},
			After: heard(src.Rescue.Salvaged),
		},
		step("prepare", "make the data from the snapshot", best, func(h *engine.Host) op.List {
			o := prepared(env, src, h)
			o.From = salvaged
			return op.List{o}
		}, "rescue.salvage"),
		step("swap", "put the data in their place", best, func(h *engine.Host) op.List {
			o := stopping(env, src, h, op.RestoreSwap)
			o.Data, o.From = facts.DirEtcd, salvaged
			return op.List{o}
		}, "restore.prepare"),
		{
			ID: "rescue.aside", Title: "move its data aside", On: others, Needs: []string{StepSwap}, Timeout: 5 * time.Minute,
			Ops: func(s *engine.Scope) (op.List, error) {
				o := stopping(env, src, s.Host(), op.RestoreAside)
				o.Data = facts.DirEtcd
				return op.List{o, module.EtcdMark()}, nil
			},
		},
		step("start", "start etcd", best, func(*engine.Host) op.List { return starting(env, src) }, "rescue.aside"),
		step("etcd", "wait for etcd", best, func(*engine.Host) op.List { return op.List{etcdServes(env)} }, "restore.start"),
		kubelets(src, nodes),
		serving(env, nodes),
		reached(env, src),
		ready(env, nodes),
	}}
}

// heard tells what the data came to.
func heard(tell func(op.EtcdSalvaged)) func(context.Context, *engine.Scope, []op.Result) error {
	return func(_ context.Context, s *engine.Scope, results []op.Result) error {
		if s.Operation() == "" || len(results) == 0 || len(results[0].Output) == 0 {
			return nil
		}
		var is op.EtcdSalvaged
		if err := json.Unmarshal(results[0].Output, &is); err != nil {
			return fmt.Errorf("reading what was salvaged: %w", err)
		}
		if is.Snapshot != nil {
			s.Note("revision %d, %d keys", is.Snapshot.Revision, is.Snapshot.Keys)
			if tell != nil {
				tell(is)
			}
		}
		return nil
	}
}
