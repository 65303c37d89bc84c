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
	Bundle bundle.Source
	State  clusterstate.StateStore
	// Owner identifies the manager of the cluster: this one.
	Owner string
	// Backup takes a backup set; only upgrades use it.
	Backup upgrade.BackupFunc
	// Addons are the add-ons of the cluster, in the order of their installation.
	Addons []addonsource.Addon
	// KeepAddons leaves the add-ons of the cluster unchanged during a rollback.
	KeepAddons bool
	// PruneBundles removes files of earlier bundles from hosts when everything else is done.
	PruneBundles bool
}

// modules is a part of a pipeline.
type modules = []engine.Module

// CreateCluster creates a cluster.
func CreateCluster(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Modules: slices.Concat(
		modules{
			hooks.RunHooks(env, v1alpha1.HookPreInstall),
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
			hooks.RunHooks(env, v1alpha1.HookPostControlPlane),
			kubeadm.RemoveLostMembers(env),
		},
		joinModules(env, p),
		modules{kubeadm.VerifyEncryption(env)},
		finishModules(env),
		modules{addon.InstallAddons(p.Addons), hooks.RunHooks(env, v1alpha1.HookPostInstall)},
	)}
}

// ApplyCluster makes an existing cluster match its description. Hosts that are no longer in the
// description are removed after new hosts can take their pods. Settings of hosts are
// changed one host after the other; the components that serve the whole cluster follow.
func ApplyCluster(env module.Env, p Parts) (engine.Pipeline, error) {
	env.IsRunning = true
	rollOut, err := rollOutSettings(env)
	if err != nil {
		return engine.Pipeline{}, err
	}
	m := restrictTo(env.IsStaying, slices.Concat(
		hooksOfChange(env, env.IsNew, v1alpha1.HookPreInstall),
		modules{bundle.PrepareBundle(p.Bundle), registry.SetUpRegistry(env)},
		rollOut,
		upgrade.After(kubeadm.StepKubeletSettings, etcd.SetUpMembers(env)),
		modules{containerruntime.ImportImages(env), etcd.WaitForEtcd(env)},
		upgrade.After(kubeadm.StepKubeletSettings, kubeadm.PrepareEncryption(env), kubeadm.InitControlPlane(env)),
		modules{kubeadm.ReuploadConfig(env), kubeadm.RemoveLostMembers(env), noderemoval.ReplaceNodes(env)},
		hooksOfChange(env, env.IsNew, v1alpha1.HookPostControlPlane),
		joinModules(env, p, kubeadm.StepConfigUploaded),
		modules{kubeadm.VerifyEncryption(env), kubeadm.RestoreAddons(env)},
		finishModules(env),
		modules{endpoint.PruneEndpoints(env)},
	))
	m = slices.Concat(m,
		removalModules(env, p),
		modules{addon.InstallAddons(p.Addons)},
		hooksOfChange(env, env.IsNew, v1alpha1.HookPostInstall),
	)
	if p.PruneBundles {
		m = append(m, runLast(m, containerruntime.PruneBundles(env)))
	}
	return engine.Pipeline{Modules: m}, nil
}

// rollOutSettings returns the modules that change the settings of one host after the
// other. If kubelets lose their state, their nodes are drained.
func rollOutSettings(env module.Env) (modules, error) {
	steps := modules{
		hostprep.PrepareHosts(env),
		containerruntime.InstallRuntime(env),
		kubeadm.InstallKubernetes(env),
		kubeadm.RestartKubeletAndApproveCert(env),
	}
	var m modules
	if len(env.KubeletStates) > 0 {
		drain, uncordon := upgrade.DrainAroundChange(env, kubeadm.LosesKubeletState(env))
		steps = slices.Concat(modules{drain}, steps, modules{uncordon})
		m = modules{kubeadm.ConnectAPIBeforeChange(env)}
	}
	rollOut, err := upgrade.RollOutSettings(env, steps...)
	return append(m, rollOut), err
}

// removalModules returns the modules that remove hosts from a running cluster.
func removalModules(env module.Env, p Parts) modules {
	if len(env.Leaving) == 0 {
		return nil
	}
	return slices.Concat(
		runHooksEarly(hooksOfChange(env, env.IsReset, v1alpha1.HookPreDelete)),
		modules{
			endpoint.ReleaseAddress(env),
			noderemoval.DrainNodes(env),
			noderemoval.StopServers(env),
			noderemoval.RemoveMembers(env),
		},
		restrictTo(env.IsReset, modules{reset.CleanHosts(env, "leave.member")}),
		modules{noderemoval.DeleteNodes(env), clusterstate.RemoveHosts(env, p.State, p.Owner)},
	)
}

