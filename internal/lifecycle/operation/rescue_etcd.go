package operation

import "slipway.dev/slipway/api/v1alpha1"

// RescueEtcd recovers an etcd that has lost quorum from one remaining member.
const RescueEtcd Kind = "etcd-rescue"

var rescueEtcd = row{
	verb:        "rescue the etcd of",
	phase:       v1alpha1.PhaseReconfiguring,
	description: keepsCluster,
	hosts:       RemainingHosts,
	precheck:    EtcdPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           yes,
	needsBundle:            no,
	managesAddons:          no,
	changesNodes:           no,
	changesVersion:         no,
	replacesEtcdData:       yes,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           yes,
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

	next:      etcdHealth,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  text("before data is moved: reboot the hosts to start them again; after that, not possible"),
	repeat:    noText,
}
