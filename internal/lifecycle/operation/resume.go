package operation

// Resume makes the latest unfinished operation of a cluster continue. It exists only in an API: the command line
// continues the operation itself.
const Resume Kind = "resume"

var resume = row{
	verb:        "resume the latest operation of",
	phase:       samePhase,
	description: keepsCluster,
	hosts:       NoHosts,
	precheck:    EtcdPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           no,
	needsBundle:            no,
	managesAddons:          no,
	changesNodes:           no,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              no,
	comparesFile:           no,
	rollsBack:              no,
	continuesAnother:       yes,
	supersedes:             no,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     no,
	stopsOnFailure:         no,
	canSucceedPartly:       no,
	dependsOnState:         no,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      getNodes,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  text("not needed"),
	repeat:    noText,
}
