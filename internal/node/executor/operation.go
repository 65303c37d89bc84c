//go:build linux

package executor

import (
	"context"

	"slipway.dev/slipway/internal/node/op"
)

// An operation executes one node operation on this host. It is also a changer, a
// reverter and a user of paths, if it has these methods.
type operation interface {
	// Check compares the host with the operation. It only reads.
	Check(ctx context.Context, s *session) (verdict, error)
}

// A changer is an operation that does not only read.
type changer interface {
	// Apply makes the change that Check found, and can be repeated. It is called under
	// the apply lock, except for op.Wait. res has the result of the check.
	Apply(ctx context.Context, s *session, res *op.Result) error
}

// A pathUser is an operation with paths that must be clean and absolute.
type pathUser interface {
	Paths() []string
}

// A reverter is an operation whose changes can be reverted.
type reverter interface {
	// LedgerEntries returns the subjects that Apply saves in the ledger. ok is false if
	// they are not known before: the changes could be reverted as unneeded.
	LedgerEntries() (entries []subject, ok bool)
}

// operations has the executor of each kind.
var operations = map[op.Kind]func(op.Op) operation{
	op.KindFile:               func(o op.Op) operation { return &fileOp{o: o.(op.File)} },
	op.KindDir:                func(o op.Op) operation { return &dirOp{o: o.(op.Dir)} },
	op.KindLink:               func(o op.Op) operation { return &linkOp{o: o.(op.Link)} },
	op.KindAbsent:             func(o op.Op) operation { return &absentOp{o: o.(op.Absent)} },
	op.KindBlock:              func(o op.Op) operation { return &blockOp{o: o.(op.Block)} },
	op.KindSysctl:             func(o op.Op) operation { return &sysctlOp{o: o.(op.Sysctl)} },
	op.KindKernelModules:      func(o op.Op) operation { return &kernelModulesOp{o: o.(op.KernelModules)} },
	op.KindSwapOff:            func(o op.Op) operation { return &swapOffOp{o: o.(op.SwapOff)} },
	op.KindUnit:               func(o op.Op) operation { return &unitOp{o: o.(op.Unit)} },
	op.KindUnitStarted:        func(o op.Op) operation { return &unitStartedOp{o: o.(op.UnitStarted)} },
	op.KindHostname:           func(o op.Op) operation { return &hostnameOp{o: o.(op.Hostname)} },
	op.KindTimezone:           func(o op.Op) operation { return &timezoneOp{o: o.(op.Timezone)} },
	op.KindTimeSync:           func(o op.Op) operation { return &timeSyncOp{o: o.(op.TimeSync)} },
	op.KindUser:               func(o op.Op) operation { return &userOp{o: o.(op.User)} },
	op.KindFetchBlob:          func(o op.Op) operation { return &fetchBlobOp{o: o.(op.FetchBlob)} },
	op.KindUnpack:             func(o op.Op) operation { return &unpackOp{o: o.(op.Unpack)} },
	op.KindImportImages:       func(o op.Op) operation { return &importImagesOp{o: o.(op.ImportImages)} },
	op.KindRetire:             func(o op.Op) operation { return &retireOp{o: o.(op.Retire)} },
	op.KindExec:               func(o op.Op) operation { return &execOp{o: o.(op.Exec)} },
	op.KindWait:               func(o op.Op) operation { return &waitOp{o: o.(op.Wait)} },
	op.KindReadFile:           func(o op.Op) operation { return &readFileOp{o: o.(op.ReadFile)} },
	op.KindFacts:              func(o op.Op) operation { return &factsOp{o: o.(op.Facts)} },
	op.KindReset:              func(o op.Op) operation { return &resetOp{o: o.(op.Reset)} },
	op.KindPutBack:            func(o op.Op) operation { return &putBackOp{o: o.(op.PutBack)} },
	op.KindRestore:            func(o op.Op) operation { return &restoreOp{o: o.(op.Restore)} },
	op.KindEtcdMember:         func(o op.Op) operation { return &etcdMemberOp{o: o.(op.EtcdMember)} },
	op.KindEtcdRemove:         func(o op.Op) operation { return &etcdRemoveOp{o: o.(op.EtcdRemove)} },
	op.KindEtcdSnapshot:       func(o op.Op) operation { return &etcdSnapshotOp{o: o.(op.EtcdSnapshot)} },
	op.KindEtcdDefrag:         func(o op.Op) operation { return &etcdDefragOp{o: o.(op.EtcdDefrag)} },
	op.KindEtcdDowngrade:      func(o op.Op) operation { return &etcdDowngradeOp{o: o.(op.EtcdDowngrade)} },
	op.KindEtcdRestore:        func(o op.Op) operation { return &etcdRestoreOp{o: o.(op.EtcdRestore)} },
	op.KindEtcdDrill:          func(o op.Op) operation { return &etcdDrillOp{o: o.(op.EtcdDrill)} },
	op.KindEtcdSalvage:        func(o op.Op) operation { return &etcdSalvageOp{o: o.(op.EtcdSalvage)} },
	op.KindEtcdValues:         func(o op.Op) operation { return &etcdValuesOp{o: o.(op.EtcdValues)} },
	op.KindCertificate:        func(o op.Op) operation { return &certificateOp{o: o.(op.Certificate)} },
	op.KindCertificateRequest: func(o op.Op) operation { return &certificateRequestOp{o: o.(op.CertificateRequest)} },
	op.KindPodLogs:            func(o op.Op) operation { return &podLogsOp{o: o.(op.PodLogs)} },
	op.KindPodLog:             func(o op.Op) operation { return &podLogOp{o: o.(op.PodLog)} },
	op.KindPodHosts:           func(o op.Op) operation { return &podHostsOp{o: o.(op.PodHosts)} },
	op.KindCertificates:       func(o op.Op) operation { return &certificatesOp{o: o.(op.Certificates)} },
	op.KindRenewal:            func(o op.Op) operation { return &renewalOp{o: o.(op.Renewal)} },
	op.KindPodRestart:         func(o op.Op) operation { return &podRestartOp{o: o.(op.PodRestart)} },
	op.KindReload:             func(o op.Op) operation { return &reloadOp{o: o.(op.Reload)} },
	op.KindKept:               func(o op.Op) operation { return &keptOp{o: o.(op.Kept)} },
	op.KindPrivate:            func(o op.Op) operation { return &privateOp{o: o.(op.Private)} },
	op.KindAsk:                func(o op.Op) operation { return &askOp{o: o.(op.Ask)} },
	op.KindProxyChanges:       func(o op.Op) operation { return &proxyChangesOp{o: o.(op.ProxyChanges)} },
	op.KindSelf:               func(o op.Op) operation { return &selfOp{o: o.(op.Self)} },
	op.KindKeyPair:            func(o op.Op) operation { return &keyPairOp{o: o.(op.KeyPair)} },
	op.KindKubeconfigCA:       func(o op.Op) operation { return &kubeconfigCAOp{o: o.(op.KubeconfigCA)} },
	op.KindRegistryServes:     func(o op.Op) operation { return &registryServesOp{o: o.(op.RegistryServes)} },
	op.KindPushImages:         func(o op.Op) operation { return &pushImagesOp{o: o.(op.PushImages)} },
	op.KindServing:            func(o op.Op) operation { return &servingOp{o: o.(op.Serving)} },
	op.KindCopies:             func(o op.Op) operation { return &copiesOp{o: o.(op.Copies)} },
}

// operationOf returns the executor of an operation.
func operationOf(o op.Op) (operation, error) {
	create, ok := operations[o.Kind()]
	if !ok {
		return nil, invalid("this helper does not support operations of kind %q", o.Kind())
	}
	return create(o), nil
}
