package upgrade

import (
	"net"
	"strconv"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// RebootTime limits how long a host may not respond while it reboots: a server that
	// checks its memory needs minutes.
	RebootTime = 10 * time.Minute
	// rebootTaskTime also includes the wait for etcd before, and the shutdown.
	rebootTaskTime = 25 * time.Minute
	// memberSeconds is how long an etcd member may take to start and to catch up, and
	// registrySeconds how long the private registry may take to start.
	memberSeconds, registrySeconds = 300, 120
)

// RebootHosts is the module that reboots hosts, and waits for the services on them that do
// not run in pods. No host with an etcd member shuts down before all members are healthy.
func RebootHosts(env module.Env) engine.Module {
	return engine.Module{Name: "reboot", Tasks: []engine.Task{
		{
			ID: "reboot.host", Title: "reboot host", On: env.IsRebooted, Timeout: rebootTaskTime,
			Ops: func(s *engine.Scope) (op.List, error) {
				o := op.Reboot{Boot: env.Reboots[s.Host().Name]}
				if env.HasEtcdMember(s.Host()) {
					o.Gate = env.WaitAllMembersHealthy()
				}
				return op.List{o}, nil
			},
		},
		{
			ID: "reboot.etcd", Title: "wait for etcd member", On: env.RunsEtcd,
			Ops: func(*engine.Scope) (op.List, error) {
				w := env.WaitLocalMemberHealthy()
				w.TimeoutSeconds = memberSeconds
				return op.List{*w}, nil
			},
		},
		{
			ID: "reboot.registry", Title: "wait for registry", On: env.IsRegistry,
			When: func(*engine.Scope) bool { return env.Cluster.Spec.Registry.Private != nil },
			Ops: func(*engine.Scope) (op.List, error) {
				at := net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.Registry.Private.Port))
				return op.List{op.Wait{TCP: at, TimeoutSeconds: registrySeconds}}, nil
			},
		},
	}}
}
