package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/containerruntime"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// rollbackUpgrade rolls back an unfinished upgrade.
func rollbackUpgrade() behaviour {
	b := usual()
	b.findings = func(ctx context.Context, p *prepared, _ precheck.Options, _ event.Sink) (diag.List, error) {
		return upgradeRollback{p}.findNewerObjects(ctx)
	}
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		p.env.Upgrade = p.request.rollout
		p.env.Upgrade.Resumed, p.env.Upgrade.IsRollback = true, true
		_, begun, err := upgradeRollback{p}.upgradeProgress(ctx)
		if err != nil {
			return engine.Pipeline{}, err
		}
		p.env.Upgrade.BegunSteps = begun
		parts.KeepAddons = p.keepAddons
		return pipeline.RollbackUpgrade(p.env, parts)
	}
	b.awaits = func(h *engine.Host) bool { return hostroles.RunsKubelet(h.Roles) }
	b.summary = clusterReady
	b.rollBack = func(ctx context.Context, p *prepared, o *v1alpha1.Operation) error {
		if err := p.svc.refuseOnceRetired(ctx, o); err != nil {
			return err
		}
		return upgradeRollback{p}.targetBeforeUpgrade(ctx, o)
	}
	return b
}

// An upgradeRollback is the rollback of an upgrade that is being prepared.
type upgradeRollback struct{ *prepared }

// targetBeforeUpgrade makes the operation roll back an upgrade, or continue such a rollback. Hosts
// that have left since then are not added again.
func (p upgradeRollback) targetBeforeUpgrade(ctx context.Context, o *v1alpha1.Operation) error {
	s, r := p.svc, &p.request
	recorded, err := s.Records.Clusters().Load(ctx, o.Spec.ClusterRef.Name)
	if err != nil {
		return err
	}
	to, err := s.past.PlannedCluster(ctx, o.Name)
	if err != nil {
		return err
	}
	if operation.IsUpgrade(o) {
		was, err := s.past.ClusterBeforeUpgrade(ctx, o.Spec.ClusterRef.Name, to.Spec.Kubernetes.Version)
		if err != nil {
			return err
		}
		to = was
	}
	back := recorded.DeepCopy()
	back.Spec.Kubernetes.Version, back.Spec.Bundle, back.Spec.Addons = to.Spec.Kubernetes.Version, to.Spec.Bundle, to.Spec.Addons
	p.target = back
	r.removal.Force = r.removal.Force || o.Spec.Parameters.Force
	if r.removal.DrainTimeout == 0 {
		r.removal.DrainTimeout = o.Spec.Parameters.DrainTimeout.Duration
	}
	if r.rollout.MaxUnavailable == "" {
		r.rollout.MaxUnavailable = o.Spec.Parameters.MaxUnavailable
	}
	r.Source, err = s.past.SourceBefore(ctx, o.Spec.ClusterRef.Name)
	return err
}

// describeBackupBefore describes the backup set from before an upgrade, and what a restore of it loses.
func (s *Service) describeBackupBefore(ctx context.Context, o *v1alpha1.Operation) string {
	set := s.Backups.MadeBy(ctx, o)
	if set == nil {
		return "; this machine has no backup set from before the upgrade"
	}
	if set.KeysOnly {
		return "; " + set.File + " has the cluster's keys from before the upgrade, but " +
			"only the owner of the external etcd can have a backup of its data"
	}
	return fmt.Sprintf("; the backup from before the upgrade (%s) is %s, and a restore of it loses all later writes",
		o.Status.StartTime.UTC().Format(time.DateTime), set.File)
}

// refuseCompletedUpgrade replaces the error "nothing unfinished" if the latest operation is a completed
// upgrade: it explains that this upgrade cannot be rolled back.
func (s *Service) refuseCompletedUpgrade(ctx context.Context, name string, unfinished error) error {
	var list diag.List
	if !errors.As(unfinished, &list) || list[0].ID != idNothingUnfinished {
		return unfinished
	}
	ops, err := s.past.ListBegun(ctx, name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ops, func(o v1alpha1.Operation) bool {
		return operation.Kind(o.Spec.Kind).Supersedes() && o.Status.StartTime != nil
	})
	if at < 0 || !operation.IsUpgrade(&ops[at]) {
		return unfinished
	}
	is, err := s.past.PlannedCluster(ctx, ops[at].Name)
	if err != nil {
		return err
	}
	hint := "restore this data with the current Kubernetes version: slipway etcd restore " + name + " --from FILE"
	if is.Spec.Etcd.External != nil {
		hint = "ask the owner of the external etcd to restore the earlier data"
	}
	return diag.Refuse(idUpgradeCommitted,
		"the upgrade to "+is.Spec.Kubernetes.Version+" is complete and cannot be rolled back"+s.describeBackupBefore(ctx, &ops[at]), hint)
}

// refuseOnceRetired refuses to roll back an upgrade that has begun to remove the files of the
// previous version from hosts. All other steps of such an upgrade are done.
func (s *Service) refuseOnceRetired(ctx context.Context, o *v1alpha1.Operation) error {
	if !operation.IsUpgrade(o) {
		return nil
	}
	_, begun, err := s.past.Steps(ctx, o.Name)
	if err != nil {
		return err
	}
	for step := range begun {
		if strings.HasPrefix(step, containerruntime.StepPrune+"@") {
			return diag.Refuse(idUpgradeCommitted,
				"the upgrade is already removing the previous version from hosts and can no longer be rolled back"+s.describeBackupBefore(ctx, o),
				"finish the upgrade: slipway resume "+o.Spec.ClusterRef.Name)
		}
	}
	return nil
}

