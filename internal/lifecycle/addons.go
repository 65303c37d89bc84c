package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/bundlesource"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
)

// loadAddons reads the add-ons, for operations that manage them, so that problems are
// known before hosts are queried. For an upgrade, they are reported together with all
// other findings, including problems of the add-ons with later versions of the path.
func (p *prepared) loadAddons(ctx context.Context) error {
	if !p.kind.ManagesAddons() {
		return nil
	}
	var err error
	if p.addons, p.told, err = p.addonsWith(ctx, p.env.Cluster.Spec.Addons, p.env.Release); err != nil {
		return err
	}
	if p.kind.ToleratesAddonProblems() { // they must not prevent a rollback
		p.keepAddons = p.told.Err() != nil
		for i := range p.told {
			p.told[i].Severity = diag.Warning
		}
		return nil
	}
	if !p.beginsUpgrade() {
		return p.told.Err()
	}
	for i, hop := range p.way {
		if i == 0 {
			continue
		}
		is, err := p.svc.bundles.ResolveRelease(ctx, p.env.Cluster, hop.version, hop.bundle)
		if err != nil {
			return err
		}
		_, told, err := p.addonsWith(ctx, hop.addons, is)
		if err != nil {
			return err
		}
		for _, d := range told {
			if !slices.Contains(p.told, d) {
				p.told = append(p.told, d)
			}
		}
	}
	return nil
}

// addonsWith loads add-ons for a Kubernetes release and returns them with the findings
// about them. If there is an error among the findings, it returns no add-ons.
func (p *prepared) addonsWith(ctx context.Context, list []v1alpha1.Addon, is release.Release) ([]addonsource.Addon, diag.List, error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	c := p.env.Cluster
	told := unfitAddons(list, is.Kubernetes, p.request.IgnoreChecks)
	loader := addonsource.Loader{
		Cache: p.svc.Cache, Insecure: c.Spec.Registry.Insecure, Speak: bundlesource.RegistryOf(p.env).AccessOptions,
		Kubernetes: is.Kubernetes, Images: is.ImageRefs(),
		VerifiedKubelets: spec.SignsKubelets(c),
	}
	loaded, warnings, err := loader.Load(ctx, list)
	told = append(told, warnings...)
	var wrong diag.List
	if errors.As(err, &wrong) {
		return nil, p.request.inFile(append(told, wrong...)), nil
	}
	return loaded, p.request.inFile(told), err
}

// A hop is one version of an upgrade path, the add-ons after it, and the bundle that
// the file names for it, "" for none.
type hop struct {
	version string
	addons  []v1alpha1.Addon
	bundle  string
}

// onTheWay returns the hops of an upgrade. The bundle of the file is for the last one.
func onTheWay(file, recorded *v1alpha1.Cluster, path []string, bundle string) (way []hop) {
	now := recorded.Spec.Addons
	for i, v := range path {
		last := i == len(path)-1
		if file != nil {
			now = nextAddons(now, file.Spec.Addons, v, last)
		}
		way = append(way, hop{version: v, addons: now})
		if last {
			way[i].bundle = bundle
		}
	}
	return way
}

// bundleFor returns the bundle that the file names for a version of the upgrade path, ""
// for none.
func (p upgrading) bundleFor(version string) string {
	for _, h := range p.way {
		if h.version == version {
			return h.bundle
		}
	}
	return ""
}

// nextAddons returns the add-ons after a hop to a version: for each add-on, the one of
// the file as soon as it works with the version, until then the one of the cluster.
// After the last hop they are the add-ons of the file.
func nextAddons(was, file []v1alpha1.Addon, version string, last bool) (out []v1alpha1.Addon) {
	if last {
		return file
	}
	named := func(list []v1alpha1.Addon, name string) int {
		return slices.IndexFunc(list, func(a v1alpha1.Addon) bool { return a.Name == name })
	}
	for _, a := range was { // a dropped add-on is removed at the end, if it works until then
		if named(file, a.Name) < 0 && worksWith(a, version) {
			out = append(out, a)
		}
	}
	for _, a := range file {
		if at := named(was, a.Name); worksWith(a, version) {
			out = append(out, a)
		} else if at >= 0 {
			out = append(out, was[at])
		}
	}
	return out
}

func worksWith(a v1alpha1.Addon, version string) bool {
	return len(a.Kubernetes) == 0 || slices.Contains(a.Kubernetes, minorOf(version))
}

// unfitAddons returns a finding for each add-on that does not work with a Kubernetes
// version: an error, or a warning if the check is ignored.
func unfitAddons(list []v1alpha1.Addon, version string, ignored []string) (out diag.List) {
	for i, a := range list {
		if worksWith(a, version) {
			continue
		}
		d := diag.Diagnostic{
			ID: addonsource.IDKubernetes, Severity: diag.Error, Path: fmt.Sprintf("spec.addons[%d].kubernetes", i),
			Message: fmt.Sprintf("add-on %s works with Kubernetes %s, but not with %s", a.Name, strings.Join(a.Kubernetes, ", "), version),
			Hint:    "use a version of the add-on that works with this version of Kubernetes",
		}
		if slices.Contains(ignored, addonsource.IDKubernetes) {
			d.Severity = diag.Warning
			d.Message += " (ignored with --ignore-check)"
		}
		out = append(out, d)
	}
	return out
}

// minorOf returns "1.37" for "v1.37.1".
func minorOf(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}
