// Package operation has the table of operation kinds: everything that is true of a
// kind, whichever cluster an operation works on. Each kind has one file. Other packages
// ask the table and do not name kinds.
package operation

import "slipway.dev/slipway/api/v1alpha1"

// Kind is the name of an operation kind. The values never change, because saved
// operations and plans have them. Each kind is declared in its own file.
type Kind string

// A row has everything that is true of a kind. A field with its zero value is
// undecided, which a test refuses.
type row struct {
	// verb completes the sentence "Plan to … cluster prod".
	verb string
	// phase is the phase of the cluster while the operation runs; samePhase leaves the
	// phase and the rest of the status unchanged.
	phase v1alpha1.Phase
	// description is the effect on the saved description of the cluster.
	description effect
	// hosts selects the hosts that take part.
	hosts Hosts
	// precheck is how much of these hosts is checked before the plan is made.
	precheck Precheck
	// right is the verb on the cluster that a user of the API needs to request the operation.
	right string

	// See the methods of Kind with these names.
	requestableInAPI                                              answer
	needsCluster, needsBundle, managesAddons                      answer
	changesNodes, changesVersion, replacesEtcdData, preparesHosts answer
	resumable, comparesFile, supersedes, revertsFailedSettings    answer
	offersIgnoreErrors, stopsOnFailure, canSucceedPartly          answer
	rollsBack, continuesAnother                                   answer
	dependsOnState, toleratesAddonProblems                        answer

	// rollbackKind is the kind that rolls back the operation while it is unfinished;
	// noKind if it cannot be rolled back.
	rollbackKind Kind
	// onNewCluster is the kind that the operation becomes on a cluster whose creation has
	// not finished; noKind if it does not create clusters.
	onNewCluster Kind
	// upToDate completes the sentence "Cluster prod …: nothing to do".
	upToDate string
	// planNote returns what the user must know besides the steps of a plan.
	planNote func(cluster string) string

	// next and undo return the next command, and the command that undoes the
	// operation, after a success.
	next, undo func(End) string
	// resume returns the command that continues an interrupted operation, or runs it
	// again. onFailure returns what the user does after a failure, and rollback how to
	// roll back what was done.
	resume, onFailure, rollback func(End) string
	// repeat is the hint if the latest operation is of this kind and has failed, and
	// there is nothing to resume; noText if no such hint is needed.
	repeat string
}

// An answer reports whether something is true of a kind.
type answer int

// The values; the zero value is undecided.
const (
	no answer = iota + 1
	yes
)

// An effect describes how an operation changes the saved description of a cluster.
type effect int

// The effects. createsCluster saves a first description, and removesCluster deletes the
// saved cluster at its end.
const (
	createsCluster effect = iota + 1
	changesCluster
	keepsCluster
	removesCluster
)

// Hosts selects the hosts that take part in an operation.
type Hosts int

// The selections.
const (
	AllHosts Hosts = iota + 1
	// ChangedHosts are the added or removed hosts and the control planes. If a control
	// plane or a registry is added or removed, all hosts take part, and if an etcd host
	// is, all etcd hosts.
	ChangedHosts
	// EtcdHosts are the hosts with an etcd member, and the control planes, which keep
	// the lock.
	EtcdHosts
	// NamedHosts are the hosts that the request names, the hosts with an etcd member, and
	// the control planes.
	NamedHosts
	// RemainingHosts are all hosts that are not declared lost.
	RemainingHosts
	// RegistryHost is the host with the private registry.
	RegistryHost
	// NoHosts is for work that opens its connections itself, or needs none. A host that is down does not prevent it.
	NoHosts
)

// Precheck is how much the precheck checks on the hosts of an operation. The zero value
// counts as FullPrecheck.
type Precheck int

// The levels.
const (
	// FullPrecheck checks everything that a node needs.
	FullPrecheck Precheck = iota + 1
	// SystemPrecheck checks the operating system, but not the space for a cluster.
	SystemPrecheck
	// CertificatePrecheck checks that hosts are reachable and different, and their clocks.
	CertificatePrecheck
	// EtcdPrecheck checks that hosts are reachable.
	EtcdPrecheck
	// RemovalPrecheck checks that hosts are reachable. The files of the cluster may be of
	// one that this manager has not saved.
	RemovalPrecheck
)

