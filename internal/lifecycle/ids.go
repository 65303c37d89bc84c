package lifecycle

import (
	"slipway.dev/slipway/internal/module/kubeadm"
	"slipway.dev/slipway/internal/node/op"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idClusterExists     = "cluster-exists"
	idBundleVersion     = "bundle-version"
	idSecretUnreadable  = "secret-unreadable" // as in package spec
	idCheckFailed       = "check-failed"
	idPlanChanged       = "plan-changed" // as in package cli
	idPlanNoPassword    = "plan-without-password"
	idNothingUnfinished = "nothing-unfinished"
	idUnknownOperation  = "unknown-operation"
	idSpecChanged       = "spec-changed"
	idNoWayBack         = "no-way-back"
	idHostLeft          = "host-left-behind"
	idNothingRunning    = "nothing-running"
	idRunsElsewhere     = "runs-elsewhere"
	idNotSlipway        = "not-slipway"
	idNotCreated        = "not-created"
	idNoNewHost         = "no-new-host"
	idLastControlPlane  = "last-control-plane"
	idControlPlaneLost  = "control-plane-lost"
	idEtcdLost          = "etcd-lost"
	idNotServing        = "control-plane-not-serving"
	idHostRenamed       = "host-renamed"
	idHostLeaves        = "host-leaves"
	idHostReturned      = "host-returned"
	idFileDiffers       = "file-differs"
	idHostOnRecord      = "host-on-record"
	idHostTwice         = "duplicate-address"
	idAddressFixed      = "address-fixed"
	idEndpointMode      = "endpoint-mode" // as in package spec
	idRegistryInUse     = "registry-in-use"
	idMigrationAlone    = "runtime-change-alone"
	idUpgradeHow        = "upgrade-invalid"
	idUpgradeUnfinished = "upgrade-unfinished"
	idUpgradeCommitted  = "upgrade-committed"
	idKindsInUse        = "new-kinds-in-use"
	idReverted          = "settings-reverted"
	idRevertFailed      = "revert-failed"
)

// Ids of cluster queries and of work on hosts.
const (
	idAmbiguous           = "ambiguous-operation"
	idAuthorityNoKey      = op.IDAuthorityNoKey
	idUnknownCertificate  = "unknown-certificate"
	idBeyondAuthority     = "validity-beyond-authority"
	idUnknownRotation     = "unknown-authority"
	idRotationKey         = "account-key-missing"
	idRotationCert        = "authority-missing"
	idKeyElsewhere        = "account-key-elsewhere"
	idAuthorityElsewhere  = "authority-elsewhere"
	idBackupNotThere      = "backup-not-there"
	idCopyTarget          = "backup-copy-unreachable"
	idOperationUnfinished = "operation-unfinished"
	idEncryptionAlone     = kubeadm.IDEncryptionAlone
	idEncryptionLost      = kubeadm.IDEncryptionLost
)

// Ids of etcd and its backups. The ids of package backup are used unchanged.
const (
	idEtcdUnhealthy = op.IDEtcdUnhealthy
	idBackupFailed  = "backup-failed"
	idDrillFailed   = "drill-failed"

	idRescueUnknown    = "rescue-unknown-host"
	idRescueUnfinished = "rescue-unfinished"
	idRescueAnswers    = "rescue-host-answers"
	idRescueSilent     = "rescue-host-silent"
	idRescueNotNeeded  = "rescue-not-needed"
	idRescueFrom       = "rescue-from"
	idRescueNoData     = "rescue-no-data"
	idRescueClusters   = "rescue-several-clusters"
	idBackupRoom       = "backup-no-room"
	idBackupKeys       = "backup-without-keys"
	idBackupNoData     = "backup-without-data"
	idBackupOther      = "backup-other-cluster"
	idBackupRenamed    = "backup-renamed"
	idBadSigner        = "bad-signer"
	idWithKeys         = "keys-of-unverified"
	idSignerAdopted    = "backup-key-adopted"
	idBackupVersion    = "backup-version"
	idBackupChanged    = "backup-changed"
	idBackupEncryption = "backup-encryption-off"
	idBadRecipient     = "invalid-recipient"
)
