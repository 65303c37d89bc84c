package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/addon"
	"slipway.dev/slipway/internal/diag"
)

// loadAddons reads what goes into the cluster, for operations that look after
// that: what is wrong with it is known before a host is asked for anything.
func (p *prepared) loadAddons(ctx context.Context) error {
	if !slices.Contains([]Kind{Create, Apply, Add, Remove, Upgrade}, p.request.Kind) {
		return nil
	}
	c := p.env.Cluster
	if len(c.Spec.Addons) == 0 {
		return nil
	}
	unfit, err := p.unfitAddons()
	if err != nil {
		return err
	}
	loader := addon.Loader{
		Cache: p.svc.Cache, Insecure: c.Spec.Registry.Insecure, Kubernetes: p.env.Release.Kubernetes, Images: p.env.Release.ImageRefs(),
		VerifiedKubelets: c.Spec.Kubernetes.Kubelet.Config["serverTLSBootstrap"] == true,
	}
	var warnings diag.List
	p.addons, warnings, err = loader.Load(ctx, c.Spec.Addons)
	p.told = append(unfit, warnings...)
	return err
}

// unfitAddons finds add-ons that do not work with a version of Kubernetes on the
// cluster's way. Passed over, each is a warning.
func (p *prepared) unfitAddons() (diag.List, error) {
	versions := []string{p.env.Release.Kubernetes}
	if p.request.Kind == Upgrade && p.recorded != nil && p.request.Version != "" {
		path, err := p.svc.Catalogue.UpgradePath(p.recorded.Spec.Kubernetes.Version, p.request.Version)
		if err != nil {
			return nil, err
		}
		versions = append(versions, path...)
	}
	var out diag.List
	for i, a := range p.env.Cluster.Spec.Addons {
		for _, v := range slices.Compact(slices.Sorted(slices.Values(versions))) {
			if len(a.Kubernetes) == 0 || slices.Contains(a.Kubernetes, minorOf(v)) {
				continue
			}
			d := diag.Diagnostic{
				ID: addon.IDKubernetes, Severity: diag.Error, Path: fmt.Sprintf("spec.addons[%d].kubernetes", i),
				Message: fmt.Sprintf("add-on %s works with Kubernetes %s, and not with %s", a.Name, strings.Join(a.Kubernetes, ", "), v),
				Hint:    "take a version of it that does; or, if it works all the same, go on with --ignore-check " + addon.IDKubernetes,
			}
			if slices.Contains(p.request.IgnoreChecks, addon.IDKubernetes) {
				d.Severity = diag.Warning
				d.Message += " (passed over with --ignore-check)"
			}
			out = append(out, d)
		}
	}
	return out, out.Err()
}

// minorOf is "1.37" of "v1.37.1".
func minorOf(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}
