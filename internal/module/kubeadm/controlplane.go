package kubeadm

import (
	"context"
	"path"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// etcdInput is what of the configuration etcd goes by, and stepEtcd what of a
// further control plane depends on it.
const (
	etcdInput = "/etc/kubernetes/slipway/etcd.yaml"
	stepEtcd  = "kubeadm-join-etcd"
)

// keyShared are the keys and certificates that control planes have in common,
// by path. They go from one host to the others through this process alone:
// into no record, no plan, and not through the API.
var keyShared = engine.NewKey[map[string][]byte]("kubeadm.shared", nil)

func sharedFiles(env module.Env) []string {
	out := append(pki("ca", "front-proxy-ca"), "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/sa.pub")
	if env.Stacked() {
		out = append(out, pki("etcd/ca")...)
	}
	if env.SignsApart {
		out = append(out, module.SigningCert)
	}
	return out
}

// lacksShared says that a control plane has not joined, or has lost some of what
// they have in common. One that has joined gets SigningCert by the exchange alone.
func lacksShared(env module.Env, h *engine.Host) bool {
	env = asItSigns(env, h)
	return !module.Holds(h) || slices.ContainsFunc(sharedFiles(env), func(p string) bool { return !slices.Contains(h.Facts.Present, p) })
}

// shareTasks bring what control planes have in common to those that join.
func shareTasks(env module.Env) []engine.Task {
	return []engine.Task{
		{
			ID: "join.shared", Title: "read what control planes share", On: env.IsFirst,
			// The kubelet of a control plane asks its own API server, so it
			// holds its credentials when etcd there votes.
			When: func(s *engine.Scope) bool {
				return slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return env.JoinsAsControlPlane(h) && lacksShared(env, h) })
			},
			Provides: []engine.KeyRef{keyShared.Ref()},
			Ops: func(*engine.Scope) (op.List, error) {
				var list op.List
				for _, p := range sharedFiles(env) {
					list = append(list, op.ReadFile{Path: p, Secret: true})
				}
				return list, nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				shared := map[string][]byte{}
				for i, p := range sharedFiles(env) {
					if results[i].Missing {
						return nil // nothing here yet; those who ask are told to wait
					}
					shared[p] = results[i].Output
				}
				engine.Provide(s, keyShared, shared)
				return nil
			},
		},
		{
			ID: "join.certificates", Title: "bring what control planes share", On: env.JoinsAsControlPlane,
			When:     func(s *engine.Scope) bool { return lacksShared(env, s.Host()) },
			Consumes: []engine.KeyRef{keyShared.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				shared := engine.Get(s, keyShared)
				var list op.List
				for _, p := range sharedFiles(env) {
					f := op.File{Path: p, Content: shared[p], Mode: 0o600, Secret: true}
					if path.Ext(p) == ".crt" {
						f.Mode = 0o644
					}
					list = append(list, f)
				}
				return list, nil
			},
		},
	}
}

// prepareTasks make a host ready to serve a control plane. They touch nothing
// but the host.
func prepareTasks(env module.Env) []engine.Task {
	certs := slices.DeleteFunc(certificates(env), func(p string) bool { return slices.Contains(sharedFiles(env), p) })
	return []engine.Task{
		{
			ID: "join.certs", Title: "make certificates", On: env.JoinsAsControlPlane,
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{again("certs", []string{"certs", "all"}, certs...)}, nil
			},
		},
		servingTask(env, "join.serving", env.JoinsAsControlPlane),
		{
			ID: "join.kubeconfig", Title: "make kubeconfigs", On: env.JoinsAsControlPlane,
			Ops: func(*engine.Scope) (op.List, error) { return kubeconfigsAgain(), nil },
		},
		{
			ID: "join.config", Title: "write how to join", On: env.JoinsAsControlPlane,
			Ops: func(s *engine.Scope) (op.List, error) { return joinFiles(env, s.Host()) },
		},
	}
}

