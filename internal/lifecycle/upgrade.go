package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/spec"
)

// newer is a recorded cluster in the next version on its way to the one that is
// asked for; as it is, if it has come there. The request then knows where it
// goes, and what the record is to have of its file.
func (s *service) newer(ctx context.Context, r *Request, recorded *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	if !created(recorded) {
		return nil, refused(idNotCreated, "cluster "+recorded.Name+" has not come to run yet", "finish its creation first: slipway resume "+recorded.Name)
	}
	if recorded.Status.Phase != v1alpha1.PhaseRunning {
		return nil, refused(idOperationUnfinished, "the latest operation of cluster "+recorded.Name+" has not come to its end", "finish it first: slipway resume "+recorded.Name)
	}
	was := runsWith(recorded)
	file, bundle := r.Cluster, ""
	if file != nil {
		if r.Version = cmp.Or(r.Version, file.Spec.Kubernetes.Version); r.Version == "" {
			return nil, refused(idUpgradeHow, "the file does not say to which version of Kubernetes the cluster is to go", "write spec.kubernetes.version into it, or name the version with --to")
		}
		if file.Spec.Kubernetes.Version != "" && file.Spec.Kubernetes.Version != r.Version {
			return nil, refused(idUpgradeHow, "the file says Kubernetes "+file.Spec.Kubernetes.Version+", and --to "+r.Version, "let them say the same, or leave --to out")
		}
		file = spec.Copy(file)
		if err := spec.Absolute(file, spec.Paths{Dir: r.Dir, Home: s.Home}); err != nil {
			return nil, err
		}
		bundle = file.Spec.Bundle
		// These go along.
		file.Spec.Kubernetes.Version, file.Spec.Addons, file.Spec.Bundle = was, recorded.Spec.Addons, recorded.Spec.Bundle
		if c := s.asRecorded(file, recorded); !sameButOrder(c, recorded) {
			return nil, refused(idUpgradeHow, "the file differs from what is recorded of the cluster in more than the version of Kubernetes",
				"apply the rest first, with version: "+was+": slipway apply -f "+cmp.Or(r.File, "FILE"))
		}
	}
	known, err := s.releases(ctx, recorded, r.Version, r.Bundle, bundle)
	if err != nil {
		return nil, err
	}
	path, err := known.UpgradePath(was, r.Version)
	if err != nil {
		return nil, err
	}
	if err := fits(recorded, was, path); err != nil {
		return nil, err
	}
	wanted := spec.Copy(recorded)
	wanted.Spec.Kubernetes.Version = was
	if r.way = onTheWay(*r, recorded, path, bundle); len(path) == 0 {
		if r.Cluster != nil {
			wanted.Spec.Addons = r.Cluster.Spec.Addons
		}
		return wanted, nil
	}
	wanted.Spec.Addons = r.way[0].addons
	wanted.Spec.Kubernetes.Version, wanted.Spec.Bundle = path[0], cmp.Or(r.Bundle, r.way[0].bundle)
	if r.Version = path[len(path)-1]; r.Version != path[0] {
		r.Source = nil // the file says where it goes in the end
	}
	return wanted, nil
}

// fits refuses an upgrade on whose path is a version that a component does not start in
// with the settings of the cluster.
func fits(c *v1alpha1.Cluster, is string, path []string) error {
	var list diag.List
	seen := map[string]bool{}
	for _, version := range path {
		for _, d := range spec.ComponentSettings(c, version).Errors() {
			if !seen[d.Path] {
				d.Hint = "take the setting out first: 'slipway apply' of a file without it, with version: " + is
				list = append(list, d)
			}
			seen[d.Path] = true
		}
	}
	return list.Err()
}

// goesBy is the cluster file that an upgrade goes by, as its operation has it.
func (r *Request) goesBy() string {
	if r.Kind != Upgrade || r.Cluster == nil {
		return ""
	}
	return cmp.Or(r.File, "-")
}

