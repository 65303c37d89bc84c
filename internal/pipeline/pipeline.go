// Package pipeline defines the lifecycle operations as ordered lists of modules.
package pipeline

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/addon"
	"slipway.dev/slipway/internal/module/bundle"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/module/containerruntime"
	"slipway.dev/slipway/internal/module/dns"
	"slipway.dev/slipway/internal/module/endpoint"
	"slipway.dev/slipway/internal/module/etcd"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/module/hooks"
	"slipway.dev/slipway/internal/module/hostprep"
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/module/network"
	"slipway.dev/slipway/internal/module/noderemoval"
	"slipway.dev/slipway/internal/module/nodes"
	"slipway.dev/slipway/internal/module/registry"
	"slipway.dev/slipway/internal/module/reset"
	"slipway.dev/slipway/internal/module/upgrade"
	"slipway.dev/slipway/internal/node/op"
)

// Parts holds the inputs of pipelines besides the environment.
type Parts struct {
	Bundle  bundle.Source
	Records clusterstate.Records
	// Owner identifies the manager of the cluster: this one.
	Owner string
	// Backup takes a backup set; only upgrades use it.
	Backup upgrade.Take
	// Addons are the add-ons of the cluster, in the order of their installation.
	Addons []addonsource.Addon
	// KeepAddons leaves the add-ons of the cluster unchanged during a rollback.
	KeepAddons bool
	// Retires removes files of earlier bundles from hosts when everything else is done.
	Retires bool
}

// Create creates a cluster.
func Create(env module.Env, p Parts) engine.Pipeline {
	m := []engine.Module{hooks.New(env, v1alpha1.HookPreInstall)}
	m = append(m, upToControlPlane(env, p)...)
	m = append(m, hooks.New(env, v1alpha1.HookPostControlPlane), kubeadm.MakeRoom(env))
	m = append(m, joined(env, p)...)
	m = append(m, kubeadm.Encrypted(env))
	m = append(m, settled(env)...)
	m = append(m, addon.New(p.Addons), hooks.New(env, v1alpha1.HookPostInstall))
	return engine.Pipeline{Kind: "create", Modules: m}
}

// Apply makes an existing cluster match its description. Hosts that are no longer in the
// description are removed after new hosts can take their pods. Settings of hosts are
// changed one host after the other; the components that serve the whole cluster follow.
func Apply(env module.Env, p Parts) (engine.Pipeline, error) {
	env.Gated = true
	steps := []engine.Module{hostprep.New(env), containerruntime.New(env), kubeadm.Install(env), kubeadm.RestartServing(env)}
	m := append(scripts(env, env.Comes, v1alpha1.HookPreInstall), bundle.New(p.Bundle), registry.New(env))
	if len(env.KubeletStates) > 0 {
		drain, serve := upgrade.Aside(env, kubeadm.Outdated(env))
		steps = slices.Concat([]engine.Module{drain}, steps, []engine.Module{serve})
		m = append(m, kubeadm.ReachBefore(env))
	}
	onNodes, err := upgrade.Settings(env, steps...)
	if err != nil {
		return engine.Pipeline{}, err
	}
	m = append(m, onNodes)
	m = append(m, upgrade.Then(kubeadm.StepKubelet, etcd.New(env))...)
	m = append(m, containerruntime.Images(env), etcd.Reach(env))
	m = append(m, upgrade.Then(kubeadm.StepKubelet, kubeadm.Encryption(env), kubeadm.Init(env))...)
	m = append(m, kubeadm.Records(env), kubeadm.MakeRoom(env), noderemoval.Replaced(env))
	m = append(m, scripts(env, env.Comes, v1alpha1.HookPostControlPlane)...)
	m = append(append(m, joined(env, p, kubeadm.StepRecord)...), kubeadm.Encrypted(env), kubeadm.Addons(env))
	m = only(env.Stays, append(append(m, settled(env)...), endpoint.Retire(env)))
	if len(env.Leaving) > 0 {
		m = append(m, before(scripts(env, env.Resets, v1alpha1.HookPreDelete))...)
		m = append(m, endpoint.Release(env), noderemoval.Drain(env), noderemoval.Server(env), noderemoval.Member(env))
		m = append(m, only(env.Resets, []engine.Module{reset.New(env, "leave.member")})...)
		m = append(m, noderemoval.Node(env), clusterstate.Left(env, p.Records, p.Owner))
	}
	m = append(append(m, addon.New(p.Addons)), scripts(env, env.Comes, v1alpha1.HookPostInstall)...)
	if p.Retires {
		m = append(m, atLast(m, containerruntime.Retire(env)))
	}
	return engine.Pipeline{Kind: "apply", Modules: m}, nil
}

