package carotation

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// lookAtFrontProxy determines the progress of the rotation of the front proxy CA.
func (q Query) lookAtFrontProxy(ctx context.Context, from string, out *certs.Rotations) (string, error) {
	a := certs.FrontProxyAuthority(q.Env)
	err := refuseOtherFile(q.Env.Cluster, idAuthorityElsewhere, "the front proxy CA", a.Trust, "requestheader-client-ca-file",
		"proxy-client-cert-file", "proxy-client-key-file")
	if err != nil {
		return "", err
	}
	out.FrontProxy, err = q.lookAtAuthority(ctx, a, from)
	return out.FrontProxy.From, err
}

// lookAtEtcd determines the progress of the rotation of the etcd CA.
func (q Query) lookAtEtcd(ctx context.Context, from string, out *certs.Rotations) (string, error) {
	c := q.Env.Cluster
	if c.Spec.Etcd.External != nil {
		return "", inspect.RefuseExternalEtcd(c.Name, "a rotation of its CA")
	}
	a := certs.EtcdAuthority(q.Env)
	err := refuseOtherFile(c, idAuthorityElsewhere, "the etcd CA", a.Trust, "etcd-cafile", "etcd-certfile", "etcd-keyfile")
	if err != nil {
		return "", err
	}
	out.Etcd, err = q.lookAtAuthority(ctx, a, from)
	return out.Etcd.From, err
}

// lookAtAuthority reads from every host that trusts a CA which CAs it trusts. from is
// the old CA, "" if it is not known yet.
func (q Query) lookAtAuthority(ctx context.Context, a certs.Authority, from string) (r certs.AuthorityRotation, err error) {
	r = certs.AuthorityRotation{Authority: a, Trusted: map[string][]pki.Authority{}, Took: map[string]bool{}}
	var all [][]string
	for _, h := range q.Hosts {
		if !a.On(h) {
			continue
		}
		trusted, err := authorities(ctx, h, a.Trust)
		if err != nil {
			return r, err
		}
		if len(trusted) == 0 {
			return r, diag.Refuse(idRotationCert, h.Name+" has no "+a.Trust+": it is unknown which CAs it trusts",
				"restore the file from a backup or from another host")
		}
		if a.Keeper(h) {
			next, err := authorities(ctx, h, a.NextCert())
			if err != nil {
				return r, err
			}
			if len(next) > 0 {
				r.Next = next[0].ID
			}
		}
		if r.Took[h.Name], err = tookOver(ctx, h, a); err != nil {
			return r, err
		}
		var ids []string
		for _, t := range trusted {
			ids = append(ids, t.ID)
			if !pki.TrustsCA(r.Known, t.ID) {
				r.Known = append(r.Known, t)
			}
		}
		all, r.Trusted[h.Name] = append(all, ids), trusted
	}
	r.From, r.Gone, r.Going = rotationProgress(all, from, r.Next)
	return r, refuseExpired(r, q.Now())
}

// refuseExpired refuses to begin the rotation of an expired CA, except for the front
// proxy CA. Certificates of an expired CA are rejected, so the cluster does not work,
// and every step of a rotation needs a working cluster.
func refuseExpired(r certs.AuthorityRotation, now time.Time) error {
	if r.Next != "" || r.Name == certs.FrontProxy {
		return nil
	}
	for _, a := range r.Known {
		if a.ID == r.From && now.After(a.Ends) {
			return diag.Refuse(op.IDAuthorityExpired,
				fmt.Sprintf("the CA in %s expired on %s: the cluster rejects its certificates, so the CA cannot be rotated",
					r.Cert, a.Ends.Format(time.DateOnly)),
				"follow the section about expired CAs in docs/guide/certificates.md")
		}
	}
	return nil
}

// tookOver reports whether a host already has the key of the next CA, but was
// interrupted before that CA became the first one in its file. It returns an error if
// the host that keeps the CA has no key of it: Slipway cannot rotate such a CA.
func tookOver(ctx context.Context, h *engine.Host, a certs.Authority) (bool, error) {
	state, err := certs.QueryCerts(ctx, h.Conn, []certs.Known{{Name: a.Name, CertificateFile: op.CertificateFile{Path: a.Cert, Key: a.Key}}})
	if err != nil {
		return false, fmt.Errorf("checking the CA key of %s: %w", h.Name, err)
	}
	if state[0].NoKey && a.Keeper(h) {
		return false, diag.Refuse(idAuthorityNoKey, h.Name+" has no "+a.Key+": Slipway cannot rotate a CA without its key",
			"restore the file from a backup or from another host")
	}
	return state[0].KeyBeside, nil
}

// authorities returns the CAs in a file of a host, none if there is no file.
func authorities(ctx context.Context, h *engine.Host, file string) ([]pki.Authority, error) {
	text, err := fileOf(ctx, h, file)
	if text == nil || err != nil {
		return nil, err
	}
	list, err := pki.ParseAuthorities(text)
	if err != nil {
		return nil, diag.Refuse(idRotationCert, fmt.Sprintf("reading %s of %s: %v", file, h.Name, err),
			"restore the file from a backup or from another host")
	}
	return list, nil
}