// OnwardCommand takes a cluster on to the version that an upgrade goes to in the end. The
// file is that which it goes by: "" for none, and - for standard input.
func OnwardCommand(cluster, version, file string) string {
	command := "slipway upgrade " + cluster + " --to " + version
	switch file {
	case "":
		return command
	case "-":
		file = "FILE"
	}
	return command + " -f " + file
}

// aheadOf says that an upgrade goes by a file that is of the end of its way, and not of
// the minor that is gone on with.
func aheadOf(goesOn *v1alpha1.Cluster, o *v1alpha1.Operation) bool {
	return Kind(o.Spec.Type) == Upgrade && o.Spec.File != "" && o.Spec.Version != goesOn.Spec.Kubernetes.Version
}

// asOf is such a file as it is of that minor: what goes along is that one's.
func asOf(goesOn *v1alpha1.Cluster, o *v1alpha1.Operation, file *v1alpha1.Cluster) *v1alpha1.Cluster {
	if says := file.Spec.Kubernetes.Version; !aheadOf(goesOn, o) || says != "" && says != o.Spec.Version {
		return file
	}
	file = spec.Copy(file)
	file.Spec.Kubernetes.Version, file.Spec.Addons, file.Spec.Bundle = goesOn.Spec.Kubernetes.Version, goesOn.Spec.Addons, goesOn.Spec.Bundle
	return file
}

// between says of a cluster that stands between two minors of an upgrade how far it has
// come, and what goes on; ok is false of others. An upgrade that is on record with its
// version alone has not begun yet.
func between(ops []v1alpha1.Operation, recorded *v1alpha1.Cluster) (message, hint string, ok bool) {
	if recorded == nil || recorded.Status.Phase != v1alpha1.PhaseRunning {
		return "", "", false
	}
	is := runsWith(recorded)
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		kind := Kind(o.Spec.Type)
		return !beside(kind) && (o.Status.StartTime != nil || kind == Upgrade && is != recorded.Spec.Kubernetes.Version)
	})
	if at < 0 || Kind(ops[at].Spec.Type) != Upgrade || ops[at].Spec.Version == "" || ops[at].Spec.Version == is {
		return "", "", false
	}
	to := ops[at].Spec.Version
	return "the upgrade of cluster " + recorded.Name + " to " + to + " has come as far as " + is,
		"go on with: " + OnwardCommand(recorded.Name, to, ops[at].Spec.File), true
}

// runsWith is the version that a cluster was last known to have: the record may
// have been written for one that was not begun.
func runsWith(c *v1alpha1.Cluster) string {
	return cmp.Or(c.Status.Version, c.Spec.Kubernetes.Version)
}

// writesManifests says that an exchange begins which has kubeadm write the manifests of
// all control planes, and those of the version on record: in the midst of an upgrade it
// would exchange what is yet to wait for its turn.
func (r *Request) writesManifests() bool {
	return r.Kind == RotateCA && r.rotates == nil && slices.Contains(r.Rotate, certs.Cluster)
}

// halfDone refuses such an exchange while something else has not come to its end: the
// manifests would have settings whose turn, and files that they name, are yet to come.
func (r *Request) halfDone(recorded *v1alpha1.Cluster) error {
	if !r.writesManifests() || recorded.Status.Phase == v1alpha1.PhaseRunning {
		return nil
	}
	return refused(idOperationUnfinished, "the latest operation of cluster "+recorded.Name+" has not come to its end", "finish it first: slipway resume "+recorded.Name)
}

// notBegun refuses to change a cluster whose record is of a version that an upgrade
// was about to bring when it was cut off: its nodes would get it in no order.
func notBegun(kind Kind, recorded *v1alpha1.Cluster) error {
	wanted := recorded.Spec.Kubernetes.Version
	if kind != Apply && kind != Add && kind != Remove && kind != RotateCA || recorded.Status.Phase != v1alpha1.PhaseRunning || runsWith(recorded) == wanted {
		return nil
	}
	return refused(idUpgradeUnfinished, "the upgrade of cluster "+recorded.Name+" to "+wanted+" was cut off before it began",
		"begin it again: slipway upgrade "+recorded.Name+" --to "+wanted)
}

