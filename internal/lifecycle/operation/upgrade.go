package operation

import (
	"cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// Upgrade upgrades a saved cluster, one minor at a time: each minor is a separate
// operation.
const Upgrade Kind = "upgrade"

var upgrade = row{
	verb:        "upgrade",
	phase:       v1alpha1.PhaseUpgrading,
	description: changesCluster,
	hosts:       AllHosts,
	precheck:    FullPrecheck,
	right:       "update",

	requestableInAPI:       yes,
	needsCluster:           yes,
	needsBundle:            yes,
	managesAddons:          yes,
	changesNodes:           no,
	changesVersion:         yes,
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

	rollbackKind: RollbackUpgrade,
	onNewCluster: noKind,
	upToDate:     upToDate,
	planNote:     upgradeNote,

	next:      upgradeNext,
	undo:      noCommand,
	resume:    resumeCommand,
	onFailure: resumeCommand,
	rollback:  rollbackCommand,
	repeat:    noText,
}

func upgradeNote(cluster string) string {
	return "You can run 'slipway rollback " + cluster + "' until the upgrade completes. A completed upgrade cannot be rolled back.\n" +
		"A restore from a backup restores only the data, and loses all later writes."
}

// upgradeNext continues with the next minor if there is one.
func upgradeNext(e End) string {
	if e.Target == "" {
		return getNodes(e)
	}
	by := e.TargetFile
	if by != "" {
		by = cmp.Or(e.File, by) // as the user typed it
	}
	return UpgradeCommand(e.Cluster, e.Target, by)
}

// UpgradeCommand returns the command that continues an upgrade to its target version.
// file is the cluster file of the upgrade: "" for none, "-" for standard input.
func UpgradeCommand(cluster, version, file string) string {
	command := "slipway upgrade " + cluster + " --to " + version
	switch file {
	case "":
		return command
	case "-":
		file = "FILE"
	}
	return command + " -f " + file
}
