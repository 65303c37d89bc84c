package precheck

import (
	"slices"

	"slipway.dev/slipway/internal/facts"
)

// checkEtcdData reports an etcd member whose data is gone. It must not start empty: the
// other members rely on the writes that it has acknowledged, and committed changes
// could be lost.
func (r *report) checkEtcdData() {
	has := func(path string) bool { return slices.Contains(r.host.Facts.Present, path) }
	if r.isOwnHost() && has(facts.EtcdJoined) && !has(facts.EtcdData) {
		r.fail(idEtcdDataLost, "mount the data disk, or restore the data from a backup of this host. "+
			"If the data is lost, remove the node and add it again. "+
			"The cluster keeps working while most members are healthy",
			"is an etcd member, but its data is not in %s", facts.DirEtcd)
	}
}

// checkExternalEtcd reports the endpoints of an external etcd that a control plane
// cannot reach.
func (r *report) checkExternalEtcd() {
	x := r.cluster.Spec.Etcd.External
	silent := r.silentAddresses(facts.EtcdEndpoints(r.cluster, r.host.Spec.Roles))
	if len(silent) == 0 {
		return
	}
	const remedy = "start etcd, correct spec.etcd.external.endpoints, or allow connections from the host to it"
	if len(silent) < len(x.Endpoints) {
		r.warn(idEtcdUnreachable, remedy, "cannot reach etcd at %s; it can reach other endpoints", joinItems(silent))
		return
	}
	r.fail(idEtcdUnreachable, remedy, "cannot reach etcd at %s", joinItems(silent))
}

// silentAddresses returns the addresses that do not accept connections of the host.
func (r *report) silentAddresses(places []string) []string {
	return slices.DeleteFunc(places, func(at string) bool { return !slices.Contains(r.host.Facts.Unreached, at) })
}
