package operation

// RenewCerts renews certificates of a saved cluster and changes nothing else.
const RenewCerts Kind = "renew-certs"

var renewCerts = row{
	verb:        "renew certificates of",
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
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     "has no certificates due for renewal",
	planNote:     noNote,

	next:      checkCertificates,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  text("not needed; renewed certificates work like the previous ones"),
	repeat:    noText,
}
