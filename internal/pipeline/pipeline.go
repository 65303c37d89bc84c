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
	Records clusterstate.StateStore
	// Owner identifies the manager of the cluster: this one.
	Owner string
	// Backup takes a backup set; only upgrades use it.
	Backup upgrade.BackupFunc
	// Addons are the add-ons of the cluster, in the order of their installation.
	Addons []addonsource.Addon
	// KeepAddons leaves the add-ons of the cluster unchanged during a rollback.
	KeepAddons bool
	// Retires removes files of earlier bundles from hosts when everything else is done.
	Retires bool
}

// Create creates a cluster.
func Create(env module.Env, p Parts) engine.Pipeline {
	m := []engine.Module{hooks.RunHooks(env, v1alpha1.HookPreInstall)}
	m = append(m, controlPlaneModules(env, p)...)
	m = append(m, hooks.RunHooks(env, v1alpha1.HookPostControlPlane), kubeadm.RemoveLostMembers(env))
	m = append(m, joinModules(env, p)...)
	m = append(m, kubeadm.VerifyEncryption(env))
	m = append(m, finishModules(env)...)
	m = append(m, addon.InstallAddons(p.Addons), hooks.RunHooks(env, v1alpha1.HookPostInstall))
	return engine.Pipeline{Kind: "create", Modules: m}
}

// Apply makes an existing cluster match its description. Hosts that are no longer in the
// description are removed after new hosts can take their pods. Settings of hosts are
// changed one host after the other; the components that serve the whole cluster follow.
func Apply(env module.Env, p Parts) (engine.Pipeline, error) {
	env.IsRunning = true
	steps := []engine.Module{hostprep.PrepareHosts(env), containerruntime.InstallRuntime(env), kubeadm.InstallKubernetes(env), kubeadm.RestartKubeletAndApproveCert(env)}
	m := append(runHooksOfChange(env, env.IsNew, v1alpha1.HookPreInstall), bundle.PrepareBundle(p.Bundle), registry.SetUpRegistry(env))
	if len(env.KubeletStates) > 0 {
		drain, serve := upgrade.DrainAroundChange(env, kubeadm.LosesKubeletState(env))
		steps = slices.Concat([]engine.Module{drain}, steps, []engine.Module{serve})
		m = append(m, kubeadm.ConnectAPIBeforeChange(env))
	}
	onNodes, err := upgrade.RollOutSettings(env, steps...)
	if err != nil {
		return engine.Pipeline{}, err
	}
	m = append(m, onNodes)
	m = append(m, upgrade.After(kubeadm.StepKubeletSettings, etcd.SetUpMembers(env))...)
	m = append(m, containerruntime.ImportImages(env), etcd.WaitForEtcd(env))
	m = append(m, upgrade.After(kubeadm.StepKubeletSettings, kubeadm.PrepareEncryption(env), kubeadm.InitControlPlane(env))...)
	m = append(m, kubeadm.ReuploadConfig(env), kubeadm.RemoveLostMembers(env), noderemoval.ReplaceNodes(env))
	m = append(m, runHooksOfChange(env, env.IsNew, v1alpha1.HookPostControlPlane)...)
	m = append(append(m, joinModules(env, p, kubeadm.StepConfigUploaded)...), kubeadm.VerifyEncryption(env), kubeadm.RestoreAddons(env))
	m = restrictTo(env.Stays, append(append(m, finishModules(env)...), endpoint.PruneEndpoints(env)))
	if len(env.Leaving) > 0 {
		m = append(m, runHooksEarly(runHooksOfChange(env, env.Resets, v1alpha1.HookPreDelete))...)
		m = append(m, endpoint.ReleaseAddress(env), noderemoval.DrainNodes(env), noderemoval.StopServers(env), noderemoval.RemoveMembers(env))
		m = append(m, restrictTo(env.Resets, []engine.Module{reset.ResetHosts(env, "leave.member")})...)
		m = append(m, noderemoval.DeleteNodes(env), clusterstate.RemoveHosts(env, p.Records, p.Owner))
	}
	m = append(append(m, addon.InstallAddons(p.Addons)), runHooksOfChange(env, env.IsNew, v1alpha1.HookPostInstall)...)
	if p.Retires {
		m = append(m, runLast(m, containerruntime.PruneBundles(env)))
	}
	return engine.Pipeline{Kind: "apply", Modules: m}, nil
}

// runHooksOfChange returns the hooks of a phase for some hosts of a running cluster. It returns
// none if no hosts are added or removed, because hooks wait for all other tasks.
func runHooksOfChange(env module.Env, chosen func(*engine.Host) bool, phase v1alpha1.HookPhase) []engine.Module {
	if len(env.Coming) == 0 && len(env.Leaving) == 0 {
		return nil
	}
	return restrictTo(chosen, []engine.Module{hooks.RunHooks(env, phase)})
}