// Values for fields that do not apply to a kind.
const (
	samePhase v1alpha1.Phase = "unchanged"
	noKind    Kind           = "none"
	noText                   = "none"
)

// An End has what the commands after an operation depend on.
type End struct {
	Cluster string
	// File is the cluster file as the user named it, "" if the user named none.
	File string
	// Nodes are the hosts that were added or removed.
	Nodes []string
	// Partial reports whether the operation has finished with failed hosts.
	Partial bool
	// Target is the version to which an upgrade continues, "" if there is none.
	// TargetFile is its cluster file in the form of UpgradeCommand.
	Target, TargetFile string
}

// of returns the row of a kind; for a kind of another version of slipway, a row in
// which everything is undecided.
func (k Kind) of() row { return rows[k] }

// Known reports whether this version has operations of the kind. Another version may
// have begun operations of other kinds.
func (k Kind) Known() bool {
	_, ok := rows[k]
	return ok
}

// DeclaresLost reports whether the hosts of a request are permanently lost and take no
// part in the operation.
func (k Kind) DeclaresLost() bool { return k.of().hosts == RemainingHosts }

// Verb returns what an operation does to a cluster, as part of a sentence.
func (k Kind) Verb() string {
	if v := k.of().verb; v != "" {
		return v
	}
	return string(k)
}

// Phase returns the phase of a cluster while an operation runs on it. ok is false if
// the phase does not change.
func (k Kind) Phase() (phase v1alpha1.Phase, ok bool) {
	phase = k.of().phase
	return phase, phase != "" && phase != samePhase
}

// SetsStatus reports whether an operation applies the description of the cluster and so
// sets its phase and status. All others leave an unfinished operation that does so
// alone. An unknown kind sets the status.
func (k Kind) SetsStatus() bool { return k.of().phase != samePhase }

// CreatesCluster reports whether an operation creates a cluster.
func (k Kind) CreatesCluster() bool { return k.of().description == createsCluster }

// ChangesCluster reports whether an operation changes the description of an existing
// cluster.
func (k Kind) ChangesCluster() bool { return k.of().description == changesCluster }

// RemovesCluster reports whether an operation removes the cluster from its hosts and
// from the saved state.
func (k Kind) RemovesCluster() bool { return k.of().description == removesCluster }

// Hosts returns which hosts take part.
func (k Kind) Hosts() Hosts { return k.of().hosts }

// Precheck returns how much is checked on the hosts that take part.
func (k Kind) Precheck() Precheck { return k.of().precheck }

// ClusterRight returns the verb on the Cluster object that a user of the API needs to request
// an operation, "" for an unknown kind, which must not be requested.
func (k Kind) ClusterRight() string { return k.of().right }

// RequestableInAPI reports whether a user of an API can request an operation. The Cluster object has the hosts, so
// they are not added or removed on request.
func (k Kind) RequestableInAPI() bool { return k.of().requestableInAPI == yes }

// NeedsCluster reports whether an operation is only possible on a saved cluster.
func (k Kind) NeedsCluster() bool { return k.of().needsCluster == yes }

// NeedsBundle reports whether an operation installs something from a bundle.
func (k Kind) NeedsBundle() bool { return k.of().needsBundle == yes }

// ToleratesAddonProblems reports whether an operation that manages add-ons leaves them
// unchanged if they cannot be read. Otherwise such a problem refuses the operation.
func (k Kind) ToleratesAddonProblems() bool { return k.of().toleratesAddonProblems == yes }

// DependsOnState reports whether a plan is refused if another operation has changed the
// saved cluster since then.
func (k Kind) DependsOnState() bool { return k.of().dependsOnState == yes }

// ManagesAddons reports whether an operation installs the add-ons of a cluster.
func (k Kind) ManagesAddons() bool { return k.of().managesAddons == yes }

// ChangesNodes reports whether an operation only adds or removes hosts of a cluster.
func (k Kind) ChangesNodes() bool { return k.of().changesNodes == yes }

// ChangesVersion reports whether an operation changes the Kubernetes version of nodes.
func (k Kind) ChangesVersion() bool { return k.of().changesVersion == yes }

// ReplacesEtcdData reports whether an operation replaces the data of etcd.
func (k Kind) ReplacesEtcdData() bool { return k.of().replacesEtcdData == yes }

