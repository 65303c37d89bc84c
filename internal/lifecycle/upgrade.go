package lifecycle

import (
	"cmp"
	"context"
	"fmt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/spec"
)

// An UpgradeRequest asks to upgrade a saved cluster by one minor. The cluster of a file may
// differ from the saved one in its version, its add-ons and its bundle only.
type UpgradeRequest struct {
	Subject
	Options
	// Removal configures how nodes are drained.
	Removal Removal
	// MaxUnavailable is how many workers are out of service at once: a number or a
	// percentage; "" means one. PauseAfter selects where the upgrade stops.
	MaxUnavailable string
	PauseAfter     Pause
	// Version is the target version; "" is the version of Cluster. Bundle is the bundle of
	// the next version on the upgrade path; "" finds or builds one.
	Version, Bundle string
	// Follows reports whether the upgrade to the previous minor has just finished. Then
	// pods that it moved are waited for if a disruption budget needs them.
	Follows bool
}

func (r UpgradeRequest) shared() sharedRequest {
	return sharedRequest{
		Subject: r.Subject, Options: r.Options, removal: r.Removal,
		rollout: module.Upgrade{MaxUnavailable: r.MaxUnavailable, PauseAfter: r.PauseAfter},
	}
}

func (r UpgradeRequest) behaviour() behaviour { return upgradeCluster(&r) }

// upgradeCluster upgrades a cluster by one minor.
func upgradeCluster(r *UpgradeRequest) behaviour {
	b := usual()
	b.wanted = func(ctx context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
		wanted, err := r.nextMinor(ctx, p)
		return wanted, false, err
	}
	b.findings = r.readiness
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		p.env.Upgrade = p.request.rollout
		p.env.Upgrade.Resumed = p.continues != nil
		p.env.Upgrade.Backup = p.beginsUpgrade() || p.continues != nil
		parts.Backup = upgrading{p}.takeBackup
		return pipeline.UpgradeCluster(p.env, parts)
	}
	b.awaits = func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) }
	b.finish = func(p *prepared, o *v1alpha1.Operation, res *Result) {
		if v := r.Version; res.Outcome == event.Succeeded && v != p.env.Release.Kubernetes {
			res.Onward, res.OnwardFile, res.Reached = v, o.Spec.Parameters.File, p.env.Release.Kubernetes
		}
	}
	b.summary = func(ctx context.Context, p *prepared, res *Result) []string {
		lines := clusterReady(ctx, p, res)
		if len(p.env.Leaving) > 0 {
			return lines
		}
		return append(lines, upgrading{p}.describeCompletedUpgrade(ctx, res)...)
	}
	b.save = func(p *prepared, o *v1alpha1.OperationParameters) {
		o.Version, o.File = r.Version, p.request.upgradeFile()
	}
	b.resume = func(o *v1alpha1.OperationParameters) { r.Version = o.Version }
	return b
}

// beginsUpgrade reports whether this is an upgrade, or a step of one, that has not begun yet.
func (p *prepared) beginsUpgrade() bool {
	return p.kind == operation.Upgrade && p.continues == nil && history.RunningVersion(p.recorded) != p.env.Release.Kubernetes
}

// nextMinor returns the saved cluster with the next version of its upgrade path, or
// unchanged if it already has the requested version. It sets the target version in
// the request, and clears the source if the file describes the end of the path only.
func (r *UpgradeRequest) nextMinor(ctx context.Context, p *prepared) (*v1alpha1.Cluster, error) {
	s, recorded := p.svc, p.recorded
	if !savedstate.IsCreated(recorded) {
		return nil, diag.Refuse(idNotCreated, "cluster "+recorded.Name+" is not running yet: its creation has not finished",
			"finish the creation first: slipway resume "+recorded.Name)
	}
	if recorded.Status.Phase != v1alpha1.PhaseRunning {
		return nil, diag.Refuse(idOperationUnfinished, "the latest operation of cluster "+recorded.Name+" is unfinished",
			"finish the operation first: slipway resume "+recorded.Name)
	}
	was := history.RunningVersion(recorded)
	file, bundle := p.request.Cluster, ""
	if file != nil {
		if r.Version = cmp.Or(r.Version, file.Spec.Kubernetes.Version); r.Version == "" {
			return nil, diag.Refuse(idUpgradeHow, "the file has no Kubernetes version to upgrade to",
				"write spec.kubernetes.version into the file, or set the version with --to")
		}
		if file.Spec.Kubernetes.Version != "" && file.Spec.Kubernetes.Version != r.Version {
			return nil, diag.Refuse(idUpgradeHow,
				"the file has Kubernetes version "+file.Spec.Kubernetes.Version+", but --to is "+r.Version,
				"use the same version in both, or omit --to")
		}
		file = file.DeepCopy()
		if err := spec.MakePathsAbsolute(file, spec.Paths{Dir: p.request.Dir, Home: s.Home}); err != nil {
			return nil, err
		}
		bundle = file.Spec.Bundle
		if !history.ChangesOnlyVersion(file, recorded, s.asRecorded) {
			return nil, diag.Refuse(idUpgradeHow, "the file has other changes besides the Kubernetes version",
				"apply the other changes first, with version: "+was+" in the file: slipway apply -f "+cmp.Or(p.request.File, "FILE"))
		}
	}
	known, err := s.bundles.ListReleases(ctx, recorded, r.Version, r.Bundle, bundle)
	if err != nil {
		return nil, err
	}
	path, err := known.UpgradePath(was, r.Version)
	if err != nil {
		return nil, err
	}
	if err := checkSettingsOnPath(recorded, was, path); err != nil {
		return nil, err
	}
	wanted := recorded.DeepCopy()
	wanted.Spec.Kubernetes.Version = was
	if p.way = onTheWay(p.request.Cluster, recorded, path, bundle); len(path) == 0 {
		if from := p.request.Cluster; from != nil {
			wanted.Spec.Addons = from.Spec.Addons
		}
		return wanted, nil
	}
	wanted.Spec.Addons = p.way[0].addons
	wanted.Spec.Kubernetes.Version, wanted.Spec.Bundle = path[0], cmp.Or(r.Bundle, p.way[0].bundle)
	if r.Version = path[len(path)-1]; r.Version != path[0] {
		p.request.Source = nil // the file describes the end of the path
	}
	return wanted, nil
}

