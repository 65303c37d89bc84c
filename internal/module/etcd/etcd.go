// Package etcd runs etcd as a service on hosts of its own or beside others, and
// has control planes know an etcd that is not in their pods.
package etcd

import (
	"embed"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

//go:embed templates
var files embed.FS

const (
	initial  = "/etc/kubernetes/slipway/etcd.env"
	programs = "/usr/local/bin"
	program  = programs + "/etcd"
	caKey    = module.EtcdPKI + "/ca.key"
)

// MarkPaths are those whose presence tells how far a host is; facts are asked
// for them.
func MarkPaths() []string { return []string{facts.EtcdData, facts.EtcdJoined, caKey} }

// New is the module. Members begin together: none is served before more than
// half of them are there. From then on others join one after the other, and a
// member is restarted when all are well, one after the other.
func New(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: append(pkiTasks(env, clientPair(env)), []engine.Task{
		{
			ID: "etcd.service", Title: "set up etcd", On: env.RunsEtcd,
			Ops: func(s *engine.Scope) (op.List, error) { return service(env, s) },
		},
		{
			ID: "etcd.make-room", Title: "take lost members out of etcd", Timeout: 5 * time.Minute,
			On:   func(h *engine.Host) bool { return !env.Stacked() && env.IsFirst(h) },
			When: func(s *engine.Scope) bool { return begun(env, s.Hosts()) },
			Ops: func(s *engine.Scope) (op.List, error) {
				return env.LostMembers(s.Hosts(), func(h *engine.Host) bool { return !joined(h) }), nil
			},
		},
		{
			// One at a time: etcd takes one learner, and each new vote
			// raises the number that must be up.
			ID: "etcd.join", Title: "join etcd", On: env.RunsEtcd, Timeout: 8 * time.Minute,
			When:  func(s *engine.Scope) bool { return joins(env, s) },
			Needs: []string{"etcd.make-room"}, Rollout: engine.Rollout{MaxParallel: "1"}, Retry: engine.Retry{Attempts: 3, Delay: time.Second},
			Ops: func(s *engine.Scope) (op.List, error) { return op.List{member(env, s.Host())}, nil },
		},
		{
			ID: "etcd.start", Title: "start etcd", On: env.RunsEtcd, Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) { return start(env, s) },
		},
		{
			ID: "etcd.running", Title: "keep etcd running", On: env.RunsEtcd, Timeout: 8 * time.Minute,
			Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
			Ops:      func(s *engine.Scope) (op.List, error) { return running(env, s) },
		},
	}...)}
}

// Reach is the module that waits until a control plane is served by an etcd
// that is not in its pods.
func Reach(env module.Env) engine.Module {
	return engine.Module{Name: "etcd-reach", Tasks: []engine.Task{{
		ID: "etcd.reach", Title: "reach etcd", On: asks(env), Needs: []string{"etcd.start"},
		Ops: func(*engine.Scope) (op.List, error) { return reach(env), nil },
	}}}
}

// asks selects the hosts whose API servers ask an etcd that is not in their
// pods.
func asks(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool { return !env.Stacked() && h.HasRole(v1alpha1.RoleControlPlane) }
}

// joined says that a host has been a member of etcd that was seen among others.
func joined(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, facts.EtcdJoined)
}

// begun says that there is an etcd that serves the cluster, or has.
func begun(env module.Env, hosts []*engine.Host) bool {
	return slices.ContainsFunc(hosts, func(h *engine.Host) bool { return env.RunsEtcd(h) && joined(h) })
}

// joins says that a host becomes a member of an etcd that others have begun.
func joins(env module.Env, s *engine.Scope) bool {
	return !joined(s.Host()) && begun(env, s.Hosts())
}

// member is a host that becomes one.
func member(env module.Env, h *engine.Host) op.EtcdMember {
	m := op.EtcdMember{
		Name: h.Name, PeerURL: module.EtcdURL(h.Host, facts.EtcdPeerPort), Data: facts.DirEtcd,
		EtcdClient: module.EtcdClient(),
		Service:    &op.EtcdService{Unit: module.EtcdUnit(), Initial: initial, Token: env.Cluster.Name},
	}
	for _, other := range spec.EtcdHosts(env.WithLeaving()) {
		if other.Name != h.Name {
			m.Endpoints = append(m.Endpoints, module.EtcdURL(other, facts.EtcdClientPort))
		}
	}
	return m
}

// start has a member run. One that does not serve, because of its settings or its
// program, may have got others since: it is missed by nobody while it is given them.
func start(env module.Env, s *engine.Scope) (op.List, error) {
	u := module.EtcdUnit()
	if !joined(s.Host()) {
		u.KeepRunning = true
		return op.List{u}, nil
	}
	prog, file, err := settings(env, s)
	u.UnlessServes = env.OwnMemberServes()
	prog.UnlessServes, file.UnlessServes = u.UnlessServes, u.UnlessServes
	return op.List{prog, file, u}, err
}

// running has a member run with its program and its settings of now. They come when all
// serve: what reboots before would start with them.
func running(env module.Env, s *engine.Scope) (op.List, error) {
	u, all := module.EtcdUnit(), env.EveryMember()
	u.Gate = all
	list := op.List{
		u,
		op.Wait{Name: "etcd", TimeoutSeconds: 300, Program: ask(module.OwnEtcd(), module.EtcdHealthCert, module.EtcdHealthKey, "endpoint", "health")},
		module.EtcdMark(),
	}
	if !joined(s.Host()) {
		return list, nil
	}
	prog, file, err := settings(env, s)
	prog.Gate, file.Gate = all, all
	return append(op.List{prog, file}, list...), err
}

// settings are what a member is restarted for.
func settings(env module.Env, s *engine.Scope) (op.Unpack, op.File, error) {
	prog, err := unpacks(s)
	if err != nil {
		return op.Unpack{}, op.File{}, err
	}
	file, err := unitFile(env, s.Host())
	return prog, file, err
}

// reach asks for a key, whether there is one or not: etcd answers when more
// than half of its members do.
func reach(env module.Env) op.List {
	endpoints := strings.Join(env.EtcdEndpoints(), ",")
	return op.List{op.Wait{Name: "etcd", TimeoutSeconds: 300, Program: ask(endpoints, module.EtcdClientCert, module.EtcdClientKey, "get", "/registry/slipway")}}
}

// ask is a question to etcd, which its client does not wait for any longer than
// we do.
func ask(endpoints, cert, key string, args ...string) []string {
	return append([]string{
		module.Etcdctl, "--endpoints=" + endpoints, "--cacert=" + module.EtcdCA, "--cert=" + cert, "--key=" + key,
		"--dial-timeout=3s", "--command-timeout=8s",
	}, args...)
}