// servingTask has an API server show a certificate for all its names. One that
// runs takes it up by itself.
func servingTask(env module.Env, id string, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: id, Title: "make the API server's certificate", On: on,
		Ops: func(s *engine.Scope) (op.List, error) {
			docs, err := documents(servingConfiguration(env, s.Host())...)
			if err != nil {
				return nil, err
			}
			return op.List{
				op.File{Path: servingFile, Mode: 0o600, Content: docs},
				op.Exec{
					Name: "kubeadm-serving", Argv: []string{program, "init", "phase", "certs", "apiserver", "--config", servingFile},
					Inputs: []string{servingFile}, Replaces: pki("apiserver"), Declares: pki("apiserver"), Whole: true, TimeoutSeconds: 120,
				},
			}, nil
		},
	}
}

// serveTasks have a control plane serve whose etcd votes.
func serveTasks(env module.Env) []engine.Task {
	return []engine.Task{
		{
			ID: "join.api", Title: "wait for the API", On: env.JoinsAsControlPlane, Timeout: 10 * time.Minute,
			When: func(s *engine.Scope) bool { return !module.Holds(s.Host()) },
			Ops:  func(*engine.Scope) (op.List, error) { return append(op.List{ownAPI(env)}, newComponents(env)...), nil },
		},
		{
			// Of a control plane that serves, when the cluster's settings
			// have changed: one after the other, the first one first, and
			// none before the one before it serves with them.
			ID: "join.settings", Title: "update the control plane",
			On:    func(h *engine.Host) bool { return env.JoinsAsControlPlane(h) && !env.IsFirst(h) },
			When:  func(s *engine.Scope) bool { return module.Holds(s.Host()) },
			Needs: []string{"kubeadm.init.upload-config"}, Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"}, Timeout: 10 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return slices.Concat(controlPlane(), op.List{newAPI(env)}, newComponents(env)), nil
			},
		},
		{
			ID: "join.mark-control-plane", Title: "mark the control plane", On: env.JoinsAsControlPlane,
			Ops: func(s *engine.Scope) (op.List, error) {
				return op.List{controlPlanePhase(env, s.Host(), "mark-control-plane", []string{"control-plane-join", "mark-control-plane"})}, nil
			},
		},
	}
}

// joinFiles are kubeadm's input for a further control plane, once it has
// credentials of its own.
func joinFiles(env module.Env, h *engine.Host) (op.List, error) {
	docs, err := documents(joinConfiguration(env, h, object{"file": object{"kubeConfigPath": adminConf}}))
	if err != nil {
		return nil, err
	}
	list := op.List{op.File{Path: joinFile, Mode: 0o600, Content: docs}}
	if !env.Stacked() {
		return list, nil
	}
	etcd, err := documents(object{"etcd": etcdConfiguration(env)})
	if err != nil {
		return nil, err
	}
	return append(list, op.File{Path: etcdInput, Mode: 0o600, Content: etcd}), nil
}

// controlPlanePhase runs a phase of `kubeadm join` that goes by the host's own
// administrator's credentials.
func controlPlanePhase(env module.Env, h *engine.Host, name string, phase []string, creates ...string) op.Exec {
	return op.Exec{
		Name:    "kubeadm-join-" + name,
		Argv:    append(append([]string{program, "join", "phase"}, phase...), "--config", joinFile),
		Creates: creates, Inputs: []string{joinFile}, Whole: true, TimeoutSeconds: 300,
		Hosts: joinThrough(env, h),
	}
}

