package lifecycle

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// lookAtFrontProxy finds out how far the exchange of the front proxy's authority
// has come.
func (p *prepared) lookAtFrontProxy(ctx context.Context, from string) (string, error) {
	a := certs.FrontProxyAuthority(p.env)
	err := elsewhere(p.env.Cluster, idAuthorityElsewhere, "the authority of the front proxy", a.Trust, "requestheader-client-ca-file", "proxy-client-cert-file", "proxy-client-key-file")
	if err != nil {
		return "", err
	}
	p.rotations.FrontProxy, err = p.lookAtAuthority(ctx, a, from)
	return p.rotations.FrontProxy.From, err
}

// lookAtEtcd finds out how far the exchange of etcd's authority has come.
func (p *prepared) lookAtEtcd(ctx context.Context, from string) (string, error) {
	c := p.env.Cluster
	if c.Spec.Etcd.External != nil {
		return "", external(c.Name, "an exchange of its authority")
	}
	a := certs.EtcdAuthority(p.env)
	err := elsewhere(c, idAuthorityElsewhere, "the authority of etcd", a.Trust, "etcd-cafile", "etcd-certfile", "etcd-keyfile")
	if err != nil {
		return "", err
	}
	p.rotations.Etcd, err = p.lookAtAuthority(ctx, a, from)
	return p.rotations.Etcd.From, err
}

// lookAtAuthority asks every host that trusts an authority which ones it trusts.
// from is the one that goes, "" if that is to be found out.
func (p *prepared) lookAtAuthority(ctx context.Context, a certs.Authority, from string) (r certs.AuthorityRotation, err error) {
	r = certs.AuthorityRotation{Authority: a, Trusted: map[string][]pki.Authority{}, Took: map[string]bool{}}
	var all [][]string
	for _, h := range p.hosts {
		if !a.On(h) {
			continue
		}
		trusted, err := authorities(ctx, h, a.Trust)
		if err != nil {
			return r, err
		}
		if len(trusted) == 0 {
			return r, refused(idRotationCert, h.Name+" has no "+a.Trust+": it is not known whom it trusts", "put it back from a backup, or from another host")
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
			if !pki.Trusts(r.Known, t.ID) {
				r.Known = append(r.Known, t)
			}
		}
		all, r.Trusted[h.Name] = append(all, ids), trusted
	}
	r.From, r.Gone, r.Going = howFar(all, from, r.Next)
	return r, p.overAlready(r)
}

// overAlready refuses to begin the exchange of an authority whose time is over, but for
// that of the front proxy: nobody believes what it has signed, and the cluster, which an
// exchange asks at each step, answers nobody.
func (p *prepared) overAlready(r certs.AuthorityRotation) error {
	if r.Next != "" || r.Name == certs.FrontProxy {
		return nil
	}
	for _, a := range r.Known {
		if a.ID == r.From && p.svc.Now().After(a.Ends) {
			return refused(op.IDAuthorityExpired, fmt.Sprintf("the authority in %s has expired (%s): nobody believes what it has signed, and an exchange would have the cluster ask for it", r.Cert, a.Ends.Format(time.DateOnly)),
				"see what the guide has on it: docs/guide/certificates.md")
		}
	}
	return nil
}

// tookOver says that a host has the key of what comes already, and was cut off before
// that stood first in its file. It refuses an authority whose key is not on its keeper:
// it is not Slipway's to exchange.
func tookOver(ctx context.Context, h *engine.Host, a certs.Authority) (bool, error) {
	state, err := certs.Ask(ctx, h.Conn, []certs.Known{{Name: a.Name, CertificateFile: op.CertificateFile{Path: a.Cert, Key: a.Key}}})
	if err != nil {
		return false, fmt.Errorf("looking at the key of %s: %w", h.Name, err)
	}
	if state[0].NoKey && a.Keeper(h) {
		return false, refused(idAuthorityNoKey, h.Name+" has no "+a.Key+": who has the key of this authority signs with it, and exchanges it", "put it back from a backup, or from another host that has it")
	}
	return state[0].KeyBeside, nil
}

// authorities are those in a file of a host; none if it is not there.
func authorities(ctx context.Context, h *engine.Host, file string) ([]pki.Authority, error) {
	text, err := fileOf(ctx, h, file)
	if text == nil || err != nil {
		return nil, err
	}
	list, err := pki.Authorities(text)
	if err != nil {
		return nil, refused(idRotationCert, fmt.Sprintf("reading %s of %s: %v", file, h.Name, err), "put it back from a backup, or from another host")
	}
	return list, nil
}
