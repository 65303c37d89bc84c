package addon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/addon"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// withCert is an add-on as it is compared with the cluster: with the certificate that
// the cluster has. If that has to be made again, the objects with it are left out, and
// due says what happens to them: a plan holds nothing that is made by chance.
func withCert(ctx context.Context, c *kube.Client, a addon.Addon) (_ addon.Addon, due []plan.OpChange, err error) {
	if a.Serving == nil {
		return a, nil, nil
	}
	have, err := servingCert(ctx, c, a)
	if err != nil {
		return a, nil, err
	}
	why := have.Due(*a.Serving, time.Now())
	if why == "" {
		return a.With(have), nil, nil
	}
	mine := func(o *unstructured.Unstructured) bool { return a.Serving.IsSecret(o) || a.Serving.IsAPI(o) }
	for _, o := range a.Objects {
		if mine(o) {
			due = append(due, plan.OpChange{Kind: module.KindObject, Target: addon.RefOf(o).String(), Summary: "make the serving certificate: " + why})
		}
	}
	a.Objects = slices.DeleteFunc(slices.Clone(a.Objects), mine)
	return a, due, nil
}

// certified is an add-on as it is applied: with the certificate that the cluster has,
// or with another if that has to be made again.
func certified(ctx context.Context, c *kube.Client, a addon.Addon) (addon.Addon, error) {
	if a.Serving == nil {
		return a, nil
	}
	cert, err := servingCert(ctx, c, a)
	if err != nil {
		return a, err
	}
	if now := time.Now(); cert.Due(*a.Serving, now) != "" {
		if cert, err = a.Serving.NewServingCert(now, cert); err != nil {
			return a, fmt.Errorf("making the certificate of add-on %s: %w", a.Name, err)
		}
	}
	return a.With(cert), nil
}

// servingCert is the certificate that the cluster has.
func servingCert(ctx context.Context, c *kube.Client, a addon.Addon) (addon.ServingCert, error) {
	at := slices.IndexFunc(a.Objects, a.Serving.IsSecret)
	if at < 0 {
		return addon.ServingCert{}, fmt.Errorf("add-on %s has no Secret %s", a.Name, a.Serving.Secret)
	}
	live, err := c.Live(ctx, a.Objects[at])
	return addon.ServingCertOf(live), err
}