// runHooksEarly makes the hooks of leaving hosts run as soon as the remaining hosts are ready,
// like their drain. They wait for nothing else, because many tasks wait for them.
func runHooksEarly(modules []engine.Module) []engine.Module {
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
	onNodes, err := upgrade.RollOut(env,
		reset.RemoveRuntime(env), containerruntime.InstallRuntime(env), containerruntime.ImportImages(env), kubeadm.InstallKubernetes(env),
		kubeadm.EnsureKubeletRunning(env), kubeadm.WaitControlPlaneRestarted(env), nodes.WaitReady(env), kubeadm.ApproveKubeletCerts(env))
	if err != nil {
		return engine.Pipeline{}, err
	}
	env.IsRunning = true
	m := []engine.Module{bundle.PrepareBundle(p.Bundle), kubeadm.ConnectAPI(env), registry.SetUpRegistry(env), containerruntime.PrefetchImages(env), onNodes}
	// Everything that lists all control planes follows as well, because one may have been
	// force-removed.
	m = append(m, upgrade.AfterNodes(kubeadm.UpdateControlPlane(env), clusterstate.SaveState(env, kubeadm.KeyAdminConf, p.Records, p.Owner), endpoint.SetUpEndpoint(env),
		kubeadm.JoinNodes(env), nodes.ConfigureNodes(env), certs.EnableAutoRenewal(env), etcdbackup.ScheduleSnapshots(env))...)
	return engine.Pipeline{Kind: "apply", Modules: m}, nil
}

// Upgrade changes a cluster to another version of Kubernetes: first the nodes, then the
// components in the cluster that all nodes use. A backup is taken before any host is
// changed. Programs and images are on the hosts before their nodes are drained.
func Upgrade(env module.Env, p Parts) (engine.Pipeline, error) {
	nodesFirst, err := upgrade.RollOut(env,
		containerruntime.InstallRuntime(env), kubeadm.InstallKubernetes(env), kubeadm.UpgradeNode(env), kubeadm.EnsureKubeletRunning(env),
		kubeadm.WaitStable(env), nodes.WaitReady(env), kubeadm.ApproveKubeletCerts(env))
	if err != nil {
		return engine.Pipeline{}, err
	}
	m := []engine.Module{bundle.PrepareBundle(p.Bundle), kubeadm.ConnectAPI(env), upgrade.BackUpCluster(env, p.Backup)}
	ahead := bundle.PrefetchPrograms(containerruntime.InstallRuntime(env), kubeadm.InstallKubernetes(env), etcd.SetUpMembers(env))
	m = append(m, upgrade.AfterBackup(ahead, containerruntime.ImportImages(env), hooks.RunHooks(env, v1alpha1.HookPreUpgrade), nodesFirst)...)
	m = append(m,
		upgrade.AfterNodes(append(finishModulesForVersion(env, p), registry.SetUpRegistry(env), addon.InstallAddons(p.Addons), hooks.RunHooks(env, v1alpha1.HookPostUpgrade))...)...)
	return engine.Pipeline{Kind: "upgrade", Modules: pruneAtEnd(env, m)}, nil
}

// Revert rolls back an upgrade that is not complete, with the same steps in reverse order:
// kube-proxy, then workers, then control planes. On a control plane, the kubelet goes
// before the components. The components that all nodes use follow, and add-ons come last.
func Revert(env module.Env, p Parts) (engine.Pipeline, error) {
	env.Upgrade.Back = true
	nodesBack, err := upgrade.RollOut(env,
		containerruntime.InstallRuntime(env), kubeadm.InstallKubernetes(env), kubeadm.UpdateKubeletSettings(env), kubeadm.EnsureKubeletRunning(env),
		kubeadm.UpgradeControlPlane(env), kubeadm.WaitStable(env), nodes.WaitReady(env), kubeadm.ApproveKubeletCerts(env))
	if err != nil {
		return engine.Pipeline{}, err
	}
	m := []engine.Module{bundle.PrepareBundle(p.Bundle), kubeadm.ConnectAPI(env), containerruntime.ImportImages(env), upgrade.RollBackProxy(env)}
	m = append(m, upgrade.After(upgrade.StepProxy, nodesBack)...)
	m = append(m, upgrade.AfterNodes(kubeadm.UploadConfig(env))...)
	m = append(m, upgrade.AfterNodes(upgrade.AfterCoreDNS(finishModulesForVersion(env, p, upgrade.RollBackCoreDNS(env))...)...)...)
	if !p.KeepAddons {
		m = append(m, upgrade.AfterNodes(addon.InstallAddons(p.Addons))...)
	}
	return engine.Pipeline{Kind: "rollback-upgrade", Modules: pruneAtEnd(env, m)}, nil
}

