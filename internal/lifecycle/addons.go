package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/addon"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
)

// loadAddons reads what goes into the cluster, for operations that look after
// that: what is wrong with it is known before a host is asked for anything. Of an
// upgrade it is told with all else that speaks against that, and so is what would
// be wrong behind later hops.
func (p *prepared) loadAddons(ctx context.Context) error {
	if !slices.Contains([]Kind{Create, Apply, Add, Remove, Upgrade, Revert}, p.request.Kind) {
		return nil
	}
	var err error
	if p.addons, p.told, err = p.addonsWith(ctx, p.env.Cluster.Spec.Addons, p.env.Release); err != nil {
		return err
	}
	if p.request.Kind == Revert { // nothing of theirs is to be in its way
		p.keepAddons = p.told.Err() != nil
		for i := range p.told {
			p.told[i].Severity = diag.Warning
		}
		return nil
	}
	if !p.begins() {
		return p.told.Err()
	}
	for i, hop := range p.request.way {
		if i == 0 {
			continue
		}
		is, err := p.svc.resolve(ctx, p.env.Cluster, hop.version, hop.bundle)
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

// addonsWith are add-ons as they are with a release of Kubernetes, and what there
// is to say of them: with an error among that, there are none.
func (p *prepared) addonsWith(ctx context.Context, list []v1alpha1.Addon, is release.Release) ([]addon.Addon, diag.List, error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	c := p.env.Cluster
	told := unfitAddons(list, is.Kubernetes, p.request.IgnoreChecks)
	loader := addon.Loader{
		Cache: p.svc.Cache, Insecure: c.Spec.Registry.Insecure, Speak: speaking(p.env).Speak, Kubernetes: is.Kubernetes, Images: is.ImageRefs(),
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

// inFile has what is to say of a cluster name its place in the cluster's file, if
// that is at hand.
func (r Request) inFile(list diag.List) diag.List {
	if len(list) == 0 || len(r.Source) == 0 || r.File == "" {
		return list
	}
	loaded, err := reader(r.Cluster).Load(r.File, r.Source)
	if err != nil { // it was read before: this is another's
		return list
	}
	return loaded.Place(list)
}

// A hop is one version on the way of an upgrade, the add-ons behind it, and the
// bundle that the file names for it, "" for none.
type hop struct {
	version string
	addons  []v1alpha1.Addon
	bundle  string
}

// onTheWay are the hops of an upgrade. The bundle that the file names is for the
// last.
func onTheWay(r Request, recorded *v1alpha1.Cluster, path []string, bundle string) (way []hop) {
	now := recorded.Spec.Addons
	for i, v := range path {
		last := i == len(path)-1
		if r.Cluster != nil {
			now = nextAddons(now, r.Cluster.Spec.Addons, v, last)
		}
		way = append(way, hop{version: v, addons: now})
		if last {
			way[i].bundle = bundle
		}
	}
	return way
}

// bundleFor is the bundle that the file names for a version on the way, "" for none.
func (r Request) bundleFor(version string) string {
	for _, h := range r.way {
		if h.version == version {
			return h.bundle
		}
	}
	return ""
}

// nextAddons are the add-ons behind a hop to a version: those of the file as soon
// as they work with it, until then those that the cluster has. Behind the last one
// they are the file's.
func nextAddons(was, file []v1alpha1.Addon, version string, last bool) (out []v1alpha1.Addon) {
	if last {
		return file
	}
	named := func(list []v1alpha1.Addon, name string) int {
		return slices.IndexFunc(list, func(a v1alpha1.Addon) bool { return a.Name == name })
	}
	for _, a := range was { // what is dropped goes at the end, if it can stay so long
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

// unfitAddons finds add-ons that do not work with a version of Kubernetes. Passed
// over, each is a warning.
func unfitAddons(list []v1alpha1.Addon, version string, ignored []string) (out diag.List) {
	for i, a := range list {
		if worksWith(a, version) {
			continue
		}
		d := diag.Diagnostic{
			ID: addon.IDKubernetes, Severity: diag.Error, Path: fmt.Sprintf("spec.addons[%d].kubernetes", i),
			Message: fmt.Sprintf("add-on %s works with Kubernetes %s, and not with %s", a.Name, strings.Join(a.Kubernetes, ", "), version),
			Hint:    "take a version of it that does; or, if it works all the same, go on with --ignore-check " + addon.IDKubernetes,
		}
		if slices.Contains(ignored, addon.IDKubernetes) {
			d.Severity = diag.Warning
			d.Message += " (passed over with --ignore-check)"
		}
		out = append(out, d)
	}
	return out
}

// minorOf is "1.37" of "v1.37.1".
func minorOf(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}
