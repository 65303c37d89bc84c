package operation

import "slipway.dev/slipway/api/v1alpha1"

// DeleteNodes removes hosts from a saved cluster and changes nothing else.
const DeleteNodes Kind = "delete-nodes"

var deleteNodes = row{
	verb:        "delete nodes from",
	phase:       v1alpha1.PhaseScaling,
	description: changesCluster,
	hosts:       ChangedHosts,
	precheck:    FullPrecheck,
	right:       "update",

	requestableInAPI:       no,
	needsCluster:           yes,
	needsBundle:            yes,
	managesAddons:          yes,
	changesNodes:           yes,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           yes,
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             yes,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     yes,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: AddNodes,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      getNodes,
	undo:      func(e End) string { return "slipway add nodes " + e.Cluster + " --host USER@ADDRESS=ROLE,name=NAME" },
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  rollbackCommand,
	repeat:    noText,
}
