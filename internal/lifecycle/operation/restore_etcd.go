package operation

import "slipway.dev/slipway/api/v1alpha1"

// RestoreEtcd restores the data of etcd from a backup set.
const RestoreEtcd Kind = "etcd-restore"

var restoreEtcd = row{
	verb:        "restore the etcd of",
	phase:       v1alpha1.PhaseReconfiguring,
	description: keepsCluster,
	hosts:       AllHosts,
	precheck:    EtcdPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           yes,
	needsBundle:            no,
	managesAddons:          no,
	changesNodes:           no,
	changesVersion:         no,
	replacesEtcdData:       yes,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           yes,
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             no,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     yes,
	stopsOnFailure:         yes,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next: func(e End) string {
		return "slipway apply " + e.Cluster + " (applies changes that were made after the backup)"
	},
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback: func(e End) string {
		return "before data is moved: slipway apply " + e.Cluster + "; after that, not possible"
	},
	repeat: noText,
}