// checkSettingsOnPath refuses an upgrade if its path has a version in which a component would not
// start with the cluster's settings.
func checkSettingsOnPath(c *v1alpha1.Cluster, is string, path []string) error {
	var list diag.List
	seen := map[string]bool{}
	for _, version := range path {
		for _, d := range spec.ComponentSettings(c, version).Errors() {
			if !seen[d.Path] {
				d.Hint = "remove the setting first: run 'slipway apply' with a file that does not have it, with version: " + is
				list = append(list, d)
			}
			seen[d.Path] = true
		}
	}
	return list.Err()
}

// upgradeFile returns the path of the cluster file of an upgrade, as saved in its operation.
func (s Subject) upgradeFile() string {
	if s.Cluster == nil {
		return ""
	}
	return cmp.Or(s.File, "-")
}

// describesPathEnd reports whether the file of an upgrade describes the end of the upgrade path,
// and not the minor that is in progress.
func describesPathEnd(goesOn *v1alpha1.Cluster, o *v1alpha1.Operation) bool {
	return operation.IsUpgrade(o) && o.Spec.Parameters.File != "" && o.Spec.Parameters.Version != goesOn.Spec.Kubernetes.Version
}

// fileForMinor returns such a file with the version, add-ons and bundle of the minor in progress.
func fileForMinor(goesOn *v1alpha1.Cluster, o *v1alpha1.Operation, file *v1alpha1.Cluster) *v1alpha1.Cluster {
	if says := file.Spec.Kubernetes.Version; !describesPathEnd(goesOn, o) || says != "" && says != o.Spec.Parameters.Version {
		return file
	}
	file = file.DeepCopy()
	file.Spec.Kubernetes.Version, file.Spec.Addons, file.Spec.Bundle = goesOn.Spec.Kubernetes.Version, goesOn.Spec.Addons, goesOn.Spec.Bundle
	return file
}

// refuseWhileUnfinished refuses a rotation of the cluster CA while another operation is
// unfinished: the manifests would have settings before their turn, and name files that do
// not exist yet.
func (p *prepared) refuseWhileUnfinished() error {
	if !p.behaviour.writesManifests() || p.recorded.Status.Phase == v1alpha1.PhaseRunning {
		return nil
	}
	return diag.Refuse(idOperationUnfinished, "the latest operation of cluster "+p.recorded.Name+" is unfinished",
		"finish the operation first: slipway resume "+p.recorded.Name)
}

// An upgrading is an upgrade that is being prepared.
type upgrading struct{ *prepared }

// takeBackup makes a backup set of a cluster that still has the previous version.
func (p upgrading) takeBackup(ctx context.Context, tell func(event.Event)) error {
	name := p.env.Cluster.Name
	from, err := p.svc.past.ClusterBeforeUpgrade(ctx, name, p.env.Release.Kubernetes)
	if err != nil {
		return err
	}
	set, err := p.svc.Snapshot(ctx, name,
		backups.SnapshotOptions{Version: from.Spec.Kubernetes.Version, KeysOnly: p.env.Cluster.Spec.Etcd.External != nil}, event.SinkFunc(tell))
	if err != nil {
		return fmt.Errorf("backing up the cluster before the upgrade: %w", err)
	}
	note := "backup from before the upgrade: "
	if set.KeysOnly {
		note = "backup of the keys from before the upgrade (the owner of the external etcd has to back up its data): "
	}
	tell(event.Event{Type: event.Note, Message: note + set.File})
	return nil
}

// describeCompletedUpgrade describes how the previous state can be restored after a
// completed upgrade.
func (p upgrading) describeCompletedUpgrade(ctx context.Context, res *Result) []string {
	if res.Outcome != event.Succeeded {
		return nil
	}
	o, err := p.svc.Records.Operations().Load(ctx, res.Operation)
	if err != nil {
		return nil // there was nothing to do
	}
	out := []string{"this upgrade can no longer be rolled back with 'slipway rollback'"}
	if set := p.svc.Backups.MadeBy(ctx, o); set != nil && set.KeysOnly {
		out = append(out, "backup of the keys from before the upgrade "+
			"(without the data of the external etcd, which its owner has to back up): "+set.File)
	} else if set != nil {
		out = append(out, "backup from before the upgrade: "+set.File)
	}
	return out
}
