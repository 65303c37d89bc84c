package lifecycle

import (
	"context"
	"errors"
	"slices"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/release"
)

// readiness returns what could obstruct an upgrade, before anything is changed: in the
// cluster, in etcd, on hosts, and on the upgrade path to the target version.
func (r *UpgradeRequest) readiness(ctx context.Context, p *prepared, o precheck.Options, progress event.Sink) (diag.List, error) {
	if !p.beginsUpgrade() {
		return nil, nil
	}
	is := precheck.Readiness{To: r.Version}
	var unfit diag.List // an unsuitable bundle is reported together with all other problems
	var err error
	if is.Missing, is.Unknown, err = r.wayThere(ctx, p); err != nil && !errors.As(err, &unfit) {
		return nil, err
	}
	session := p.svc.NewSession(ctx, p.env)
	session.Hosts = nil
	for _, h := range p.hosts {
		if h.Facts != nil {
			session.Hosts = append(session.Hosts, &inspect.Host{Spec: h.Host, Conn: h.Conn})
		}
	}
	if r.Follows && !slices.Contains(o.Ignore, precheck.IDBudget) {
		session.WaitMovedPods(ctx, p.svc.waits.between, progress)
	}
	warnings := session.CheckUpgrade(ctx, &is)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat(precheck.CheckReadiness(is, o), unfit, warnings), nil
}

// wayThere returns the versions of the upgrade path after the next one that have no
// bundle yet, and all versions of the path that are not in the release table. It returns
// an error if the bundle of a version is unsuitable.
func (r *UpgradeRequest) wayThere(ctx context.Context, p *prepared) (missing []string, unknown []release.Release, err error) {
	known, err := p.svc.bundles.ListReleases(ctx, p.recorded, r.Version, r.Bundle, upgrading{p}.bundleFor(r.Version))
	if err != nil {
		return nil, nil, err
	}
	path, err := known.UpgradePath(history.RunningVersion(p.recorded), r.Version)
	for i, v := range path {
		is, rerr := known.ResolveVersion(v)
		if err = errors.Join(err, rerr); err != nil {
			return nil, nil, err
		}
		if !is.Known {
			unknown = append(unknown, is)
		}
		if i == 0 {
			continue
		}
		later := module.Env{Cluster: p.recorded.DeepCopy(), Release: is}
		later.Cluster.Spec.Bundle = upgrading{p}.bundleFor(v) // the saved bundle is for one version only
		has, err := p.bundle.ForCluster(later).Have(ctx)
		if err != nil {
			return nil, nil, err
		}
		if has == nil {
			missing = append(missing, v)
		}
	}
	return missing, unknown, err
}