// findNewerObjects refuses a rollback to a version that does not know the kinds of existing
// objects: these objects could not be listed or deleted after it. Objects that the
// API servers create for themselves do not count.
func (p upgradeRollback) findNewerObjects(ctx context.Context) (diag.List, error) {
	newer, _, err := p.upgradeProgress(ctx)
	if err != nil || release.SameMinor(newer.Kubernetes, p.env.Release.Kubernetes) {
		return nil, err
	}
	if newer.Beyond {
		return warnKindsUnlisted(newer.Kubernetes, p.env.Release.Kubernetes), nil
	}
	l := p.svc.NewSession(ctx, p.env)
	var servers []*inspect.Host
	for _, h := range p.hosts {
		if h.Facts != nil && h.HasRole(v1alpha1.RoleControlPlane) && module.IsJoined(h) {
			servers = append(servers, &inspect.Host{Spec: h.Host, Conn: h.Conn})
		}
	}
	var mu sync.Mutex
	var used []string
	asked := 0
	hostconn.ForEach(servers, func(h *inspect.Host) {
		ctx, cancel := context.WithTimeout(ctx, p.svc.Limits.Through)
		defer cancel()
		client, err := l.ControlPlaneClient(h)
		if err != nil {
			return // notServing reports this API server
		}
		defer client.Close()
		for _, kind := range newer.Adds {
			objects, err := client.Objects().ListNames(ctx, kind)
			if err != nil {
				return
			}
			mu.Lock()
			for _, o := range objects {
				if name := kind + " " + o; !strings.HasPrefix(o, "kubernetes.io:") && !slices.Contains(used, name) {
					used = append(used, name)
				}
			}
			mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		asked++
	})
	if len(used) == 0 && asked == len(servers) {
		return nil, nil
	}
	if len(used) == 0 {
		return diag.List{{
			ID: idKindsInUse, Severity: diag.Warning,
			Message: fmt.Sprintf("%d of %d API servers could not be queried for objects of kinds that Kubernetes %s "+
				"does not know: if such objects exist, they are inaccessible after the rollback",
				len(servers)-asked, len(servers), p.env.Release.Kubernetes),
			Hint: "make an API server of " + newer.Kubernetes + " reachable and look for objects of these kinds: " + strings.Join(newer.Adds, ", "),
		}}, nil
	}
	slices.Sort(used)
	return p.refuseObjectsInUse(ctx, used)
}

// refuseObjectsInUse refuses the rollback because of these objects.
func (p upgradeRollback) refuseObjectsInUse(ctx context.Context, used []string) (diag.List, error) {
	name := p.env.Cluster.Name
	hint := "delete these objects if you do not need them, or finish the upgrade: slipway resume " + name
	if o, err := p.svc.past.LatestUpgrade(ctx, name); err != nil {
		return nil, err
	} else if o != nil {
		hint += "; " + p.svc.describeRestoreInstead(ctx, o)
	}
	return diag.Refuse(idKindsInUse,
		fmt.Sprintf("Kubernetes %s does not know the kinds of these existing objects: %s", p.env.Release.Kubernetes,
			strings.Join(used, ", ")), hint), nil
}

// describeRestoreInstead describes the restore of the data from before an upgrade, and what it loses.
func (s *Service) describeRestoreInstead(ctx context.Context, o *v1alpha1.Operation) string {
	const again = "restore the data from before the upgrade, which loses these objects and all other later writes"
	set := s.Backups.MadeBy(ctx, o)
	switch {
	case set == nil:
		return "this machine has no backup set from before the upgrade"
	case set.KeysOnly:
		return "or ask the owner of the external etcd to " + again
	}
	return "or " + again + ": slipway etcd restore " + o.Spec.ClusterRef.Name + " --from " + set.File
}

// warnKindsUnlisted warns that the release table does not list the new kinds of a version.
func warnKindsUnlisted(newer, older string) diag.List {
	return diag.List{{
		ID: idKindsInUse, Severity: diag.Warning,
		Message: fmt.Sprintf("the release table does not list the kinds that Kubernetes %s has and %s does not: "+
			"objects of such kinds are inaccessible after the rollback",
			newer, older),
		Hint: "check the release notes of " + newer + " for new kinds",
	}}
}

// upgradeProgress returns the release that a rollback starts from, and the steps of the upgrade
// that have begun. The release has no component versions: perhaps only a bundle that
// no longer exists has them.
func (p upgradeRollback) upgradeProgress(ctx context.Context) (is release.Release, begun map[string]bool, err error) {
	o, err := p.svc.past.LatestUpgrade(ctx, p.env.Cluster.Name)
	if err != nil {
		return is, nil, err
	}
	if o == nil {
		return p.env.Release, nil, nil
	}
	c, err := p.svc.past.PlannedCluster(ctx, o.Name)
	if err != nil {
		return is, nil, err
	}
	version := c.Spec.Kubernetes.Version
	if is, err = p.svc.Catalogue.WithVersion(version, release.Components{}).ResolveVersion(version); err != nil {
		return is, nil, err
	}
	_, begun, err = p.svc.past.Steps(ctx, o.Name)
	return is, begun, err
}
