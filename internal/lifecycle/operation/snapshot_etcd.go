package operation

// SnapshotEtcd makes a backup set of etcd. The command line makes one without an operation.
const SnapshotEtcd Kind = "etcd-snapshot"

var snapshotEtcd = row{
	verb:        "back up the etcd of",
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

	next:      func(e End) string { return "slipway etcd drill " + e.Cluster },
	undo:      noCommand,
	resume:    snapshotCommand,
	onFailure: func(e End) string { return etcdHealth(e) + ", then run: " + snapshotCommand(e) },
	rollback:  text("not needed"),
	repeat:    noText,
}

func snapshotCommand(e End) string { return "slipway etcd snapshot " + e.Cluster }
