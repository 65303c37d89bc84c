package operation

import "slipway.dev/slipway/api/v1alpha1"

// RollbackUpgrade rolls back an unfinished upgrade.
const RollbackUpgrade Kind = "rollback-upgrade"

var rollbackUpgrade = row{
	verb:        "roll back the upgrade of",
	phase:       v1alpha1.PhaseUpgrading,
	description: changesCluster,
	hosts:       AllHosts,
	precheck:    FullPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           yes,
	needsBundle:            yes,
	managesAddons:          yes,
	changesNodes:           no,
	changesVersion:         yes,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           yes,
	rollsBack:              yes,
	continuesAnother:       no,
	supersedes:             yes,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     yes,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: yes,

	rollbackKind: RollbackUpgrade,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      noCommand,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  func(e End) string { return notPossible + "; finish this rollback. The cluster keeps working meanwhile" },
	repeat:    noText,
}
