package lifecycle

import (
	"context"
	"fmt"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module/certs"
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

// lookAtAuthority asks every host that trusts an authority which ones it trusts.
// from is the one that goes, "" if that is to be found out.
func (p *prepared) lookAtAuthority(ctx context.Context, a certs.Authority, from string) (r certs.AuthorityRotation, err error) {
	r = certs.AuthorityRotation{Authority: a, Trusted: map[string][]pki.Authority{}}
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
	return r, nil
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