// upgraded refuses to change a cluster in whose midst an upgrade has stopped:
// its nodes are of two versions, and only the upgrade knows in which order they
// go on. One whose start is not recorded yet may be what the cluster's status names:
// its version is on record then.
func (s *service) upgraded(recorded *v1alpha1.Cluster) error {
	ops, err := s.Store.Operations(recorded.Name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		return !beside(Kind(o.Spec.Type)) && (o.Status.StartTime != nil || o.Name == recorded.Status.Operation)
	})
	if at < 0 || !changesVersion(Kind(ops[at].Spec.Type)) || ops[at].Status.Phase == v1alpha1.OperationSucceeded {
		return nil
	}
	what := "the upgrade of cluster " + recorded.Name + " to "
	if Kind(ops[at].Spec.Type) == Revert {
		what = "the way of cluster " + recorded.Name + " back to "
	}
	return refused(idUpgradeUnfinished, what+recorded.Spec.Kubernetes.Version+" has not come to its end",
		"finish it first: slipway resume "+recorded.Name+"; or go back: slipway rollback "+recorded.Name+"; a host that is gone for good can be taken off before: slipway delete node NAME --forget")
}

// backUp keeps the data and the keys of a cluster that is still of the version
// before.
func (p *prepared) backUp(ctx context.Context, tell func(event.Event)) error {
	name := p.env.Cluster.Name
	from, err := p.svc.origin(name, p.env.Release.Kubernetes)
	if err != nil {
		return err
	}
	set, err := p.svc.Snapshot(ctx, name, SnapshotOptions{version: from.Spec.Kubernetes.Version, keysOnly: p.env.Cluster.Spec.Etcd.External != nil}, event.SinkFunc(tell))
	if err != nil {
		return fmt.Errorf("backing up what there is: %w", err)
	}
	note := "kept as it is: "
	if set.KeysOnly {
		note = "its keys are kept as they are, and the data of etcd are its owner's to back up: "
	}
	tell(event.Event{Type: event.Note, Message: note + set.File})
	return nil
}

// origin is the cluster as the latest operation left it that knew it in another
// version than this one: where an upgrade to it began.
func (s *service) origin(name, version string) (*v1alpha1.Cluster, error) {
	ops, err := s.Store.Operations(name)
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		if o.Spec.Type != string(Create) && (!changesHosts(Kind(o.Spec.Type)) || o.Status.Phase != v1alpha1.OperationSucceeded) {
			continue
		}
		c, err := s.planned(o.Name)
		if err != nil || c.Spec.Kubernetes.Version != version {
			return c, err
		}
	}
	return nil, refused(idNoWayBack, "the records of cluster "+name+" do not say of which version it was before "+version, "finish the upgrade: slipway resume "+name)
}

// kept is the backup set that an operation has taken, nil if it has taken none.
func (s *service) kept(o *v1alpha1.Operation) *SnapshotInfo {
	if o.Status.StartTime == nil {
		return nil
	}
	sets, err := s.setsOf(o.Spec.Cluster)
	if err != nil {
		return nil
	}
	slices.Reverse(sets) // it was the first
	for _, set := range sets {
		if !set.Taken.Before(o.Status.StartTime.Truncate(time.Second)) && (o.Status.EndTime == nil || !set.Taken.After(o.Status.EndTime.Time)) {
			return &set
		}
	}
	return nil
}

// committed says, of a cluster that has come to another version, what leads back.
func (p *prepared) committed(res *Result) []string {
	if p.request.Kind != Upgrade || res.Outcome != event.Succeeded {
		return nil
	}
	o, err := p.svc.Store.Operation(res.Operation)
	if err != nil {
		return nil // nothing was done
	}
	out := []string{"this is a point of no return: slipway rollback goes back from it no more"}
	if set := p.svc.kept(o); set != nil && set.KeysOnly {
		out = append(out, "its keys as they were before, without the data of etcd, which are its owner's to have backed up: "+set.File)
	} else if set != nil {
		out = append(out, "as it was before: "+set.File)
	}
	return out
}
