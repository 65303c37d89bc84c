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
	"slipway.dev/slipway/internal/spec/hostroles"
)

// etcdInput is the part of the configuration that etcd depends on. stepEtcd is the step of
// an additional control plane that depends on it.
const (
	etcdInput = "/etc/kubernetes/slipway/etcd.yaml"
	stepEtcd  = "kubeadm-join-etcd"
)

// keyShared holds the keys and certificates that all control planes share, by path. They
// go from one host to the others only through the memory of this process: not into a
// record or a plan, and not through the API.
var keyShared = engine.NewKey[map[string][]byte]("kubeadm.shared", nil)

func sharedFiles(env module.Env) []string {
	out := append(pkiPaths("ca", "front-proxy-ca"), "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/sa.pub")
	if env.HasStackedEtcd() {
		out = append(out, pkiPaths("etcd/ca")...)
	}
	if env.SignsApart {
		out = append(out, module.SigningCert)
	}
	return out
}

// lacksSharedFiles reports whether a control plane has not joined, or has lost a shared
// file. A control plane that has joined receives SigningCert only from the rotation.
func lacksSharedFiles(env module.Env, h *engine.Host) bool {
	env = keepSigner(env, h)
	return !module.IsJoined(h) || slices.ContainsFunc(sharedFiles(env), func(p string) bool { return !slices.Contains(h.Facts.Present, p) })
}

// shareTasks copy the shared files to control planes that join.
func shareTasks(env module.Env) []engine.Task {
	return []engine.Task{
		{
			ID: "join.shared", Title: "read shared control plane files", On: env.IsFirst,
			// The kubelet of a control plane uses its own API server, so it has its
			// credentials only after etcd on the host votes.
			When: func(s *engine.Scope) bool {
				return slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return env.JoinsAsControlPlane(h) && lacksSharedFiles(env, h) })
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
						return nil // no files yet; dependent steps are pending
					}
					shared[p] = results[i].Output
				}
				engine.ProvideValue(s, keyShared, shared)
				return nil
			},
		},
		{
			ID: "join.certificates", Title: "copy shared control plane files", On: env.JoinsAsControlPlane,
			When:     func(s *engine.Scope) bool { return lacksSharedFiles(env, s.Host()) },
			Consumes: []engine.KeyRef{keyShared.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				shared := engine.GetValue(s, keyShared)
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

// prepareTasks prepare a host for a control plane. They change only the host.
func prepareTasks(env module.Env) []engine.Task {
	certs := slices.DeleteFunc(certPaths(env), func(p string) bool { return slices.Contains(sharedFiles(env), p) })
	return []engine.Task{
		{
			ID: "join.certs", Title: "create certificates", On: env.JoinsAsControlPlane,
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{rerunPhase("certs", []string{"certs", "all"}, certs...)}, nil
			},
		},
		servingTask(env, "join.serving", env.JoinsAsControlPlane),
		{
			ID: "join.kubeconfig", Title: "create kubeconfigs", On: env.JoinsAsControlPlane,
			Ops: func(*engine.Scope) (op.List, error) { return rerunKubeconfigPhases(), nil },
		},
		{
			ID: "join.config", Title: "write join configuration", On: env.JoinsAsControlPlane,
			Ops: func(s *engine.Scope) (op.List, error) { return joinFiles(env, s.Host()) },
		},
	}
}

// servingTask creates a certificate for all names of an API server. A running API server
// reads it automatically.
func servingTask(env module.Env, id string, on func(*engine.Host) bool) engine.Task {
	return engine.Task{
		ID: id, Title: "create API server certificate", On: on,
		Ops: func(s *engine.Scope) (op.List, error) {
			docs, err := encodeDocuments(servingConfiguration(env, s.Host())...)
			if err != nil {
				return nil, err
			}
			return op.List{
				op.File{Path: servingFile, Mode: 0o600, Content: docs},
				op.Exec{
					Name: "kubeadm-serving", Argv: []string{program, "init", "phase", "certs", "apiserver", "--config", servingFile},
					Inputs: []string{servingFile}, Replaces: pkiPaths("apiserver"), Declares: pkiPaths("apiserver"), Whole: true, TimeoutSeconds: 120,
				},
			}, nil
		},
	}
}

// serveTasks start a control plane whose etcd member votes.
func serveTasks(env module.Env) []engine.Task {
	return []engine.Task{
		{
			ID: "join.api", Title: "wait for API server", On: env.JoinsAsControlPlane, Timeout: 10 * time.Minute,
			When: func(s *engine.Scope) bool { return !module.IsJoined(s.Host()) },
			Ops: func(*engine.Scope) (op.List, error) {
				return append(op.List{waitNewAPI(env)}, waitReconfiguredComponents(env)...), nil
			},
		},
		{
			// For a running control plane when the settings of the cluster have changed:
			// one after the other, the leader first, and each must serve with them before
			// the next one.
			ID: "join.settings", Title: "update control plane",
			On:    func(h *engine.Host) bool { return env.JoinsAsControlPlane(h) && !env.IsFirst(h) },
			When:  func(s *engine.Scope) bool { return module.IsJoined(s.Host()) },
			Needs: []string{"kubeadm.init.upload-config"}, Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"}, Timeout: 10 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return slices.Concat(rerunControlPlanePhase(), op.List{waitReconfiguredAPI(env)}, waitReconfiguredComponents(env)), nil
			},
		},
		{
			ID: "join.mark-control-plane", Title: "mark control plane node", On: env.JoinsAsControlPlane,
			Ops: func(s *engine.Scope) (op.List, error) {
				return op.List{controlPlanePhase(env, s.Host(), "mark-control-plane", []string{"control-plane-join", "mark-control-plane"})}, nil
			},
		},
	}
}

