package operation

// ForgetNodes removes permanently lost hosts while another operation is unfinished.
// That operation can be resumed afterwards. Nothing else of the cluster changes.
const ForgetNodes Kind = "forget-nodes"

var forgetNodes = row{
	verb:        "remove lost nodes from",
	phase:       samePhase,
	description: changesCluster,
	hosts:       ChangedHosts,
	precheck:    FullPrecheck,
	right:       "update",

	requestableInAPI:       no,
	needsCluster:           yes,
	needsBundle:            no,
	managesAddons:          no,
	changesNodes:           yes,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           yes,
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             no,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     yes,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      resumeCommand,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  func(e End) string { return notPossible + "; finish the removal of the lost nodes" },
	repeat:    noText,
}
