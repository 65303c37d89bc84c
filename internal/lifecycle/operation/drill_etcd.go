package operation

// DrillEtcd tests the restore of a backup set of etcd. The command line tests one without an operation.
const DrillEtcd Kind = "etcd-drill"

var drillEtcd = row{
	verb:        "test a backup of",
	phase:       samePhase,
	description: keepsCluster,
	hosts:       NoHosts,
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
	comparesFile:           no,
	rollsBack:              no,
	continuesAnother:       no,
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

	next:   etcdHealth,
	undo:   noCommand,
	resume: func(e End) string { return "slipway etcd drill " + e.Cluster },
	onFailure: func(e End) string {
		return "slipway etcd snapshot " + e.Cluster + ", then run: slipway etcd drill " + e.Cluster
	},
	rollback: text("not needed"),
	repeat:   noText,
}
