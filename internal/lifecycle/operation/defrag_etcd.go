package operation

// DefragEtcd defragments the databases of etcd.
const DefragEtcd Kind = "etcd-defrag"

var defragEtcd = row{
	verb:        "defragment the etcd of",
	phase:       samePhase,
	description: keepsCluster,
	hosts:       EtcdHosts,
	precheck:    EtcdPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           yes,
	needsBundle:            no,
	managesAddons:          no,
	changesNodes:           no,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              no,
	comparesFile:           yes,
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             no,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     no,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: noKind,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next:      etcdHealth,
	undo:      noCommand,
	resume:    func(e End) string { return "slipway etcd defrag " + e.Cluster },
	onFailure: func(e End) string { return etcdHealth(e) + ", then run: slipway etcd defrag " + e.Cluster },
	rollback:  text("not needed"),
	repeat:    noText,
}
