//go:build linux

package executor

import (
	"slipway.dev/slipway/internal/node/executor/autobackup"
	"slipway.dev/slipway/internal/node/executor/certs"
	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/facts"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/images"
	"slipway.dev/slipway/internal/node/executor/pods"
	"slipway.dev/slipway/internal/node/executor/program"
	"slipway.dev/slipway/internal/node/executor/reset"
	"slipway.dev/slipway/internal/node/executor/system"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/op"
)

// operations has the executor of each kind.
var operations = map[op.Kind]func(op.Op) host.Operation{
	op.KindFile:                func(o op.Op) host.Operation { return &hostfs.FileOp{Op: o.(op.File)} },
	op.KindDir:                 func(o op.Op) host.Operation { return &hostfs.DirOp{Op: o.(op.Dir)} },
	op.KindLink:                func(o op.Op) host.Operation { return &hostfs.LinkOp{Op: o.(op.Link)} },
	op.KindAbsent:              func(o op.Op) host.Operation { return &hostfs.AbsentOp{Op: o.(op.Absent)} },
	op.KindBlock:               func(o op.Op) host.Operation { return &hostfs.BlockOp{Op: o.(op.Block)} },
	op.KindSysctl:              func(o op.Op) host.Operation { return &system.SysctlOp{Op: o.(op.Sysctl)} },
	op.KindLimits:              func(o op.Op) host.Operation { return &system.LimitsOp{Op: o.(op.Limits)} },
	op.KindKernelModules:       func(o op.Op) host.Operation { return &system.KernelModulesOp{Op: o.(op.KernelModules)} },
	op.KindSwapOff:             func(o op.Op) host.Operation { return &system.SwapOffOp{Op: o.(op.SwapOff)} },
	op.KindUnit:                func(o op.Op) host.Operation { return &systemd.UnitOp{Op: o.(op.Unit)} },
	op.KindUnitStarted:         func(o op.Op) host.Operation { return &systemd.UnitStartedOp{Op: o.(op.UnitStarted)} },
	op.KindHostname:            func(o op.Op) host.Operation { return &system.HostnameOp{Op: o.(op.Hostname)} },
	op.KindTimezone:            func(o op.Op) host.Operation { return &system.TimezoneOp{Op: o.(op.Timezone)} },
	op.KindTimeSync:            func(o op.Op) host.Operation { return &system.TimeSyncOp{Op: o.(op.TimeSync)} },
	op.KindUser:                func(o op.Op) host.Operation { return &system.UserOp{Op: o.(op.User)} },
	op.KindReboot:              func(o op.Op) host.Operation { return &systemd.RebootOp{Op: o.(op.Reboot)} },
	op.KindFetchBlob:           func(o op.Op) host.Operation { return &hostfs.FetchBlobOp{Op: o.(op.FetchBlob)} },
	op.KindUnpack:              func(o op.Op) host.Operation { return &hostfs.UnpackOp{Op: o.(op.Unpack)} },
	op.KindImportImages:        func(o op.Op) host.Operation { return &images.ImportImagesOp{Op: o.(op.ImportImages)} },
	op.KindPrune:               func(o op.Op) host.Operation { return &images.PruneOp{Op: o.(op.Prune)} },
	op.KindExec:                func(o op.Op) host.Operation { return &program.ExecOp{Op: o.(op.Exec)} },
	op.KindWait:                func(o op.Op) host.Operation { return &health.WaitOp{Op: o.(op.Wait)} },
	op.KindReadFile:            func(o op.Op) host.Operation { return &hostfs.ReadFileOp{Op: o.(op.ReadFile)} },
	op.KindFacts:               func(o op.Op) host.Operation { return &facts.ReadOp{Op: o.(op.Facts)} },
	op.KindReset:               func(o op.Op) host.Operation { return &reset.KubernetesOp{Op: o.(op.Reset)} },
	op.KindRevertStep:          func(o op.Op) host.Operation { return &reset.RevertStepOp{Op: o.(op.RevertStep)} },
	op.KindRestoreHost:         func(o op.Op) host.Operation { return &reset.RestoreHostOp{Op: o.(op.RestoreHost)} },
	op.KindEtcdMember:          func(o op.Op) host.Operation { return &etcd.MemberOp{Op: o.(op.EtcdMember)} },
	op.KindEtcdRemove:          func(o op.Op) host.Operation { return &etcd.RemoveOp{Op: o.(op.EtcdRemove)} },
	op.KindEtcdSnapshot:        func(o op.Op) host.Operation { return &etcd.SnapshotOp{Op: o.(op.EtcdSnapshot)} },
	op.KindEtcdDefrag:          func(o op.Op) host.Operation { return &etcd.DefragOp{Op: o.(op.EtcdDefrag)} },
	op.KindEtcdDowngrade:       func(o op.Op) host.Operation { return &etcd.DowngradeOp{Op: o.(op.EtcdDowngrade)} },
	op.KindEtcdRestore:         func(o op.Op) host.Operation { return &etcd.RestoreOp{Op: o.(op.EtcdRestore)} },
	op.KindEtcdRestoreTest:     func(o op.Op) host.Operation { return &etcd.RestoreTestOp{Op: o.(op.EtcdRestoreTest)} },
	op.KindEtcdRecover:         func(o op.Op) host.Operation { return &etcd.RecoverOp{Op: o.(op.EtcdRecover)} },
	op.KindEtcdGet:             func(o op.Op) host.Operation { return &etcd.GetOp{Op: o.(op.EtcdGet)} },
	op.KindCertificate:         func(o op.Op) host.Operation { return &certs.CertificateOp{Op: o.(op.Certificate)} },
	op.KindCertificateRequest:  func(o op.Op) host.Operation { return &certs.CertificateRequestOp{Op: o.(op.CertificateRequest)} },
	op.KindPodLogs:             func(o op.Op) host.Operation { return &pods.PodLogsOp{Op: o.(op.PodLogs)} },
	op.KindPodLog:              func(o op.Op) host.Operation { return &pods.PodLogOp{Op: o.(op.PodLog)} },
	op.KindPodHosts:            func(o op.Op) host.Operation { return &pods.PodHostsOp{Op: o.(op.PodHosts)} },
	op.KindInspectCertificates: func(o op.Op) host.Operation { return &certs.InspectCertificatesOp{Op: o.(op.InspectCertificates)} },
	op.KindRenewCertificate:    func(o op.Op) host.Operation { return &certs.RenewCertificateOp{Op: o.(op.RenewCertificate)} },
	op.KindStaticPodRestart:    func(o op.Op) host.Operation { return &pods.StaticPodRestartOp{Op: o.(op.StaticPodRestart)} },
	op.KindTriggerReload:       func(o op.Op) host.Operation { return &pods.TriggerReloadOp{Op: o.(op.TriggerReload)} },
	op.KindBaselineFile:        func(o op.Op) host.Operation { return &hostfs.BaselineFileOp{Op: o.(op.BaselineFile)} },
	op.KindRootOnly:            func(o op.Op) host.Operation { return &hostfs.RootOnlyOp{Op: o.(op.RootOnly)} },
	op.KindQuery:               func(o op.Op) host.Operation { return &program.QueryOp{Op: o.(op.Query)} },
	op.KindProxyChanges:        func(o op.Op) host.Operation { return &pods.ProxyChangesOp{Op: o.(op.ProxyChanges)} },
	op.KindInstallHelper:       func(o op.Op) host.Operation { return &hostfs.InstallHelperOp{Op: o.(op.InstallHelper)} },
	op.KindKeyPair:             func(o op.Op) host.Operation { return &certs.KeyPairOp{Op: o.(op.KeyPair)} },
	op.KindKubeconfigCA:        func(o op.Op) host.Operation { return &certs.KubeconfigCAOp{Op: o.(op.KubeconfigCA)} },
	op.KindRegistryServes:      func(o op.Op) host.Operation { return &images.RegistryServesOp{Op: o.(op.RegistryServes)} },
	op.KindPushImages:          func(o op.Op) host.Operation { return &images.PushImagesOp{Op: o.(op.PushImages)} },
	op.KindHealthGate:          func(o op.Op) host.Operation { return &systemd.HealthGateOp{Op: o.(op.HealthGate)} },
	op.KindListBackupCopies:    func(o op.Op) host.Operation { return &autobackup.ListBackupCopiesOp{Op: o.(op.ListBackupCopies)} },
}

// operationOf returns the executor of an operation.
func operationOf(o op.Op) (host.Operation, error) {
	create, ok := operations[o.Kind()]
	if !ok {
		return nil, host.Invalid("this helper does not support operations of kind %q", o.Kind())
	}
	return create(o), nil
}
