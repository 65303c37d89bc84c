package lifecycle

import (
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/module/kubeadm"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idClusterExists       = "cluster-exists"
	idClusterPaused       = "cluster-paused"
	idCheckFailed         = "check-failed"
	idPlanChanged         = "plan-changed" // as in package cli
	idPlanNoPassword      = "plan-without-password"
	idNothingUnfinished   = history.IDNothingUnfinished
	idSpecChanged         = "spec-changed"
	idNoWayBack           = history.IDNoWayBack
	idHostLeft            = "host-left-behind"
	idNotCreated          = "not-created"
	idNoNewHost           = "no-new-host"
	idLastControlPlane    = "last-control-plane"
	idControlPlaneLost    = "control-plane-lost"
	idEtcdLost            = "etcd-lost"
	idHostRenamed         = "host-renamed"
	idHostLeaves          = "host-leaves"
	idHostReturned        = "host-returned"
	idFileDiffers         = "file-differs"
	idHostOnRecord        = "host-on-record"
	idHostTwice           = "duplicate-address"
	idAddressFixed        = "address-fixed"
	idEndpointMode        = "endpoint-mode" // as in package spec
	idRegistryInUse       = "registry-in-use"
	idMigrationAlone      = history.IDMigrationAlone
	idUpgradeHow          = "upgrade-invalid"
	idUpgradeUnfinished   = history.IDUpgradeUnfinished
	idUpgradeCommitted    = "upgrade-committed"
	idKindsInUse          = "new-kinds-in-use"
	idReverted            = "settings-reverted"
	idOtherKind           = "other-operation-needed"
	idNotRequestable      = "not-requestable"
	idRevertFailed        = "revert-failed"
	idOperationUnfinished = history.IDOperationUnfinished
	idRebootsItself       = "reboots-own-machine"
	idLocked              = "locked" // as in package cli
)

// Ids of certificates, rotations and keys.
const (
	idUnknownCertificate = "unknown-certificate"
	idBeyondAuthority    = "validity-beyond-authority"
	idEncryptionAlone    = kubeadm.IDEncryptionAlone
	idEncryptionLost     = kubeadm.IDEncryptionLost
	idSignerAdopted      = "backup-key-adopted"
)