// componentsTask starts the components of a control plane when the etcd member of its
// host serves. An API server that starts before keeps trying to reach the member, less
// and less often, and the other components exit without an API server. A host has its
// kubelet's credentials only after this step: its kubelet asks its own API server alone.
//
// The kubelet has asked that API server in vain since it started, less and less often:
// for credentials, to register the node, and for its CSINode object up to two minutes
// apart. So it is restarted when the API server is ready.
func componentsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "join.control-plane", Title: "set up the control plane", On: env.JoinsAsControlPlane, Timeout: 8 * time.Minute,
		When: func(s *engine.Scope) bool { return !module.Holds(s.Host()) },
		Ops: func(*engine.Scope) (op.List, error) {
			kubelet := kubeletUnit(env)
			kubelet.RestartOn = append(kubelet.RestartOn, module.APIServerManifest)
			return op.List{components().exec(), ownAPI(env), kubelet}, nil
		},
	}
}

// etcdTask makes the host a member of etcd that votes. One host at a time: etcd
// takes one learner, and each new vote raises the number that must be up. A
// host that finds another one half added lets that one go first.
func etcdTask(env module.Env) engine.Task {
	one := engine.Rollout{MaxParallel: "1"}
	if env.OtherEtcd {
		one.MaxUnavailable = "1"
	}
	return engine.Task{
		ID: "join.etcd", Title: "join etcd", Timeout: 8 * time.Minute,
		On: func(h *engine.Host) bool { return env.Stacked() && env.JoinsAsControlPlane(h) },
		// The first member has its settings by then, and serves.
		Needs: []string{"kubeadm.init.etcd"}, Rollout: one, Retry: engine.Retry{Attempts: 3, Delay: time.Second},
		Ops: func(s *engine.Scope) (op.List, error) {
			if onlyMember(env, s) {
				return ownEtcd(env), nil
			}
			if env.Gated && module.Holds(s.Host()) {
				return append(votingMember(env, s.Host()), module.EtcdMark()), nil
			}
			return op.List{etcdMember(env, s.Host()), module.EtcdMark()}, nil
		},
	}
}

// onlyMember says that there is no other member to ask: the control plane on
// which the cluster began has left, and others are yet to come, if any.
func onlyMember(env module.Env, s *engine.Scope) bool {
	return env.IsFirst(s.Host()) && !slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool {
		return h.Name != s.Host().Name && h.HasRole(v1alpha1.RoleControlPlane) && env.Stays(h) && module.Holds(h)
	})
}

// ownEtcd has the only member run with its settings, by the phase that sets up
// the one with which a cluster begins: with its data it goes on as the member
// that it is. It is the same step as the one by which it joined, and is not done
// again with the same input.
func ownEtcd(env module.Env) op.List {
	e, serves := localEtcd().exec(), ownAPI(env)
	e.Name, e.Inputs = stepEtcd, []string{etcdInput}
	serves.Manifest = manifest("etcd")
	return op.List{e, serves, module.EtcdMark()}
}

// votingMember is one that has joined: it is to vote, and gets other settings by
// its own file. The phase of `kubeadm join` would ask the API server of the host
// for them, which does not answer when they were bad.
func votingMember(env module.Env, h *engine.Host) op.List {
	m, e := etcdMember(env, h), localEtcd().exec()
	m.Join.Name, m.Join.Inputs = "kubeadm-again-etcd", nil
	e.Name, e.Inputs = stepEtcd, []string{etcdInput}
	return op.List{m, memberSettings(env, h, e)}
}

func etcdMember(env module.Env, h *engine.Host) op.EtcdMember {
	join := controlPlanePhase(env, h, "etcd", []string{"etcd-join"}, manifest("etcd"))
	join.Name, join.Inputs, join.Resumes, join.TimeoutSeconds = stepEtcd, []string{etcdInput}, true, 420
	join.Keeps = join.Creates
	m := op.EtcdMember{
		Name: h.Name, PeerURL: module.EtcdURL(h.Host, facts.EtcdPeerPort), Data: facts.DirEtcd, Join: join, EtcdClient: module.EtcdClient(),
	}
	for _, other := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		if other.Name != h.Name {
			m.Endpoints = append(m.Endpoints, module.EtcdURL(other, facts.EtcdClientPort))
		}
	}
	return m
}
