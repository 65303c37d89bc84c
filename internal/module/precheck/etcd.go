package precheck

import (
	"slices"

	"slipway.dev/slipway/internal/facts"
)

// etcdData refuses to start a member anew whose data are gone: the others count
// on what it has acknowledged, and a change that they took for safe could be
// lost.
func (r *report) etcdData() {
	has := func(path string) bool { return slices.Contains(r.host.Facts.Present, path) }
	if r.ours() && has(facts.EtcdJoined) && !has(facts.EtcdData) {
		r.fail(idEtcdDataLost, "mount the disk that holds them, or put them back from a backup of this host; if they are lost, take it off and add it again; while most members are well the cluster goes on without it",
			"is a member of etcd, and its data are not in %s", facts.DirEtcd)
	}
}

// external reports what control planes do not reach of an etcd that others look
// after.
func (r *report) external() {
	x := r.cluster.Spec.Etcd.External
	silent := r.silent(facts.EtcdEndpoints(r.cluster, r.host.Spec.Roles))
	if len(silent) == 0 {
		return
	}
	const remedy = "start it, correct spec.etcd.external.endpoints, or let the host through to it"
	if len(silent) < len(x.Endpoints) {
		r.warn(idEtcdUnreachable, remedy, "does not reach etcd at %s; it reaches others", list(silent))
		return
	}
	r.fail(idEtcdUnreachable, remedy, "does not reach etcd at %s", list(silent))
}

// silent are those of some places where nothing takes the host's connections.
func (r *report) silent(places []string) []string {
	return slices.DeleteFunc(places, func(at string) bool { return !slices.Contains(r.host.Facts.Unreached, at) })
}
