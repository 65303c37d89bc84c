package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
)

// lookAtCluster finds out how far the exchange of the cluster's authority has come, and
// what is yet to be signed by what comes. from is the authority that goes, "" if that
// is to be found out.
func (p *prepared) lookAtCluster(ctx context.Context, from string) (string, error) {
	a := certs.ClusterAuthority(p.env)
	err := elsewhere(p.env.Cluster, idAuthorityElsewhere, "the cluster's authority", a.Trust,
		"client-ca-file", "root-ca-file", "cluster-signing-cert-file", "cluster-signing-key-file", "tls-cert-file", "kubelet-client-certificate")
	if err != nil {
		return "", err
	}
	r := certs.ClusterRotation{Now: p.svc.Now}
	if r.AuthorityRotation, err = p.lookAtAuthority(ctx, a, from); err != nil {
		return "", err
	}
	if r.Kubelets, err = p.knowKubelets(ctx); err != nil {
		return "", err
	}
	if r.Everywhere(nil) {
		r.Readmit, err = p.unsigned(ctx, r)
	}
	p.rotations.Cluster = r
	return r.From, err
}

// knowKubelets are the control planes whose API server, as it is, knows kubelets by the
// cluster's authority.
func (p *prepared) knowKubelets(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for _, h := range p.hosts {
		if !h.HasRole(v1alpha1.RoleControlPlane) {
			continue
		}
		text, err := fileOf(ctx, h, module.APIServerManifest)
		if err != nil {
			return nil, err
		}
		out[h.Name] = strings.Contains(string(text), certs.KnowsKubelets)
	}
	return out, nil
}

// unsigned are the nodes without the authority's key whose kubelets have credentials of
// another than the one that comes, or were cut off while they asked for them. Nobody
// has any of an authority that is yet to be made, or to be trusted first on a node.
func (p *prepared) unsigned(ctx context.Context, r certs.ClusterRotation) (out []string, err error) {
	for _, h := range p.hosts {
		if !module.JoinsAsWorker(h) {
			continue
		}
		first, err := authorities(ctx, h, certs.AuthorityCert)
		if err != nil {
			return nil, err
		}
		states, err := certs.Ask(ctx, h.Conn, certs.Of(p.env, h.Host))
		if err != nil {
			return nil, fmt.Errorf("looking at the certificates of %s: %w", h.Name, err)
		}
		signed := len(first) > 0 && first[0].ID == r.Next && slices.ContainsFunc(states, func(st op.CertificateState) bool {
			return st.Path == module.ClientCert && !st.Missing && !st.Foreign
		})
		if !signed || h.Facts != nil && slices.Contains(h.Facts.Present, facts.BootstrapConf) {
			out = append(out, h.Name)
		}
	}
	return out, nil
}
