package lifecycle

import (
	"slices"
	"time"

	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// issueCertificates replaces the placeholders on the hosts with real certificates, and
// saves a kubeconfig for their CA.
func (w *world) issueCertificates(left time.Duration) {
	w.t.Helper()
	w.recorded(w.IssueCertificates(left))
}

// recorded saves a kubeconfig in which the manager trusts the current CA.
func (w *world) recorded(ca *pkitest.Authority) {
	w.t.Helper()
	c, err := w.service().Cluster(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	text := kubeconfig.Untrusted{Text: []byte(w.API.Kubeconfig()), CAs: []byte(string(w.API.CA()) + ca.Cert)}
	conf, err := clusterstate.MakeExternalKubeconfig(module.Env{Cluster: c}, text, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.service().Records.Kubeconfigs().Save(w.t.Context(), "prod", conf); err != nil {
		w.t.Fatal(err)
	}
}

// checked returns a check of the cluster's certificates.
func (w *world) checked(within time.Duration) *inspect.Certificates {
	w.t.Helper()
	c, err := w.service().Certificates(w.t.Context(), Subject{Name: "prod"}, within, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// certIDs returns the distinct ids of the warnings, each with its host.
func certIDs(c *inspect.Certificates) []string {
	out := []string{}
	for _, d := range c.Warnings {
		if id := d.ID + " " + d.Host; !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}
