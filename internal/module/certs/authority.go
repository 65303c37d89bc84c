package certs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// An Authority is one that certificates are exchanged under.
type Authority struct {
	// Name is what --which and operations know it by, and CommonName what it calls
	// itself in its certificate.
	Name, CommonName string
	// Names are other names in its certificate.
	Names []string
	// Cert and Key are what it signs with.
	Cert, Key string
	// Trust is where those that trust it have it: its own file, where nobody minds
	// that others stand behind the one that signs.
	Trust string
	// On are the hosts that have Trust, and Keeper the one of them on which the next
	// is made.
	On, Keeper func(*engine.Host) bool
}

// NextCert and NextKey are where the next of an authority is kept, on its keeper:
// as long as it is there, an exchange is not over.
func (a Authority) NextCert() string { return rotateDir + a.Name + "-ca.crt" }

// NextKey is the key of NextCert.
func (a Authority) NextKey() string { return rotateDir + a.Name + "-ca.key" }

// An AuthorityRotation exchanges an authority.
type AuthorityRotation struct {
	Authority
	// From is what goes, by its id; "" exchanges nothing.
	From string
	// Next is what comes, by its id; "" if it is not made yet.
	Next string
	// Known are all that some host trusts, and Trusted what each does, by its name.
	Known   []pki.Authority
	Trusted map[string][]pki.Authority
	// Took are the hosts, by their names, that have the key of what comes, and not what
	// comes first in the file: they were cut off between the two, and everybody trusts
	// it by then.
	Took map[string]bool
	// Gone says that no host trusts it any more, Going that one does not.
	Gone, Going bool
}

// Begun says that there is something to exchange, or to end.
func (r AuthorityRotation) Begun(*engine.Scope) bool { return r.From != "" }

// There says that what goes is trusted by some host, and Everywhere that it is by
// all of them.
func (r AuthorityRotation) There(*engine.Scope) bool { return r.From != "" && !r.Gone }

// Everywhere says that nobody has begun to drop what goes.
func (r AuthorityRotation) Everywhere(s *engine.Scope) bool { return r.There(s) && !r.Going }

// nextPair is an authority that comes.
type nextPair struct{ cert, key []byte }

// make is the task that makes the next authority, once, and gives it to others
// through the manager's memory. When what goes is gone, nothing is signed any more: what
// has come is what is trusted, and where it was made may be off the cluster.
func (r AuthorityRotation) make(env module.Env, next engine.Key[nextPair], when func(*engine.Scope) bool) engine.Task {
	return engine.Task{
		ID: "rotate." + r.Name + ".make", Title: "make the next authority", On: r.Keeper, When: when, Provides: []engine.KeyRef{next.Ref()},
		Ops: func(*engine.Scope) (op.List, error) {
			if r.Gone {
				return op.List{op.ReadFile{Path: r.Trust}}, nil
			}
			return op.List{
				op.Dir{Path: strings.TrimSuffix(rotateDir, "/"), Mode: 0o700},
				op.Certificate{
					Cert: r.NextCert(), Key: r.NextKey(), Authority: true, CommonName: r.CommonName, Names: r.Names,
					ValiditySeconds: int64(env.Cluster.Spec.Kubernetes.Certificates.CAValidity.Seconds()),
				},
				op.ReadFile{Path: r.NextCert()},
				op.ReadFile{Path: r.NextKey(), Secret: true},
			}, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			n := len(results)
			switch {
			case results[n-1].Missing:
			case r.Gone:
				engine.Provide(s, next, nextPair{cert: results[0].Output})
			case !results[n-2].Missing:
				engine.Provide(s, next, nextPair{cert: results[n-2].Output, key: results[n-1].Output})
			}
			return nil
		},
	}
}

// end is the task that forgets the exchange, the last one: as long as the next
// authority is kept, the exchange is known.
func (r AuthorityRotation) end(needs string) engine.Task {
	return engine.Task{
		ID: "rotate." + r.Name + ".end", Title: "forget the exchange", On: r.On, When: r.Begun, Needs: []string{needs},
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Absent{Path: r.NextKey()}, op.Absent{Path: r.NextCert()}}, nil
		},
	}
}

// both is what a host trusts while what goes and what comes count.
func (r AuthorityRotation) both(host string, next []byte) ([]byte, error) {
	comes, err := r.parse(next)
	if comes == nil || err != nil {
		return nil, err
	}
	return pki.Bundle(r.inOrder(host, comes)...), nil
}

// inOrder is what a host has, in its order, for it may sign with the first, and then all
// that there is. Where it has the key of what comes already, that is first.
func (r AuthorityRotation) inOrder(host string, comes []pki.Authority) []pki.Authority {
	has := r.Trusted[host]
	if r.Took[host] && pki.Trusts(has, r.Next) {
		return slices.Concat(comes, has, r.Known)
	}
	if r.Took[host] { // of one that was lost with its keeper, and another comes
		stays := slices.DeleteFunc(slices.Clone(has), func(a pki.Authority) bool { return a.ID == r.From })
		has = slices.Concat(stays, has)
	}
	return slices.Concat(has, comes, r.Known)
}

// first is what is trusted when the next signs, and the others are trusted yet.
func (r AuthorityRotation) first(next []byte) ([]byte, error) {
	comes, err := r.parse(next)
	if comes == nil || err != nil {
		return nil, err
	}
	return pki.Bundle(slices.Concat(comes, r.Known)...), nil
}

// parse reads the next authority; nil if it is not made yet.
func (r AuthorityRotation) parse(next []byte) ([]pki.Authority, error) {
	if len(next) == 0 {
		return nil, nil
	}
	list, err := pki.Authorities(next)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.NextCert(), err)
	}
	return list[:1], nil
}

// signs has a certificate be signed by the authority that is on its host now.
func (r AuthorityRotation) signs(env module.Env, path string) op.Renewal {
	return op.Renewal{
		CertificateFile: op.CertificateFile{Path: path + ".crt", Key: path + ".key", CA: r.Cert},
		CAKey:           r.Key, Due: op.DueForeign, ValiditySeconds: int64(env.Validity() / time.Second),
	}
}
