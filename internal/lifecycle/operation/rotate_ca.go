package operation

// RotateCA rotates CAs or the service account key of a saved cluster.
const RotateCA Kind = "rotate-ca"

var rotateCA = row{
	verb:        "rotate CAs of",
	phase:       samePhase,
	description: keepsCluster,
	hosts:       AllHosts,
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
	offersIgnoreErrors:     yes,
	stopsOnFailure:         yes,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      checkCertificates,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback: func(e End) string {
		return notPossible + "; finish the rotation. The cluster trusts the old and the new keys meanwhile"
	},
	repeat: noText,
}