// scripts returns the hooks of a phase for some hosts of a running cluster. It returns
// none if no hosts are added or removed, because hooks wait for all other tasks.
func scripts(env module.Env, chosen func(*engine.Host) bool, phase v1alpha1.HookPhase) []engine.Module {
	if len(env.Coming) == 0 && len(env.Leaving) == 0 {
		return nil
	}
	return only(chosen, []engine.Module{hooks.New(env, phase)})
}

// before makes the hooks of leaving hosts run as soon as the remaining hosts are ready,
// like their drain. They wait for nothing else, because many tasks wait for them.
func before(modules []engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			m.Tasks[i].Barrier, m.Tasks[i].Needs = false, []string{"nodes.ready"}
		}
	}
	return modules
}

// Migrate changes the container runtime of a cluster. Nodes change one after the other as
// in an upgrade, and nothing of the previous runtime remains on them. The kubeadm
// configuration, which names the runtime, follows.
func Migrate(env module.Env, p Parts) (engine.Pipeline, error) {
	// Everything on a node is stopped and restarted meanwhile; the modules wait for it.
	onNodes, err := upgrade.InWaves(env,
		reset.Runtime(env), containerruntime.New(env), containerruntime.Images(env), kubeadm.Install(env),
		kubeadm.Kubelet(env), kubeadm.Again(env), nodes.Ready(env), kubeadm.Serving(env))
	if err != nil {
		return engine.Pipeline{}, err
	}
	env.Gated = true
	m := []engine.Module{bundle.New(p.Bundle), kubeadm.Reach(env), registry.New(env), containerruntime.Ahead(env), onNodes}
	// Everything that lists all control planes follows as well, because one may have been
	// force-removed.
	m = append(m, upgrade.After(kubeadm.Phases(env), clusterstate.New(env, kubeadm.KeyAdminConf, p.Records, p.Owner), endpoint.New(env),
		kubeadm.Join(env), nodes.Settled(env), certs.Timer(env), etcdbackup.Schedule(env))...)
	return engine.Pipeline{Kind: "apply", Modules: m}, nil
}

// Upgrade changes a cluster to another version of Kubernetes: first the nodes, then the
// components in the cluster that all nodes use. A backup is taken before any host is
// changed. Programs and images are on the hosts before their nodes are drained.
func Upgrade(env module.Env, p Parts) (engine.Pipeline, error) {
	nodesFirst, err := upgrade.InWaves(env,
		containerruntime.New(env), kubeadm.Install(env), kubeadm.Upgrade(env), kubeadm.Kubelet(env),
		kubeadm.Steady(env), nodes.Ready(env), kubeadm.Serving(env))
	if err != nil {
		return engine.Pipeline{}, err
	}
	m := []engine.Module{bundle.New(p.Bundle), kubeadm.Reach(env), upgrade.Backup(env, p.Backup)}
	ahead := bundle.Ahead(containerruntime.New(env), kubeadm.Install(env), etcd.New(env))
	m = append(m, upgrade.Behind(ahead, containerruntime.Images(env), hooks.New(env, v1alpha1.HookPreUpgrade), nodesFirst)...)
	m = append(m,
		upgrade.After(append(settledIn(env, p), registry.New(env), addon.New(p.Addons), hooks.New(env, v1alpha1.HookPostUpgrade))...)...)
	return engine.Pipeline{Kind: "upgrade", Modules: retiring(env, m)}, nil
}

// Revert rolls back an upgrade that is not complete, with the same steps in reverse order:
// kube-proxy, then workers, then control planes. On a control plane, the kubelet goes
// before the components. The components that all nodes use follow, and add-ons come last.
func Revert(env module.Env, p Parts) (engine.Pipeline, error) {
	env.Upgrade.Back = true
	nodesBack, err := upgrade.InWaves(env,
		containerruntime.New(env), kubeadm.Install(env), kubeadm.KubeletSettings(env), kubeadm.Kubelet(env),
		kubeadm.Serve(env), kubeadm.Steady(env), nodes.Ready(env), kubeadm.Serving(env))
	if err != nil {
		return engine.Pipeline{}, err
	}
	m := []engine.Module{bundle.New(p.Bundle), kubeadm.Reach(env), containerruntime.Images(env), upgrade.Proxy(env)}
	m = append(m, upgrade.Then(upgrade.StepProxy, nodesBack)...)
	m = append(m, upgrade.After(kubeadm.Settings(env))...)
	m = append(m, upgrade.After(upgrade.BehindDNS(settledIn(env, p, upgrade.DNS(env))...)...)...)
	if !p.KeepAddons {
		m = append(m, upgrade.After(addon.New(p.Addons))...)
	}
	return engine.Pipeline{Kind: "rollback-upgrade", Modules: retiring(env, m)}, nil
}