// ChangeRuntime changes the container runtime of a cluster. Nodes change one after the other as
// in an upgrade, and nothing of the previous runtime remains on them. The kubeadm
// configuration, which names the runtime, follows.
func ChangeRuntime(env module.Env, p Parts) (engine.Pipeline, error) {
	// Everything on a node is stopped and restarted meanwhile; the modules wait for it.
	rollOut, err := upgrade.RollOut(env,
		reset.RemoveRuntime(env),
		containerruntime.InstallRuntime(env),
		containerruntime.ImportImages(env),
		kubeadm.InstallKubernetes(env),
		kubeadm.EnsureKubeletRunning(env),
		kubeadm.WaitControlPlaneRestarted(env),
		nodes.WaitReady(env),
		kubeadm.ApproveKubeletCerts(env),
	)
	if err != nil {
		return engine.Pipeline{}, err
	}
	env.IsRunning = true
	return engine.Pipeline{Modules: slices.Concat(
		modules{
			bundle.PrepareBundle(p.Bundle),
			kubeadm.ConnectAPI(env),
			registry.SetUpRegistry(env),
			containerruntime.PrefetchImages(env),
			rollOut,
		},
		// Everything that lists all control planes follows as well, because one may have
		// been force-removed.
		upgrade.AfterNodes(
			kubeadm.UpdateControlPlane(env),
			clusterstate.SaveState(env, kubeadm.KeyAdminConf, p.State, p.Owner),
			endpoint.SetUpEndpoint(env),
			kubeadm.JoinNodes(env),
			nodes.ConfigureNodes(env),
			certs.EnableAutoRenewal(env),
			etcdbackup.ScheduleSnapshots(env),
		),
	)}, nil
}

// UpgradeCluster changes a cluster to another version of Kubernetes: first the nodes, then the
// components in the cluster that all nodes use. A backup is taken before any host is
// changed. Programs and images are on the hosts before their nodes are drained.
func UpgradeCluster(env module.Env, p Parts) (engine.Pipeline, error) {
	rollOut, err := upgrade.RollOut(env,
		containerruntime.InstallRuntime(env),
		kubeadm.InstallKubernetes(env),
		kubeadm.UpgradeNode(env),
		kubeadm.EnsureKubeletRunning(env),
		kubeadm.WaitStable(env),
		nodes.WaitReady(env),
		kubeadm.ApproveKubeletCerts(env),
	)
	if err != nil {
		return engine.Pipeline{}, err
	}
	return engine.Pipeline{Modules: pruneAtEnd(env, slices.Concat(
		modules{bundle.PrepareBundle(p.Bundle), kubeadm.ConnectAPI(env), upgrade.BackUpCluster(env, p.Backup)},
		upgrade.AfterBackup(
			bundle.PrefetchPrograms(containerruntime.InstallRuntime(env), kubeadm.InstallKubernetes(env), etcd.SetUpMembers(env)),
			containerruntime.ImportImages(env),
			hooks.RunHooks(env, v1alpha1.HookPreUpgrade),
			rollOut,
		),
		upgrade.AfterNodes(finishModulesForVersion(env, p)...),
		upgrade.AfterNodes(
			registry.SetUpRegistry(env),
			addon.InstallAddons(p.Addons),
			hooks.RunHooks(env, v1alpha1.HookPostUpgrade),
		),
	))}, nil
}

// RollbackUpgrade rolls back an upgrade that is not complete, with the same steps in reverse order:
// kube-proxy, then workers, then control planes. On a control plane, the kubelet goes
// before the components. The components that all nodes use follow, and add-ons come last.
func RollbackUpgrade(env module.Env, p Parts) (engine.Pipeline, error) {
	env.Upgrade.IsRollback = true
	rollOut, err := upgrade.RollOut(env,
		containerruntime.InstallRuntime(env),
		kubeadm.InstallKubernetes(env),
		kubeadm.UpdateKubeletSettings(env),
		kubeadm.EnsureKubeletRunning(env),
		kubeadm.UpgradeControlPlane(env),
		kubeadm.WaitStable(env),
		nodes.WaitReady(env),
		kubeadm.ApproveKubeletCerts(env),
	)
	if err != nil {
		return engine.Pipeline{}, err
	}
	m := slices.Concat(
		modules{
			bundle.PrepareBundle(p.Bundle),
			kubeadm.ConnectAPI(env),
			containerruntime.ImportImages(env),
			upgrade.RollBackProxy(env),
		},
		upgrade.After(upgrade.StepProxy, rollOut),
		upgrade.AfterNodes(kubeadm.UploadConfig(env)),
		upgrade.AfterNodes(upgrade.AfterCoreDNS(finishModulesForVersion(env, p, upgrade.RollBackCoreDNS(env))...)...),
	)
	if !p.KeepAddons {
		m = append(m, upgrade.AfterNodes(addon.InstallAddons(p.Addons))...)
	}
	return engine.Pipeline{Modules: pruneAtEnd(env, m)}, nil
}