// PreparesHosts reports whether an operation only prepares hosts, with or without a
// cluster on them. It takes no lock on hosts.
func (k Kind) PreparesHosts() bool { return k.of().preparesHosts == yes }

// Resumable reports whether an interrupted operation can be resumed. Otherwise it is
// run again. An unknown kind counts as resumable: another version can resume it.
func (k Kind) Resumable() bool { return k.of().resumable != no }

// ComparesFile reports whether a resume compares the description that it continues with
// to the cluster file.
func (k Kind) ComparesFile() bool { return k.of().comparesFile == yes }

// Supersedes reports whether a successful operation finishes an earlier one that was
// unfinished. An unknown kind does.
func (k Kind) Supersedes() bool { return k.of().supersedes != no }

// RollsBack reports whether an operation rolls back another one. It needs the saved cluster only.
func (k Kind) RollsBack() bool { return k.of().rollsBack == yes }

// ContinuesAnother reports whether an operation of an API has no steps: it makes another operation continue.
func (k Kind) ContinuesAnother() bool { return k.of().continuesAnother == yes }

// UsesSavedCluster reports whether an operation uses the saved cluster, and no other description.
func (k Kind) UsesSavedCluster() bool {
	return k.RollsBack() || k.RemovesCluster() || k.NeedsCluster() && !k.ChangesCluster()
}

// RevertsFailedSettings reports whether settings are rolled back automatically if a
// node does not work with them.
func (k Kind) RevertsFailedSettings() bool { return k.of().revertsFailedSettings == yes }

// OffersIgnoreErrors reports whether the hint about an unreachable host of an existing
// cluster offers to continue without that host.
func (k Kind) OffersIgnoreErrors() bool { return k.of().offersIgnoreErrors == yes }

// StopsOnFailure reports whether all hosts stop when one fails, whatever the user
// ignores. Otherwise hosts would disagree, for example about the data of etcd.
func (k Kind) StopsOnFailure() bool { return k.of().stopsOnFailure == yes }

// CanSucceedPartly reports whether an operation can finish although a host failed.
func (k Kind) CanSucceedPartly() bool { return k.of().canSucceedPartly == yes }

// RollbackKind returns the kind that rolls back an unfinished operation. ok is false if
// it cannot be rolled back.
func (k Kind) RollbackKind() (back Kind, ok bool) {
	back = k.of().rollbackKind
	return back, back != "" && back != noKind
}

// OnNewCluster returns the kind that an operation becomes on a cluster whose creation has
// not finished, or the same kind.
func (k Kind) OnNewCluster() Kind {
	if on := k.of().onNewCluster; on != "" && on != noKind {
		return on
	}
	return k
}

// UpToDate completes the sentence "Cluster prod …: nothing to do".
func (k Kind) UpToDate() string {
	if text := k.of().upToDate; text != "" {
		return text
	}
	return upToDate
}

// PlanNote returns what the user must know besides the steps of a plan, "" if there is
// nothing.
func (k Kind) PlanNote(cluster string) string {
	if note := k.of().planNote; note != nil {
		return note(cluster)
	}
	return ""
}

// Repeat returns the hint if the latest operation is of this kind and has failed, and
// there is nothing to resume; "" if no such hint is needed.
func (k Kind) Repeat() string {
	if text := k.of().repeat; text != noText {
		return text
	}
	return ""
}

// Next returns the next command after a success, "" if there is none.
func (k Kind) Next(e End) string { return call(k.of().next, e, "") }

// Undo returns the command that undoes a successful operation, "" if there is none.
func (k Kind) Undo(e End) string { return call(k.of().undo, e, "") }

// Resume returns the command that continues an interrupted operation, or runs it again.
func (k Kind) Resume(e End) string { return call(k.of().resume, e, resumeCommand(e)) }

// OnFailure returns what the user does after an operation that has not finished.
func (k Kind) OnFailure(e End) string { return call(k.of().onFailure, e, resumeCommand(e)) }

// Rollback returns how to roll back an operation that has not finished.
func (k Kind) Rollback(e End) string { return call(k.of().rollback, e, rollbackCommand(e)) }

func call(f func(End) string, e End, otherwise string) string {
	if f == nil {
		return otherwise
	}
	return f(e)
}
