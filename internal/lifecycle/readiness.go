package lifecycle

import (
	"context"
	"errors"
	"slices"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/release"
)

// readiness returns what could obstruct an upgrade, before anything is changed: in the
// cluster, in etcd, on hosts, and on the upgrade path to the target version.
func (p *prepared) readiness(ctx context.Context, o precheck.Options, progress event.Sink) (diag.List, error) {
	if !p.beginsUpgrade() {
		return nil, nil
	}
	r := precheck.Readiness{To: p.request.Upgrade.Version}
	var unfit diag.List // an unsuitable bundle is reported together with all other problems
	var err error
	if r.Missing, r.Unknown, err = p.wayThere(ctx); err != nil && !errors.As(err, &unfit) {
		return nil, err
	}
	session := p.svc.NewSession(p.env)
	session.Hosts = nil
	for _, h := range p.hosts {
		if h.Facts != nil {
			session.Hosts = append(session.Hosts, &inspect.Host{Spec: h.Host, Conn: h.Conn})
		}
	}
	if p.request.Upgrade.Follows && !slices.Contains(o.Ignore, precheck.IDBudget) {
		session.WaitMovedPods(ctx, p.svc.waits.between, progress)
	}
	warnings := session.CheckUpgrade(ctx, &r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat(precheck.CheckReadiness(r, o), unfit, warnings), nil
}

// wayThere returns the versions of the upgrade path after the next one that have no
// bundle yet, and all versions of the path that are not in the release table. It returns
// an error if the bundle of a version is unsuitable.
func (p *prepared) wayThere(ctx context.Context) (missing []string, unknown []release.Release, err error) {
	to := p.request.Upgrade.Version
	known, err := p.svc.releases(ctx, p.recorded, to, p.request.Upgrade.Bundle, p.bundleFor(to))
	if err != nil {
		return nil, nil, err
	}
	path, err := known.UpgradePath(runningVersion(p.recorded), to)
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
		later.Cluster.Spec.Bundle = p.bundleFor(v) // the saved bundle is for one version only
		has, err := (&source{svc: p.svc, env: later, arches: p.bundle.arches}).Have(ctx)
		if err != nil {
			return nil, nil, err
		}
		if has == nil {
			missing = append(missing, v)
		}
	}
	return missing, unknown, err
}