// joinFiles returns the input of kubeadm for an additional control plane that has its own
// credentials.
func joinFiles(env module.Env, h *engine.Host) (op.List, error) {
	docs, err := encodeDocuments(joinConfiguration(env, h, object{"file": object{"kubeConfigPath": adminConf}}))
	if err != nil {
		return nil, err
	}
	list := op.List{op.File{Path: joinFile, Mode: 0o600, Content: docs}}
	if !env.HasStackedEtcd() {
		return list, nil
	}
	etcd, err := encodeDocuments(object{"etcd": etcdConfiguration(env)})
	if err != nil {
		return nil, err
	}
	return append(list, op.File{Path: etcdInput, Mode: 0o600, Content: etcd}), nil
}

// controlPlanePhase runs a phase of `kubeadm join` with the administrator credentials of
// the host itself.
func controlPlanePhase(env module.Env, h *engine.Host, name string, phase []string, creates ...string) op.Exec {
	return op.Exec{
		Name:    "kubeadm-join-" + name,
		Argv:    append(append([]string{program, "join", "phase"}, phase...), "--config", joinFile),
		Creates: creates, Inputs: []string{joinFile}, Whole: true, TimeoutSeconds: 300,
		Hosts: joinHostsEntry(env, h),
	}
}

// componentsTask starts the components of a control plane when the etcd member of its host
// serves. An API server that starts earlier retries to reach the member at growing
// intervals, and the other components exit without an API server. The kubelet of the host
// gets its credentials only after this step, because it uses only its own API server.
//
// The kubelet retries at growing intervals, too, since it started: for credentials, to
// register the node, and up to two minutes apart to create its CSINode object. A restart
// when the API server is ready ends these waits.
func componentsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "join.control-plane", Title: "set up control plane", On: env.JoinsAsControlPlane, Timeout: 8 * time.Minute,
		When: func(s *engine.Scope) bool { return !module.IsJoined(s.Host()) },
		Ops: func(*engine.Scope) (op.List, error) {
			kubelet := kubeletUnit(env)
			kubelet.RestartOn = append(kubelet.RestartOn, module.APIServerManifest)
			return op.List{componentsPhase().asExec(), waitNewAPI(env), kubelet}, nil
		},
	}
}

// etcdTask makes the host a voting etcd member. One host at a time: etcd accepts one
// learner, and each new voting member raises the quorum. A host that finds another one
// half added waits for it.
func etcdTask(env module.Env) engine.Task {
	one := engine.Rollout{MaxParallel: "1"}
	if env.NewEtcdSettings {
		one.MaxUnavailable = "1"
	}
	return engine.Task{
		ID: "join.etcd", Title: "join etcd cluster", Timeout: 8 * time.Minute,
		On: func(h *engine.Host) bool { return env.HasStackedEtcd() && env.JoinsAsControlPlane(h) },
		// At this point the first member has its settings, and serves.
		Needs: []string{"kubeadm.init.etcd"}, Rollout: one, Retry: engine.Retry{Attempts: 3, Delay: time.Second},
		Ops: func(s *engine.Scope) (op.List, error) {
			if isOnlyMember(env, s) {
				return runOnlyMember(env), nil
			}
			if env.IsRunning && module.IsJoined(s.Host()) {
				return append(updateVotingMember(env, s.Host()), module.MarkEtcdJoined()), nil
			}
			return op.List{etcdMember(env, s.Host()), module.MarkEtcdJoined()}, nil
		},
	}
}

// isOnlyMember reports whether there is no other member to join: the control plane on which
// the cluster was created has left, and no other one has joined yet.
func isOnlyMember(env module.Env, s *engine.Scope) bool {
	return env.IsFirst(s.Host()) && !slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool {
		return h.Name != s.Host().Name && h.HasRole(v1alpha1.RoleControlPlane) && env.IsStaying(h) && module.IsJoined(h)
	})
}

// runOnlyMember makes the only member run with its settings. It uses the phase that
// sets up the first member of a cluster: with its data, the member keeps its identity.
// It is the same step as the one by which it joined, and does not run again with the
// same input.
func runOnlyMember(env module.Env) op.List {
	e, serves := etcdPhase().asExec(), waitLocalAPI(env)
	e.Name, e.Inputs = stepEtcd, []string{etcdInput}
	serves.Manifest = manifestPath("etcd")
	return op.List{e, serves, module.MarkEtcdJoined()}
}

// updateVotingMember is for a member that has joined: it must vote, and receives other
// settings from its own file. The phase of `kubeadm join` would request them from the
// API server of the host, which does not answer if the settings were bad.
func updateVotingMember(env module.Env, h *engine.Host) op.List {
	m, e := etcdMember(env, h), etcdPhase().asExec()
	m.Join.Name, m.Join.Inputs = "kubeadm-again-etcd", nil
	e.Name, e.Inputs = stepEtcd, []string{etcdInput}
	return op.List{m, gateMemberSettings(env, h, e)}
}

func etcdMember(env module.Env, h *engine.Host) op.EtcdMember {
	join := controlPlanePhase(env, h, "etcd", []string{"etcd-join"}, manifestPath("etcd"))
	join.Name, join.Inputs, join.Resumes, join.TimeoutSeconds = stepEtcd, []string{etcdInput}, true, 420
	join.Keeps = join.Creates
	m := op.EtcdMember{
		Name: h.Name, PeerURL: module.EtcdURL(h.Host, hostroles.EtcdPeerPort), Data: facts.DirEtcd, Join: join, EtcdClient: module.EtcdClient(),
	}
	for _, other := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		if other.Name != h.Name {
			m.Endpoints = append(m.Endpoints, module.EtcdURL(other, hostroles.EtcdClientPort))
		}
	}
	return m
}
