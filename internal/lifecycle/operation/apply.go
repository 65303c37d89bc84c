package operation

import "slipway.dev/slipway/api/v1alpha1"

// Apply makes a cluster match its description. A cluster that was never created is
// created.
const Apply Kind = "apply"

var apply = row{
	verb:        "change",
	phase:       v1alpha1.PhaseReconfiguring,
	description: changesCluster,
	hosts:       AllHosts,
	precheck:    FullPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           no,
	needsBundle:            yes,
	managesAddons:          yes,
	changesNodes:           no,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           yes,
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             yes,
	revertsFailedSettings:  yes,
	offersIgnoreErrors:     yes,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: Apply,
	onNewCluster: Create,
	upToDate:     upToDate,
	planNote:     noNote,

	next: getNodes,
	undo: func(e End) string {
		return "restore the previous settings in the file, then run: slipway apply -f " + e.file()
	},
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  rollbackCommand,
	repeat:    noText,
}
