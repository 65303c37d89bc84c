package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
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
	unfit := unfitAddons(c.Spec.Addons, p.env.Release.Kubernetes, p.request.IgnoreChecks)
	if err := unfit.Err(); err != nil {
		return err
	}
	loader := addon.Loader{
		Cache: p.svc.Cache, Insecure: c.Spec.Registry.Insecure, Speak: speaking(p.env).Speak, Kubernetes: p.env.Release.Kubernetes, Images: p.env.Release.ImageRefs(),
		VerifiedKubelets: c.Spec.Kubernetes.Kubelet.Config["serverTLSBootstrap"] == true,
	}
	loaded, warnings, err := loader.Load(ctx, c.Spec.Addons)
	p.addons, p.told = loaded, append(unfit, warnings...)
	return err
}

// addonsOnTheWay are a cluster's add-ons behind the first hop of an upgrade. What
// does not work with a version on the way is refused before the first hop.
func addonsOnTheWay(r Request, recorded *v1alpha1.Cluster, path []string) ([]v1alpha1.Addon, error) {
	was := recorded.Spec.Addons
	if r.Cluster != nil && len(path) == 0 {
		return r.Cluster.Spec.Addons, nil
	}
	if r.Cluster == nil {
		for _, v := range path {
			if err := unfitAddons(was, v, r.IgnoreChecks).Err(); err != nil {
				return nil, err
			}
		}
		return was, nil
	}
	var first []v1alpha1.Addon
	for i, v := range path {
		was = nextAddons(was, r.Cluster.Spec.Addons, v, i == len(path)-1)
		if err := unfitAddons(was, v, r.IgnoreChecks).Err(); err != nil {
			return nil, err
		}
		if i == 0 {
			first = was
		}
	}
	return first, nil
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
