package etcd

import (
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// StepDowngrade is the step after which etcd members can run the previous version.
const StepDowngrade = "etcd.back"

// PrepareDowngrade is the module that makes etcd store its data in the format of the
// previous minor version, if its members were upgraded to another one. Otherwise
// members of the previous version would not start with the data.
func PrepareDowngrade(env module.Env) engine.Module {
	members := env.EtcdMembers(env.Cluster)
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: StepDowngrade, Title: "prepare etcd downgrade", Timeout: 5 * time.Minute,
		On: func(h *engine.Host) bool { return len(members) > 0 && h.Name == members[0].Name },
		Ops: func(*engine.Scope) (op.List, error) {
			o := op.EtcdDowngrade{EtcdClient: module.EtcdClient(), To: env.Release.Etcd}
			for _, m := range members {
				o.Endpoints = append(o.Endpoints, module.EtcdURL(m, hostroles.EtcdClientPort))
			}
			return op.List{o}, nil
		},
	}}}
}
