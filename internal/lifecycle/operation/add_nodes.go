package operation

import (
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
)

// AddNodes adds hosts to a saved cluster and changes nothing else.
const AddNodes Kind = "add-nodes"

var addNodes = row{
	verb:        "add nodes to",
	phase:       v1alpha1.PhaseScaling,
	description: changesCluster,
	hosts:       ChangedHosts,
	precheck:    FullPrecheck,
	right:       "update",

	requestableInAPI:       no,
	needsCluster:           yes,
	needsBundle:            yes,
	managesAddons:          yes,
	changesNodes:           yes,
	changesVersion:         no,
	replacesEtcdData:       no,
	preparesHosts:          no,
	resumable:              yes,
	comparesFile:           yes,
	rollsBack:              no,
	continuesAnother:       no,
	supersedes:             yes,
	revertsFailedSettings:  no,
	offersIgnoreErrors:     yes,
	stopsOnFailure:         no,
	canSucceedPartly:       yes,
	dependsOnState:         yes,
	toleratesAddonProblems: no,

	rollbackKind: DeleteNodes,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     noNote,

	next: getNodes,
	undo: func(e End) string {
		return "slipway delete nodes " + strings.Join(e.Nodes, " ") + " --cluster " + e.Cluster
	},
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  rollbackCommand,
	repeat:    noText,
}