// pruneAtEnd removes files of other versions from hosts when all hosts are complete. Until
// then they are needed for a rollback, also by hosts that do not take part yet.
func pruneAtEnd(env module.Env, m []engine.Module) []engine.Module {
	if len(env.Absent) > 0 {
		return m
	}
	return append(m, runLast(m, containerruntime.PruneBundles(env)))
}

// runLast makes a module wait until all tasks of others are done on all their hosts.
func runLast(others []engine.Module, m engine.Module) engine.Module {
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
	return engine.Pipeline{Kind: "forget-nodes", Modules: withoutOutsideNeeds(
		kubeadm.ConnectAPI(env), noderemoval.DrainNodes(env), noderemoval.StopServers(env), noderemoval.RemoveMembers(env),
		noderemoval.DeleteNodes(env), clusterstate.RemoveHosts(env, p.Records, p.Owner),
	)}
}

// Strike removes lost hosts only from the state, for a restore or rescue of etcd, when the
// API may be down. The restored etcd gets its members from the hosts in the state.
func Strike(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Kind: "forget-nodes", Modules: []engine.Module{clusterstate.RemoveHostsFromState(env, p.Records)}}
}

// withoutOutsideNeeds removes all needs of tasks that are not among the modules.
func withoutOutsideNeeds(modules ...engine.Module) []engine.Module {
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

// finishModulesForVersion returns the modules that bring the components of the cluster to a version;
// before comes before the add-ons of kubeadm.
func finishModulesForVersion(env module.Env, p Parts, before ...engine.Module) []engine.Module {
	m := append(etcdModules(env), before...)
	return append(m,
		kubeadm.UpgradeAddons(env),
		clusterstate.SaveState(env, kubeadm.KeyAdminConf, p.Records, p.Owner),
		endpoint.SetUpEndpoint(env),
		dns.ConfigureCoreDNS(env),
		network.InstallNetwork(env),
		nodes.ConfigureNodes(env),
		upgrade.WaitDaemonSets(env),
		certs.EnableAutoRenewal(env),
		etcdbackup.ScheduleSnapshots(env),
	)
}

// etcdModules returns the modules that bring etcd to a version; in a rollback, after etcd
// accepts the downgrade.
func etcdModules(env module.Env) []engine.Module {
	m := []engine.Module{etcd.SetUpMembers(env), kubeadm.UpgradeEtcd(env)}
	if !env.Upgrade.Back {
		return m
	}
	return append([]engine.Module{etcd.PrepareDowngrade(env)}, upgrade.After(etcd.StepDowngrade, m...)...)
}

// restrictTo restricts the tasks of modules to the chosen hosts.
func restrictTo(chosen func(*engine.Host) bool, modules []engine.Module) []engine.Module {
	for _, m := range modules {
		for i := range m.Tasks {
			on := m.Tasks[i].On
			m.Tasks[i].On = func(h *engine.Host) bool { return chosen(h) && (on == nil || on(h)) }
		}
	}
	return modules
}

func controlPlaneModules(env module.Env, p Parts) []engine.Module {
	return []engine.Module{
		bundle.PrepareBundle(p.Bundle),
		hostprep.PrepareHosts(env),
		registry.SetUpRegistry(env),
		containerruntime.InstallRuntime(env),
		kubeadm.InstallKubernetes(env),
		etcd.SetUpMembers(env),
		containerruntime.ImportImages(env),
		etcd.WaitForEtcd(env),
		kubeadm.PrepareEncryption(env),
		kubeadm.InitControlPlane(env),
	}
}

// joinModules returns the modules that join all nodes to the cluster. New nodes join after the
// given steps.
func joinModules(env module.Env, p Parts, after ...string) []engine.Module {
	return []engine.Module{
		clusterstate.SaveState(env, kubeadm.KeyAdminConf, p.Records, p.Owner),
		endpoint.SetUpEndpoint(env),
		kubeadm.JoinNodes(env, after...),
		endpoint.SetUpKubeVIP(env),
		kubeadm.EnsureKubeletRunning(env),
	}
}

func finishModules(env module.Env) []engine.Module {
	return []engine.Module{
		dns.ConfigureCoreDNS(env),
		network.InstallNetwork(env),
		nodes.SetUpNodes(env),
		kubeadm.ApproveKubeletCerts(env),
		certs.EnableAutoRenewal(env),
		etcdbackup.ScheduleSnapshots(env),
	}
}

// Renew renews certificates of a cluster, whose API may be down.
func Renew(env module.Env, p Parts, w certs.Wish) engine.Pipeline {
	m := []engine.Module{
		etcd.RenewClientCerts(env, w.Renewal),
		certs.RenewCerts(env, w),
		clusterstate.SaveKubeconfig(env, certs.KeyAdmin, p.Records),
	}
	switch {
	case len(w.Readmit) > 0:
		m = append(m, kubeadm.ReadmitExpiredNodes(env, w.Readmit))
	case w.Continues:
		m = append(m, kubeadm.RevokeJoinTokens(env))
	}
	return engine.Pipeline{Kind: "renew-certs", Modules: m}
}

// RotateCA rotates a CA or the service account key.
func RotateCA(env module.Env, p Parts, r certs.Rotations) engine.Pipeline {
	if r.Cluster.From != "" {
		return engine.Pipeline{Kind: "rotate-ca", Modules: rotateCluster(env, p, r.Cluster)}
	}
	m := []engine.Module{kubeadm.ConnectAPI(env), certs.RotateAccounts(env, r.Accounts)}
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
	env.IsRunning = true
	around := certs.RotationOps{
		ChangeSigner:   func(h *engine.Host, apart bool) (op.List, error) { return kubeadm.ChangeSigner(env, h, apart) },
		RerunCAPhases:  func(h *engine.Host) op.List { return kubeadm.RerunCAPhases(env, h) },
		ReloadKubelet:  func(h *engine.Host, files ...string) op.Unit { return kubeadm.ReloadKubelet(env, h, files...) },
		ReloadBalancer: func(h *engine.Host) op.List { return endpoint.ReloadBalancer(env, h) },
	}
	x := certs.RotateCluster(env, r, around)
	return []engine.Module{
		x.CreateCA,
		kubeadm.ConnectAPIWithBothCAs(env, certs.StepCACreated),
		x.SignWithNewCA,
		keepKubeconfig(certs.StepKeptBoth, r.Everywhere, clusterstate.SaveKubeconfig(env, certs.KeyAdminBoth, p.Records)),
		keepKubeconfig(certs.StepKept, r.Everywhere, clusterstate.SaveKubeconfig(env, certs.KeyAdmin, p.Records), certs.StepKeptBoth),
		kubeadm.ReadmitNodesWithNewCA(env, certs.StepSigned, r.Readmit, r.RemoveOldCredentials(env)),
		x.DropOldCA,
		keepKubeconfig(certs.StepKeptLast, r.HasBegun, clusterstate.SaveKubeconfig(env, certs.KeyAdminLast, p.Records)),
		kubeadm.ConnectAPIWithNewCA(env, certs.StepDropped),
		x.EndRotation,
	}
}

// keepKubeconfig makes a module save the kubeconfig of the administrator in a given step, after
// other steps.
func keepKubeconfig(step string, when func(*engine.Scope) bool, m engine.Module, after ...string) engine.Module {
	m.Tasks[0].ID, m.Tasks[0].When, m.Tasks[0].Needs = step, when, after
	return m
}

// InitOS prepares hosts and installs nothing.
func InitOS(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "init-os", Modules: []engine.Module{hostprep.PrepareHosts(env)}}
}

