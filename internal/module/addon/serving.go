package addon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// withCert returns an add-on for the comparison with the cluster: with the certificate
// that the cluster has. If the certificate must be issued again, the objects that contain
// it are left out, and due has their changes: a plan contains no generated values.
func withCert(ctx context.Context, c *kube.Client, a addonsource.Addon) (_ addonsource.Addon, due []plan.OpChange, err error) {
	if a.Serving == nil {
		return a, nil, nil
	}
	have, err := servingCert(ctx, c, a)
	if err != nil {
		return a, nil, err
	}
	why := have.RenewalReason(*a.Serving, time.Now())
	if why == "" {
		return a.WithServingCert(have), nil, nil
	}
	mine := func(o *unstructured.Unstructured) bool { return a.Serving.IsSecret(o) || a.Serving.IsAPI(o) }
	for _, o := range a.Objects {
		if mine(o) {
			due = append(due,
				plan.OpChange{Kind: module.KindObject, Target: addonsource.RefOf(o).String(), Summary: "issue the serving certificate: " + why})
		}
	}
	a.Objects = slices.DeleteFunc(slices.Clone(a.Objects), mine)
	return a, due, nil
}

// withRenewedCert returns an add-on as it is applied: with the certificate that the
// cluster has, or with a new one if it is due.
func withRenewedCert(ctx context.Context, c *kube.Client, a addonsource.Addon) (addonsource.Addon, error) {
	if a.Serving == nil {
		return a, nil
	}
	cert, err := servingCert(ctx, c, a)
	if err != nil {
		return a, err
	}
	if now := time.Now(); cert.RenewalReason(*a.Serving, now) != "" {
		if cert, err = a.Serving.NewServingCert(now, cert); err != nil {
			return a, fmt.Errorf("creating the certificate of add-on %s: %w", a.Name, err)
		}
	}
	return a.WithServingCert(cert), nil
}

// servingCert returns the certificate that the cluster has.
func servingCert(ctx context.Context, c *kube.Client, a addonsource.Addon) (addonsource.ServingCert, error) {
	at := slices.IndexFunc(a.Objects, a.Serving.IsSecret)
	if at < 0 {
		return addonsource.ServingCert{}, fmt.Errorf("add-on %s has no Secret %s", a.Name, a.Serving.Secret)
	}
	live, err := c.Objects().Get(ctx, a.Objects[at])
	return addonsource.ServingCertOf(live), err
}
