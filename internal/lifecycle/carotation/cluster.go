package carotation

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

// lookAtCluster determines the progress of the rotation of the cluster CA, and which
// nodes still need credentials from the next CA. from is the old CA, "" if it is not
// known yet.
func (q Query) lookAtCluster(ctx context.Context, from string, out *certs.Rotations) (string, error) {
	a := certs.ClusterAuthority(q.Env)
	err := refuseOtherFile(q.Env.Cluster, idAuthorityElsewhere, "the cluster CA", a.Trust,
		"client-ca-file", "root-ca-file", "cluster-signing-cert-file", "cluster-signing-key-file", "tls-cert-file", "kubelet-client-certificate")
	if err != nil {
		return "", err
	}
	r := certs.ClusterRotation{Now: q.Now}
	if r.AuthorityRotation, err = q.lookAtAuthority(ctx, a, from); err != nil {
		return "", err
	}
	if r.Kubelets, err = q.knowKubelets(ctx); err != nil {
		return "", err
	}
	if r.IsOldTrustedEverywhere(nil) {
		r.Readmit, err = q.unsignedKubelets(ctx, r.Next)
	}
	out.Cluster = r
	return r.From, err
}

// knowKubelets reports for each control plane whether its API server currently
// verifies kubelets with the cluster CA.
func (q Query) knowKubelets(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for _, h := range q.Hosts {
		if !h.HasRole(v1alpha1.RoleControlPlane) {
			continue
		}
		text, err := fileOf(ctx, h, module.APIServerManifest)
		if err != nil {
			return nil, err
		}
		out[h.Name] = strings.Contains(string(text), certs.KubeletCAFlag)
	}
	return out, nil
}

// unsignedKubelets returns the nodes without the CA key whose kubelets have no credentials
// from the next CA, or were interrupted while they requested them. If the next CA does not
// exist yet, or is not the first CA in a node's file, no kubelet has such credentials.
func (q Query) unsignedKubelets(ctx context.Context, next string) (out []string, err error) {
	for _, h := range q.Hosts {
		if !module.JoinsAsWorker(h) {
			continue
		}
		first, err := authorities(ctx, h, certs.AuthorityCert)
		if err != nil {
			return nil, err
		}
		states, err := certs.QueryCerts(ctx, h.Conn, certs.ExpectedCerts(q.Env, h.Host))
		if err != nil {
			return nil, fmt.Errorf("checking the certificates of %s: %w", h.Name, err)
		}
		signed := len(first) > 0 && first[0].ID == next && slices.ContainsFunc(states, func(st op.CertificateState) bool {
			return st.Path == module.ClientCert && !st.Missing && !st.Foreign
		})
		if !signed || h.Facts != nil && slices.Contains(h.Facts.Present, facts.BootstrapConf) {
			out = append(out, h.Name)
		}
	}
	return out, nil
}
