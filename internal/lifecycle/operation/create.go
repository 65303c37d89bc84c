package operation

import "slipway.dev/slipway/api/v1alpha1"

// Create creates a cluster.
const Create Kind = "create"

var create = row{
	verb:        "create",
	phase:       v1alpha1.PhaseCreating,
	description: createsCluster,
	hosts:       AllHosts,
	precheck:    FullPrecheck,
	right:       "create",

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
	revertsFailedSettings:  no,
	offersIgnoreErrors:     no,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: RollbackCreate,
	onNewCluster: Create,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      getNodes,
	undo:      func(e End) string { return "slipway delete cluster " + e.Cluster },
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  rollbackCommand,
	repeat:    noText,
}