// RebootNodes reboots hosts in the order of an upgrade. Each host must serve again before
// the next one is drained.
func RebootNodes(env module.Env) (engine.Pipeline, error) {
	env.IsRunning = true
	rollOut, err := upgrade.RollOut(env,
		upgrade.RebootHosts(env),
		kubeadm.EnsureKubeletRunning(env),
		kubeadm.WaitControlPlaneRestarted(env),
		nodes.WaitReady(env),
	)
	if err != nil {
		return engine.Pipeline{}, err
	}
	return engine.Pipeline{Modules: append(
		modules{kubeadm.ConnectAPI(env)},
		restrictTo(env.IsRebooted, modules{rollOut})...,
	)}, nil
}

// ForgetNodes removes lost hosts from a cluster and does nothing else.
func ForgetNodes(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Modules: withoutOutsideNeeds(
		kubeadm.ConnectAPI(env),
		noderemoval.DrainNodes(env),
		noderemoval.StopServers(env),
		noderemoval.RemoveMembers(env),
		noderemoval.DeleteNodes(env),
		clusterstate.RemoveHosts(env, p.State, p.Owner),
	)}
}

// ForgetNodesFromState removes lost hosts only from the state, for a restore or rescue of etcd, when the
// API may be down. The restored etcd gets its members from the hosts in the state.
func ForgetNodesFromState(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Modules: modules{clusterstate.RemoveHostsFromState(env, p.State)}}
}

// joinModules returns the modules that join all nodes to the cluster. New nodes join after
// the given steps.
func joinModules(env module.Env, p Parts, after ...string) modules {
	return modules{
		clusterstate.SaveState(env, kubeadm.KeyAdminConf, p.State, p.Owner),
		endpoint.SetUpEndpoint(env),
		kubeadm.JoinNodes(env, after...),
		endpoint.SetUpKubeVIP(env),
		kubeadm.EnsureKubeletRunning(env),
	}
}

// finishModules returns the modules that run when all nodes have joined.
func finishModules(env module.Env) modules {
	return modules{
		dns.ConfigureCoreDNS(env),
		network.InstallNetwork(env),
		nodes.SetUpNodes(env),
		kubeadm.ApproveKubeletCerts(env),
		certs.EnableAutoRenewal(env),
		etcdbackup.ScheduleSnapshots(env),
	}
}

// finishModulesForVersion returns the modules that bring the components of the cluster to
// a version; before comes before the add-ons of kubeadm.
func finishModulesForVersion(env module.Env, p Parts, before ...engine.Module) modules {
	return slices.Concat(etcdModules(env), before, modules{
		kubeadm.UpgradeAddons(env),
		clusterstate.SaveState(env, kubeadm.KeyAdminConf, p.State, p.Owner),
		endpoint.SetUpEndpoint(env),
		dns.ConfigureCoreDNS(env),
		network.InstallNetwork(env),
		nodes.ConfigureNodes(env),
		upgrade.WaitDaemonSets(env),
		certs.EnableAutoRenewal(env),
		etcdbackup.ScheduleSnapshots(env),
	})
}

// etcdModules returns the modules that bring etcd to a version; in a rollback, after etcd
// accepts the downgrade.
func etcdModules(env module.Env) modules {
	m := modules{etcd.SetUpMembers(env), kubeadm.UpgradeEtcd(env)}
	if !env.Upgrade.IsRollback {
		return m
	}
	return append(modules{etcd.PrepareDowngrade(env)}, upgrade.After(etcd.StepDowngrade, m...)...)
}

// RenewCerts renews certificates of a cluster, whose API may be down.
func RenewCerts(env module.Env, p Parts, w certs.RenewalRequest) engine.Pipeline {
	m := modules{
		etcd.RenewClientCerts(env, w.Renewal),
		certs.RenewCerts(env, w),
		clusterstate.SaveKubeconfig(env, certs.KeyAdmin, p.State),
	}
	switch {
	case len(w.Readmit) > 0:
		m = append(m, kubeadm.ReadmitExpiredNodes(env, w.Readmit))
	case w.Continues:
		m = append(m, kubeadm.RevokeJoinTokens(env))
	}
	return engine.Pipeline{Modules: m}
}

