// Package etcd runs etcd as a service on separate hosts or on hosts with other roles, and
// connects control planes to an etcd that does not run in their pods.
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

// MarkPaths returns files whose presence shows the progress of a host; facts are collected
// for them.
func MarkPaths() []string { return []string{facts.EtcdData, facts.EtcdJoined, caKey} }

// New returns the module. The first members begin together, because etcd does not serve
// before more than half of them run. Afterwards others join one after the other. A member
// is restarted only when all members are healthy, one after the other.
func New(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: append(pkiTasks(env, clientPair(env)), []engine.Task{
		{
			ID: "etcd.service", Title: "set up etcd", On: env.RunsEtcd,
			Ops: func(s *engine.Scope) (op.List, error) { return service(env, s) },
		},
		{
			ID: "etcd.make-room", Title: "remove lost etcd members", Timeout: 5 * time.Minute,
			On:   func(h *engine.Host) bool { return !env.Stacked() && env.IsFirst(h) },
			When: func(s *engine.Scope) bool { return begun(env, s.Hosts()) },
			Ops: func(s *engine.Scope) (op.List, error) {
				return env.LostMembers(s.Hosts(), func(h *engine.Host) bool { return !joined(h) }), nil
			},
		},
		{
			// One at a time: etcd accepts one learner, and each new voting member raises
			// the quorum.
			ID: "etcd.join", Title: "join etcd cluster", On: env.RunsEtcd, Timeout: 8 * time.Minute,
			When:  func(s *engine.Scope) bool { return joins(env, s) },
			Needs: []string{"etcd.make-room"}, Rollout: engine.Rollout{MaxParallel: "1"}, Retry: engine.Retry{Attempts: 3, Delay: time.Second},
			Ops: func(s *engine.Scope) (op.List, error) { return op.List{member(env, s.Host())}, nil },
		},
		{
			ID: "etcd.start", Title: "start etcd", On: env.RunsEtcd, Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) { return start(env, s) },
		},
		{
			ID: "etcd.running", Title: "ensure etcd is running", On: env.RunsEtcd, Timeout: 8 * time.Minute,
			Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
			Ops:      func(s *engine.Scope) (op.List, error) { return running(env, s) },
		},
	}...)}
}

// Reach is the module that waits until an etcd that does not run in pods serves a control
// plane.
func Reach(env module.Env) engine.Module {
	return engine.Module{Name: "etcd-reach", Tasks: []engine.Task{{
		ID: "etcd.reach", Title: "wait for etcd", On: asks(env), Needs: []string{"etcd.start"},
		Ops: func(*engine.Scope) (op.List, error) { return reach(env), nil },
	}}}
}

// asks selects the control planes whose API servers use an etcd that does not run in their
// pods.
func asks(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool { return !env.Stacked() && h.HasRole(v1alpha1.RoleControlPlane) }
}

// joined reports whether a host has joined etcd as a member.
func joined(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, facts.EtcdJoined)
}

// begun reports whether there is, or was, an etcd with the data of the cluster.
func begun(env module.Env, hosts []*engine.Host) bool {
	return slices.ContainsFunc(hosts, func(h *engine.Host) bool { return env.RunsEtcd(h) && joined(h) })
}

// joins reports whether a host joins an etcd that already exists.
func joins(env module.Env, s *engine.Scope) bool {
	return !joined(s.Host()) && begun(env, s.Hosts())
}

// member returns the operation that makes a host a member.
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

// start starts a member. A member that does not serve because of its settings or its
// program may have received new ones: it gets them here, because its restart harms
// nothing.
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

// running makes a member run with its current program and settings. They are written when
// all members serve, because a host that reboots earlier would start with them.
func running(env module.Env, s *engine.Scope) (op.List, error) {
	u, all := module.EtcdUnit(), env.EveryMember()
	u.Gate = all
	list := op.List{
		u,
		op.Wait{Name: "etcd", TimeoutSeconds: 300,
			Program: ask(module.OwnEtcd(), module.EtcdHealthCert, module.EtcdHealthKey, "endpoint", "health")},
		module.EtcdMark(),
	}
	if !joined(s.Host()) {
		return list, nil
	}
	prog, file, err := settings(env, s)
	prog.Gate, file.Gate = all, all
	return append(op.List{prog, file}, list...), err
}

// settings returns the program and the unit for which a member is restarted.
func settings(env module.Env, s *engine.Scope) (op.Unpack, op.File, error) {
	prog, err := unpacks(s)
	if err != nil {
		return op.Unpack{}, op.File{}, err
	}
	file, err := unitFile(env, s.Host())
	return prog, file, err
}

// reach reads a key, which need not exist: etcd answers when more than half of its members
// do.
func reach(env module.Env) op.List {
	endpoints := strings.Join(env.EtcdEndpoints(), ",")
	return op.List{op.Wait{Name: "etcd", TimeoutSeconds: 300,
		Program: ask(endpoints, module.EtcdClientCert, module.EtcdClientKey, "get", "/registry/slipway")}}
}

// ask returns an etcdctl command with timeouts that are shorter than those of the wait.
func ask(endpoints, cert, key string, args ...string) []string {
	return append([]string{
		module.Etcdctl, "--endpoints=" + endpoints, "--cacert=" + module.EtcdCA, "--cert=" + cert, "--key=" + key,
		"--dial-timeout=3s", "--command-timeout=8s",
	}, args...)
}
