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
		r.fail(idEtcdDataLost, "mount the disk that holds them, or put them back from a backup of this host; while most members are well the cluster goes on without it",
			"is a member of etcd, and its data are not in %s", facts.DirEtcd)
	}
}

// external reports what control planes do not reach of an etcd that others look
// after.
func (r *report) external() {
	f := r.host.Facts
	x := r.cluster.Spec.Etcd.External
	if x == nil || !r.controlPlane() || len(f.Unreached) == 0 {
		return
	}
	const remedy = "start it, correct spec.etcd.external.endpoints, or let the host through to it"
	if len(f.Unreached) < len(x.Endpoints) {
		r.warn(idEtcdUnreachable, remedy, "does not reach etcd at %s; it reaches others", list(f.Unreached))
		return
	}
	r.fail(idEtcdUnreachable, remedy, "does not reach etcd at %s", list(f.Unreached))
}