// RotateCA rotates a CA or the service account key.
func RotateCA(env module.Env, p Parts, r certs.Rotations) engine.Pipeline {
	if r.Cluster.From != "" {
		return engine.Pipeline{Modules: rotateCluster(env, p, r.Cluster)}
	}
	m := modules{kubeadm.ConnectAPI(env), certs.RotateAccounts(env, r.Accounts)}
	if r.FrontProxy.From != "" {
		m = append(m, certs.RotateFrontProxy(env, r.FrontProxy))
	}
	if r.Etcd.From != "" {
		m = append(m, certs.RotateEtcd(env, r.Etcd))
	}
	return engine.Pipeline{Modules: m}
}

// rotateCluster rotates the cluster CA.
func rotateCluster(env module.Env, p Parts, r certs.ClusterRotation) modules {
	env.IsRunning = true
	ops := certs.RotationOps{
		ChangeSigner:   func(h *engine.Host, apart bool) (op.List, error) { return kubeadm.ChangeSigner(env, h, apart) },
		RerunCAPhases:  func(h *engine.Host) op.List { return kubeadm.RerunCAPhases(env, h) },
		ReloadKubelet:  func(h *engine.Host, files ...string) op.Unit { return kubeadm.ReloadKubelet(env, h, files...) },
		ReloadBalancer: func(h *engine.Host) op.List { return endpoint.ReloadBalancer(env, h) },
	}
	rotation := certs.RotateCluster(env, r, ops)
	return modules{
		rotation.CreateCA,
		kubeadm.ConnectAPIWithBothCAs(env, certs.StepCACreated),
		rotation.SignWithNewCA,
		keepKubeconfig(certs.StepKeptBoth, r.IsOldTrustedEverywhere, clusterstate.SaveKubeconfig(env, certs.KeyAdminBoth, p.State)),
		keepKubeconfig(certs.StepKept, r.IsOldTrustedEverywhere, clusterstate.SaveKubeconfig(env, certs.KeyAdmin, p.State), certs.StepKeptBoth),
		kubeadm.ReadmitNodesWithNewCA(env, certs.StepSigned, r.Readmit, r.RemoveOldCredentials(env)),
		rotation.DropOldCA,
		keepKubeconfig(certs.StepKeptLast, r.HasBegun, clusterstate.SaveKubeconfig(env, certs.KeyAdminLast, p.State)),
		kubeadm.ConnectAPIWithNewCA(env, certs.StepDropped),
		rotation.EndRotation,
	}
}

// InitOS prepares hosts and installs nothing.
func InitOS(env module.Env) engine.Pipeline {
	return engine.Pipeline{Modules: modules{hostprep.PrepareHosts(env)}}
}

// InitRegistry sets up the private registry on its host.
func InitRegistry(env module.Env, p Parts) engine.Pipeline {
	return engine.Pipeline{Modules: modules{bundle.PrepareBundle(p.Bundle), registry.SetUpRegistry(env)}}
}

// DefragEtcd defragments the databases of etcd; won is called with the sizes.
func DefragEtcd(env module.Env, won etcdbackup.ReclaimedFunc) engine.Pipeline {
	return engine.Pipeline{Modules: modules{etcdbackup.DefragMembers(env, won)}}
}

// SnapshotEtcd makes a backup set.
func SnapshotEtcd(take etcdbackup.SetFunc) engine.Pipeline {
	return engine.Pipeline{Modules: modules{etcdbackup.TakeSet(take)}}
}

// DrillEtcd tests the restore of a backup set.
func DrillEtcd(test etcdbackup.SetFunc) engine.Pipeline {
	return engine.Pipeline{Modules: modules{etcdbackup.TestSet(test)}}
}

// RestoreEtcd restores the data of etcd from a backup set.
func RestoreEtcd(env module.Env, from etcdbackup.Source) engine.Pipeline {
	return engine.Pipeline{Modules: modules{etcdbackup.RestoreData(env, from)}}
}

// RescueEtcd rebuilds etcd with one member from the data of a surviving member.
func RescueEtcd(env module.Env, from etcdbackup.Source) engine.Pipeline {
	return engine.Pipeline{Modules: modules{etcdbackup.RescueMember(env, from)}}
}

// DeleteCluster removes a cluster from its hosts and restores the hosts.
func DeleteCluster(env module.Env) engine.Pipeline {
	return engine.Pipeline{Modules: modules{
		hooks.RunHooks(env, v1alpha1.HookPreDelete),
		reset.CleanHosts(env),
	}}
}

// RevokeJoinTokens revokes the join tokens after an operation that did not complete.
func RevokeJoinTokens(env module.Env) engine.Pipeline {
	return engine.Pipeline{Kind: "end-join", Modules: modules{kubeadm.RevokeJoinTokens(env)}}
}
