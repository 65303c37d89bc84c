package operation

// RebootNodes reboots hosts of a saved cluster, one after the other.
const RebootNodes Kind = "reboot-nodes"

var rebootNodes = row{
	verb:        "reboot nodes of",
	phase:       samePhase,
	description: keepsCluster,
	hosts:       NamedHosts,
	precheck:    CertificatePrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           yes,
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
	supersedes:             no,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     no,
	stopsOnFailure:         yes,
	canSucceedPartly:       no,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      getNodes,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback: func(e End) string {
		return notPossible + "; to reboot no more nodes, only uncordon the node that failed: slipway kubectl " + e.Cluster +
			" -- uncordon NODE"
	},
	repeat: noText,
}
