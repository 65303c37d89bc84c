package operation

import "slipway.dev/slipway/api/v1alpha1"

// Delete removes a cluster from its hosts.
const Delete Kind = "delete"

var delete = row{
	verb:        "delete",
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
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             yes,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     no,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      noCommand,
	undo:      func(e End) string { return "slipway create cluster -f " + e.file() },
	resume:    resumeCommand,
	onFailure: deleteOnFailure,
	rollback:  func(e End) string { return notPossible + "; finish the delete" },
	repeat:    noText,
}

// deleteOnFailure also offers to leave out lost hosts if all others have finished.
func deleteOnFailure(e End) string {
	if e.Partial {
		return resumeCommand(e) + "; to leave out hosts that are permanently lost: slipway delete cluster " + e.Cluster + " --forget"
	}
	return resumeCommand(e)
}
