package operation

// InitRegistry sets up a registry with the images of the bundle on the host with
// that role, and does not touch other hosts.
const InitRegistry Kind = "init-registry"

var initRegistry = row{
	verb:        "set up a registry for",
	phase:       samePhase,
	description: keepsCluster,
	hosts:       RegistryHost,
	precheck:    FullPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           no,
	needsBundle:            yes,
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
	canSucceedPartly:       no,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next: func(e End) string {
		return "slipway create cluster -f " + e.file() + "; if the cluster exists: slipway apply -f " + e.file()
	},
	undo:      deleteHostsOnly,
	resume:    func(e End) string { return "slipway init registry -f " + e.file() },
	onFailure: func(e End) string { return "slipway init registry -f " + e.file() },
	rollback:  text(onlyByDelete),
	repeat:    "create the registry again: slipway init registry -f FILE",
}
