package operation

import "slipway.dev/slipway/api/v1alpha1"

// RollbackCreate rolls back an unfinished creation: it resets the hosts.
const RollbackCreate Kind = "rollback"

var rollbackCreate = row{
	verb:        "roll back",
	phase:       v1alpha1.PhaseDeleting,
	description: removesCluster,
	hosts:       AllHosts,
	precheck:    RemovalPrecheck,
	right:       "delete",

	requestableInAPI:       yes,
	needsCluster:           no,
	needsBundle:            no,
	managesAddons:          no,
	changesNodes:           no,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           no,
	rollsBack:              yes,
	continuesAnother:       no,
	supersedes:             yes,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     no,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: RollbackCreate,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      func(e End) string { return "fix the cause, then run: slipway create cluster -f " + e.file() },
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  func(e End) string { return notPossible + "; finish the rollback" },
	repeat:    noText,
}
