package kubeadm

import (
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// RemoveLostMembers is the module that removes lost etcd members that ran in pods,
// before others join.
func RemoveLostMembers(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: "join.make-room", Title: "remove lost etcd members", Timeout: 5 * time.Minute,
		On: func(h *engine.Host) bool { return env.HasStackedEtcd() && env.IsFirst(h) },
		// Without a member on this host, there is no etcd to ask.
		When: func(s *engine.Scope) bool { return module.IsJoined(s.Host()) },
		Ops: func(s *engine.Scope) (op.List, error) {
			return env.RemoveLostMembers(s.Hosts(), func(h *engine.Host) bool { return env.JoinsAsControlPlane(h) && !module.IsJoined(h) }), nil
		},
	}}}
}