// retiring removes files of other versions from hosts when all hosts are complete. Until
// then they are needed for a rollback, also by hosts that do not take part yet.
func retiring(env module.Env, m []engine.Module) []engine.Module {
	if len(env.Absent) > 0 {
		return m
	}
	return append(m, atLast(m, containerruntime.Retire(env)))
}

// atLast makes a module wait until all tasks of others are done on all their hosts.
func atLast(others []engine.Module, m engine.Module) engine.Module {
	for i := range m.Tasks {
		m.Tasks[i].NeedsAll = true
		for _, o := range others {
			for _, t := range o.Tasks {
				m.Tasks[i].Needs = append(m.Tasks[i].Needs, t.ID)
			}
		}
	}
	return m
}

// Lose removes lost hosts from a cluster and does nothing else.
func Lose(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Kind: "forget-nodes", Modules: among(
		kubeadm.Reach(env), noderemoval.Drain(env), noderemoval.Server(env), noderemoval.Member(env),
		noderemoval.Node(env), clusterstate.Left(env, p.Records, p.Owner),
	)}
}

// Strike removes lost hosts only from the state, for a restore or rescue of etcd, when the
// API may be down. The restored etcd gets its members from the hosts in the state.
func Strike(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Kind: "forget-nodes", Modules: []engine.Module{clusterstate.Off(env, p.Records)}}
}

// among removes all needs of tasks that are not among the modules.
func among(modules ...engine.Module) []engine.Module {
	there := map[string]bool{}
	for _, m := range modules {
		for _, t := range m.Tasks {
			there[t.ID] = true
		}
	}
	for _, m := range modules {
		for i := range m.Tasks {
			t := &m.Tasks[i]
			t.Needs = slices.DeleteFunc(slices.Clone(t.Needs), func(id string) bool { return !there[id] })
		}
	}
	return modules
}

// settledIn returns the modules that bring the components of the cluster to a version;
// before comes before the add-ons of kubeadm.
func settledIn(env module.Env, p Parts, before ...engine.Module) []engine.Module {
	m := append(members(env), before...)
	return append(m,
		kubeadm.UpgradeAddons(env),
		clusterstate.New(env, kubeadm.KeyAdminConf, p.Records, p.Owner),
		endpoint.New(env),
		dns.New(env),
		network.New(env),
		nodes.Settled(env),
		upgrade.Settled(env),
		certs.Timer(env),
		etcdbackup.Schedule(env),
	)
}

// members returns the modules that bring etcd to a version; in a rollback, after etcd
// accepts the downgrade.
func members(env module.Env) []engine.Module {
	m := []engine.Module{etcd.New(env), kubeadm.UpgradeEtcd(env)}
	if !env.Upgrade.Back {
		return m
	}
	return append([]engine.Module{etcd.Back(env)}, upgrade.Then(etcd.StepBack, m...)...)
}

// only restricts the tasks of modules to the chosen hosts.
func only(chosen func(*engine.Host) bool, modules []engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			on := m.Tasks[i].On
			m.Tasks[i].On = func(h *engine.Host) bool { return chosen(h) && (on == nil || on(h)) }
		}
	}
	return modules
}

func upToControlPlane(env module.Env, p Parts) []engine.Module {
	return []engine.Module{
		bundle.New(p.Bundle),
		hostprep.New(env),
		registry.New(env),
		containerruntime.New(env),
		kubeadm.Install(env),
		etcd.New(env),
		containerruntime.Images(env),
		etcd.Reach(env),
		kubeadm.Encryption(env),
		kubeadm.Init(env),
	}
}

// joined returns the modules that join all nodes to the cluster. New nodes join after the
// given steps.
func joined(env module.Env, p Parts, after ...string) []engine.Module {
	return []engine.Module{
		clusterstate.New(env, kubeadm.KeyAdminConf, p.Records, p.Owner),
		endpoint.New(env),
		kubeadm.Join(env, after...),
		endpoint.Joined(env),
		kubeadm.Kubelet(env),
	}
}

func settled(env module.Env) []engine.Module {
	return []engine.Module{
		dns.New(env),
		network.New(env),
		nodes.New(env),
		kubeadm.Serving(env),
		certs.Timer(env),
		etcdbackup.Schedule(env),
	}
}

