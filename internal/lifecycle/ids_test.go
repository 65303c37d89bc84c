package lifecycle

import "slipway.dev/slipway/internal/node/op"

// Error ids that packages below this one report.
const (
	idBackupNotThere     = "backup-not-there"
	idCopyTarget         = "backup-copy-unreachable"
	idEtcdUnhealthy      = op.IDEtcdUnhealthy
	idBackupFailed       = "backup-failed"
	idDrillFailed        = "drill-failed"
	idBackupKeys         = "backup-without-keys"
	idBackupNoData       = "backup-without-data"
	idBackupOther        = "backup-other-cluster"
	idBackupRenamed      = "backup-renamed"
	idBadSigner          = "bad-signer"
	idWithKeys           = "keys-of-unverified"
	idBackupVersion      = "backup-version"
	idBackupChanged      = "backup-changed"
	idBadRecipient       = "invalid-recipient"
	idAmbiguous          = "ambiguous-operation"
	idNothingRunning     = "nothing-running"
	idUnknownOperation   = "unknown-operation"
	idRescueUnfinished   = "rescue-unfinished"
	idRescueUnknown      = "rescue-unknown-host"
	idRescueAnswers      = "rescue-host-answers"
	idRescueSilent       = "rescue-host-silent"
	idRescueNotNeeded    = "rescue-not-needed"
	idRescueFrom         = "rescue-from"
	idRescueNoData       = "rescue-no-data"
	idRescueClusters     = "rescue-several-clusters"
	idBundleVersion      = "bundle-version"
	idUnknownRotation    = "unknown-authority"
	idRotationKey        = "account-key-missing"
	idRotationCert       = "authority-missing"
	idAuthorityElsewhere = "authority-elsewhere"
	idAuthorityNoKey     = op.IDAuthorityNoKey
)
