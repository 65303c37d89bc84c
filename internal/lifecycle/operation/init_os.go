package operation

// InitOS prepares the operating system of hosts for a cluster.
const InitOS Kind = "init-os"

var initOS = row{
	verb:        "prepare the hosts of",
	phase:       samePhase,
	description: keepsCluster,
	hosts:       AllHosts,
	precheck:    SystemPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           no,
	needsBundle:            no,
	managesAddons:          no,
	changesNodes:           no,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          yes,
	resumable:              no,
	comparesFile:           yes,
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             no,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     no,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         no,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      func(e End) string { return "slipway create cluster -f " + e.file() },
	undo:      deleteHostsOnly,
	resume:    func(e End) string { return "slipway init os -f " + e.file() },
	onFailure: func(e End) string { return "slipway init os -f " + e.file() },
	rollback:  text(onlyByDelete),
	repeat:    "prepare the hosts again: slipway init os -f FILE",
}

// deleteHostsOnly undoes the preparation of hosts that have no cluster.
func deleteHostsOnly(e End) string {
	return "slipway delete cluster -f " + e.file() + ", if no cluster runs on these hosts"
}