// InitRegistry sets up the private registry on its host.
func InitRegistry(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Kind: "init-registry", Modules: []engine.Module{bundle.PrepareBundle(p.Bundle), registry.SetUpRegistry(env)}}
}

// Defrag defragments the databases of etcd; won is called with the sizes.
func Defrag(env module.Env, won etcdbackup.ReclaimedFunc) engine.Pipeline {
	return engine.Pipeline{Kind: "etcd-defrag", Modules: []engine.Module{etcdbackup.DefragMembers(env, won)}}
}

// RestoreEtcd restores the data of etcd from a backup set.
func RestoreEtcd(env module.Env, from etcdbackup.Source) engine.Pipeline {
	return engine.Pipeline{Kind: "etcd-restore", Modules: []engine.Module{etcdbackup.RestoreData(env, from)}}
}

// RescueEtcd rebuilds etcd with one member from the data of a surviving member.
func RescueEtcd(env module.Env, from etcdbackup.Source) engine.Pipeline {
	return engine.Pipeline{Kind: "etcd-rescue", Modules: []engine.Module{etcdbackup.RescueMember(env, from)}}
}

// Delete removes a cluster from its hosts and restores the hosts.
func Delete(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "delete", Modules: []engine.Module{
		hooks.RunHooks(env, v1alpha1.HookPreDelete),
		reset.ResetHosts(env),
	}}
}

// EndJoin revokes the join tokens after an operation that did not complete.
func EndJoin(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "end-join", Modules: []engine.Module{kubeadm.RevokeJoinTokens(env)}}
}
