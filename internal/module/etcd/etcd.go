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
	"slipway.dev/slipway/internal/spec/hostroles"
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

// SetUpMembers is the module that sets up etcd as a service. The first members begin
// together, because etcd does not serve before more than half of them run. Afterwards
// others join one after the other. A member is restarted only when all members are
// healthy, one after the other.
func SetUpMembers(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: append(pkiTasks(env, clientPair(env)), []engine.Task{
		{
			ID: "etcd.service", Title: "set up etcd", On: env.RunsEtcd,
			Ops: func(s *engine.Scope) (op.List, error) { return serviceOps(env, s) },
		},
		{
			ID: "etcd.make-room", Title: "remove lost etcd members", Timeout: 5 * time.Minute,
			On:   func(h *engine.Host) bool { return !env.HasStackedEtcd() && env.IsFirst(h) },
			When: func(s *engine.Scope) bool { return hasBegun(env, s.Hosts()) },
			Ops: func(s *engine.Scope) (op.List, error) {
				return env.RemoveLostMembers(s.Hosts(), func(h *engine.Host) bool { return !hasJoined(h) }), nil
			},
		},
		{
			// One at a time: etcd accepts one learner, and each new voting member raises
			// the quorum.
			ID: "etcd.join", Title: "join etcd cluster", On: env.RunsEtcd, Timeout: 8 * time.Minute,
			When:  func(s *engine.Scope) bool { return joinsExisting(env, s) },
			Needs: []string{"etcd.make-room"}, Rollout: engine.Rollout{MaxParallel: "1"}, Retry: engine.Retry{Attempts: 3, Delay: time.Second},
			Ops: func(s *engine.Scope) (op.List, error) { return op.List{memberOp(env, s.Host())}, nil },
		},
		{
			ID: "etcd.start", Title: "start etcd", On: env.RunsEtcd, Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) { return startMember(env, s) },
		},
		{
			ID: "etcd.running", Title: "ensure etcd is running", On: env.RunsEtcd, Timeout: 8 * time.Minute,
			Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
			Ops:      func(s *engine.Scope) (op.List, error) { return runMember(env, s) },
		},
	}...)}
}

// WaitForEtcd is the module that waits until an etcd that does not run in pods serves a
// control plane.
func WaitForEtcd(env module.Env) engine.Module {
	return engine.Module{Name: "etcd-reach", Tasks: []engine.Task{{
		ID: "etcd.reach", Title: "wait for etcd", On: selectClients(env), Needs: []string{"etcd.start"},
		Ops: func(*engine.Scope) (op.List, error) { return waitQuorum(env), nil },
	}}}
}

// selectClients selects the control planes whose API servers use an etcd that does not
// run in their pods.
func selectClients(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool { return !env.HasStackedEtcd() && h.HasRole(v1alpha1.RoleControlPlane) }
}

// hasJoined reports whether a host has joined etcd as a member.
func hasJoined(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, facts.EtcdJoined)
}

// hasBegun reports whether there is, or was, an etcd with the data of the cluster.
func hasBegun(env module.Env, hosts []*engine.Host) bool {
	return slices.ContainsFunc(hosts, func(h *engine.Host) bool { return env.RunsEtcd(h) && hasJoined(h) })
}

// joinsExisting reports whether a host joins an etcd that already exists.
func joinsExisting(env module.Env, s *engine.Scope) bool {
	return !hasJoined(s.Host()) && hasBegun(env, s.Hosts())
}

// memberOp returns the operation that makes a host a member.
func memberOp(env module.Env, h *engine.Host) op.EtcdMember {
	m := op.EtcdMember{
		Name: h.Name, PeerURL: module.EtcdURL(h.Host, hostroles.EtcdPeerPort), Data: facts.DirEtcd,
		EtcdClient: module.EtcdClient(),
		Service:    &op.EtcdService{Unit: module.EtcdUnit(), Initial: initial, Token: env.Cluster.Name},
	}
	for _, other := range spec.EtcdHosts(env.WithLeaving()) {
		if other.Name != h.Name {
			m.Endpoints = append(m.Endpoints, module.EtcdURL(other, hostroles.EtcdClientPort))
		}
	}
	return m
}

// startMember starts a member. A member that does not serve because of its settings or its
// program may have received new ones: it gets them here, because its restart harms
// nothing.
func startMember(env module.Env, s *engine.Scope) (op.List, error) {
	u := module.EtcdUnit()
	if !hasJoined(s.Host()) {
		u.KeepRunning = true
		return op.List{u}, nil
	}
	prog, file, err := memberSettings(env, s)
	u.UnlessServes = env.WaitLocalMemberHealthy()
	prog.UnlessServes, file.UnlessServes = u.UnlessServes, u.UnlessServes
	return op.List{prog, file, u}, err
}

// runMember makes a member run with its current program and settings. They are written when
// all members serve, because a host that reboots earlier would start with them.
func runMember(env module.Env, s *engine.Scope) (op.List, error) {
	u, all := module.EtcdUnit(), env.WaitAllMembersHealthy()
	u.Gate = all
	list := op.List{
		u,
		op.Wait{
			Name: "etcd", TimeoutSeconds: 300,
			Program: etcdctlCommand(module.LocalEtcdURL(), module.EtcdHealthCert, module.EtcdHealthKey, "endpoint", "health"),
		},
		module.MarkEtcdJoined(),
	}
	if !hasJoined(s.Host()) {
		return list, nil
	}
	prog, file, err := memberSettings(env, s)
	prog.Gate, file.Gate = all, all
	return append(op.List{prog, file}, list...), err
}

// memberSettings returns the program and the unit for which a member is restarted.
func memberSettings(env module.Env, s *engine.Scope) (op.Unpack, op.File, error) {
	prog, err := unpackPrograms(s)
	if err != nil {
		return op.Unpack{}, op.File{}, err
	}
	file, err := unitFile(env, s.Host())
	return prog, file, err
}

// waitQuorum reads a key, which need not exist: etcd answers when more than half of its
// members do.
func waitQuorum(env module.Env) op.List {
	endpoints := strings.Join(env.EtcdEndpoints(), ",")
	return op.List{op.Wait{
		Name: "etcd", TimeoutSeconds: 300,
		Program: etcdctlCommand(endpoints, module.EtcdClientCert, module.EtcdClientKey, "get", "/registry/slipway"),
	}}
}

// etcdctlCommand returns an etcdctl command with timeouts that are shorter than the
// timeouts of the wait.
func etcdctlCommand(endpoints, cert, key string, args ...string) []string {
	return append([]string{
		module.Etcdctl, "--endpoints=" + endpoints, "--cacert=" + module.EtcdCA, "--cert=" + cert, "--key=" + key,
		"--dial-timeout=3s", "--command-timeout=8s",
	}, args...)
}
