package inspect

import "slipway.dev/slipway/internal/node/op"

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idAPIDown             = "api-down"
	idAddOnNotReady       = "add-on-not-ready"
	idAuthorityNoKey      = op.IDAuthorityNoKey
	idBackupByItself      = "backup-by-itself"
	idBackupCopy          = "backup-copy"
	idBackupDrill         = "backup-drill"
	idBackupOld           = "backup-old"
	idBackupTimer         = "backup-timer"
	idCertificateExpires  = "certificate-expires"
	idCertificateUnusable = "certificate-unusable"
	idEndpointDead        = "endpoint-not-answering"
	idEtcdExternal        = "etcd-external"
	idEtcdMember          = "etcd-member"
	idExchangeUnfinished  = "exchange-unfinished"
	idNodeNotReady        = "node-not-ready"
	idOperationUnfinished = "operation-unfinished"
	idRenewalFailed       = "renewal-failed"
	idRenewalTimer        = "renewal-timer"
	idCopyTarget          = "backup-copy-unreachable"
	idSecretUnreadable    = "secret-unreadable" // as in package spec
)