// Renew renews certificates of a cluster, whose API may be down.
func Renew(env module.Env, p Parts, w certs.Wish) engine.Pipeline {
	m := []engine.Module{
		etcd.Renew(env, w.Renewal),
		certs.Renew(env, w),
		clusterstate.Kubeconfig(env, certs.KeyAdmin, p.Records),
	}
	switch {
	case len(w.Readmit) > 0:
		m = append(m, kubeadm.Readmit(env, w.Readmit))
	case w.Continues:
		m = append(m, kubeadm.EndJoin(env))
	}
	return engine.Pipeline{Kind: "renew-certs", Modules: m}
}

// RotateCA rotates a CA or the service account key.
func RotateCA(env module.Env, p Parts, r certs.Rotations) engine.Pipeline {
	if r.Cluster.From != "" {
		return engine.Pipeline{Kind: "rotate-ca", Modules: rotateCluster(env, p, r.Cluster)}
	}
	m := []engine.Module{kubeadm.Reach(env), certs.RotateAccounts(env, r.Accounts)}
	if r.FrontProxy.From != "" {
		m = append(m, certs.RotateFrontProxy(env, r.FrontProxy))
	}
	if r.Etcd.From != "" {
		m = append(m, certs.RotateEtcd(env, r.Etcd))
	}
	return engine.Pipeline{Kind: "rotate-ca", Modules: m}
}

// rotateCluster rotates the cluster CA.
func rotateCluster(env module.Env, p Parts, r certs.ClusterRotation) []engine.Module {
	env.Gated = true
	around := certs.Around{
		Signing:   func(h *engine.Host, apart bool) (op.List, error) { return kubeadm.Signing(env, h, apart) },
		Follows:   func(h *engine.Host) op.List { return kubeadm.Follows(env, h) },
		Kubelet:   func(h *engine.Host, files ...string) op.Unit { return kubeadm.Rereads(env, h, files...) },
		Balancers: func(h *engine.Host) op.List { return endpoint.Rereads(env, h) },
	}
	x := certs.RotateCluster(env, r, around)
	return []engine.Module{
		x.Make,
		kubeadm.ReachBoth(env, certs.StepMade),
		x.Sign,
		keeps(certs.StepKeptBoth, r.Everywhere, clusterstate.Kubeconfig(env, certs.KeyAdminBoth, p.Records)),
		keeps(certs.StepKept, r.Everywhere, clusterstate.Kubeconfig(env, certs.KeyAdmin, p.Records), certs.StepKeptBoth),
		kubeadm.ReadmitAnew(env, certs.StepSigned, r.Readmit, r.Anew(env)),
		x.Drop,
		keeps(certs.StepKeptLast, r.Begun, clusterstate.Kubeconfig(env, certs.KeyAdminLast, p.Records)),
		kubeadm.ReachAfter(env, certs.StepDropped),
		x.End,
	}
}

// keeps makes a module save the kubeconfig of the administrator in a given step, after
// other steps.
func keeps(step string, when func(*engine.Scope) bool, m engine.Module, after ...string) engine.Module {
	m.Tasks[0].ID, m.Tasks[0].When, m.Tasks[0].Needs = step, when, after
	return m
}

// InitOS prepares hosts and installs nothing.
func InitOS(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "init-os", Modules: []engine.Module{hostprep.New(env)}}
}

// InitRegistry sets up the private registry on its host.
func InitRegistry(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Kind: "init-registry", Modules: []engine.Module{bundle.New(p.Bundle), registry.New(env)}}
}

// Defrag defragments the databases of etcd; won is called with the sizes.
func Defrag(env module.Env, won etcdbackup.Won) engine.Pipeline {
	return engine.Pipeline{Kind: "etcd-defrag", Modules: []engine.Module{etcdbackup.Defrag(env, won)}}
}

// RestoreEtcd restores the data of etcd from a backup set.
func RestoreEtcd(env module.Env, from etcdbackup.Source) engine.Pipeline {
	return engine.Pipeline{Kind: "etcd-restore", Modules: []engine.Module{etcdbackup.Restore(env, from)}}
}

// RescueEtcd rebuilds etcd with one member from the data of a surviving member.
func RescueEtcd(env module.Env, from etcdbackup.Source) engine.Pipeline {
	return engine.Pipeline{Kind: "etcd-rescue", Modules: []engine.Module{etcdbackup.Salvage(env, from)}}
}

// Delete removes a cluster from its hosts and restores the hosts.
func Delete(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "delete", Modules: []engine.Module{
		hooks.New(env, v1alpha1.HookPreDelete),
		reset.New(env),
	}}
}

// EndJoin revokes the join tokens after an operation that did not complete.
func EndJoin(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "end-join", Modules: []engine.Module{kubeadm.EndJoin(env)}}
}
