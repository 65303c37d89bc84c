package etcd

import (
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// StepBack is the step behind which members of etcd may be of the version before.
const StepBack = "etcd.back"

// Back is the module that has etcd keep its data as that of the version before does,
// if its members have come to another minor: those of that one would not start with
// them.
func Back(env module.Env) engine.Module {
	members := env.Members(env.Cluster)
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: StepBack, Title: "have etcd go back", Timeout: 5 * time.Minute,
		On: func(h *engine.Host) bool { return len(members) > 0 && h.Name == members[0].Name },
		Ops: func(*engine.Scope) (op.List, error) {
			o := op.EtcdDowngrade{EtcdClient: module.EtcdClient(), To: env.Release.Etcd}
			for _, m := range members {
				o.Endpoints = append(o.Endpoints, module.EtcdURL(m, facts.EtcdClientPort))
			}
			return op.List{o}, nil
		},
	}}}
}
