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

// An Authority is a CA that can be rotated.
type Authority struct {
	// Name is its name in --which and in operations. CommonName is the common name of its
	// certificate.
	Name, CommonName string
	// Names are other names in its certificate.
	Names []string
	// Cert and Key are the files that it signs with.
	Cert, Key string
	// Trust is the file with the CAs that are trusted. The first one signs, and others may
	// follow it.
	Trust string
	// On selects the hosts that have Trust, and Keeper the one of them on which the new CA
	// is created.
	On, Keeper func(*engine.Host) bool
}

// NextCert is the file of the new CA, on its keeper. A rotation is not complete as long as
// this file exists.
func (a Authority) NextCert() string { return rotateDir + a.Name + "-ca.crt" }

// NextKey is the file of the key of the new CA.
func (a Authority) NextKey() string { return rotateDir + a.Name + "-ca.key" }

// An AuthorityRotation rotates a CA.
type AuthorityRotation struct {
	Authority
	// From is the id of the old CA; "" means no rotation.
	From string
	// Next is the id of the new CA; "" if it does not exist yet.
	Next string
	// Known holds all CAs that any host trusts, and Trusted the CAs that each host trusts,
	// by host name.
	Known   []pki.Authority
	Trusted map[string][]pki.Authority
	// Took holds the names of hosts that have the key of the new CA, but not the new CA as
	// the first one in the file: they were interrupted between the two writes. At this
	// point every host trusts the new CA.
	Took map[string]bool
	// Gone reports whether no host trusts the old CA. Going reports whether at least one
	// does not.
	Gone, Going bool
}

// HasBegun reports whether there is a rotation to run or to complete.
func (r AuthorityRotation) HasBegun(*engine.Scope) bool { return r.From != "" }

// IsOldTrusted reports whether some host trusts the old CA.
func (r AuthorityRotation) IsOldTrusted(*engine.Scope) bool { return r.From != "" && !r.Gone }

// IsOldTrustedEverywhere reports whether no host has dropped the old CA yet.
func (r AuthorityRotation) IsOldTrustedEverywhere(s *engine.Scope) bool {
	return r.IsOldTrusted(s) && !r.Going
}

// nextPair is the new CA.
type nextPair struct{ cert, key []byte }

// createCATask is the task that creates the new CA once, and passes it to other tasks
// in the memory of the manager. When the old CA is gone, nothing is signed any longer:
// the new CA is then read from the trusted CAs, because its keeper may have left the
// cluster.
func (r AuthorityRotation) createCATask(env module.Env, next engine.Key[nextPair], when func(*engine.Scope) bool) engine.Task {
	return engine.Task{
		ID: "rotate." + r.Name + ".make", Title: "create new CA", On: r.Keeper, When: when, Provides: []engine.KeyRef{next.Ref()},
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
				engine.ProvideValue(s, next, nextPair{cert: results[0].Output})
			case !results[n-2].Missing:
				engine.ProvideValue(s, next, nextPair{cert: results[n-2].Output, key: results[n-1].Output})
			}
			return nil
		},
	}
}

// deleteFilesTask is the last task: it deletes the files that show that a rotation is
// not complete.
func (r AuthorityRotation) deleteFilesTask(needs string) engine.Task {
	return engine.Task{
		ID: "rotate." + r.Name + ".end", Title: "delete rotation files", On: r.On, When: r.HasBegun, Needs: []string{needs},
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Absent{Path: r.NextKey()}, op.Absent{Path: r.NextCert()}}, nil
		},
	}
}

// bothCAs returns the CAs that a host trusts during the rotation.
func (r AuthorityRotation) bothCAs(host string, next []byte) ([]byte, error) {
	comes, err := r.parseNextCA(next)
	if comes == nil || err != nil {
		return nil, err
	}
	return pki.BundleCAs(r.orderCAs(host, comes)...), nil
}

// orderCAs returns the CAs of a host in its own order, because it may sign with the first
// one, followed by all others. A host that already has the key of the new CA gets the new
// CA first.
func (r AuthorityRotation) orderCAs(host string, comes []pki.Authority) []pki.Authority {
	has := r.Trusted[host]
	if r.Took[host] && pki.TrustsCA(has, r.Next) {
		return slices.Concat(comes, has, r.Known)
	}
	if r.Took[host] { // the new CA was lost with its keeper, and another one replaces it
		stays := slices.DeleteFunc(slices.Clone(has), func(a pki.Authority) bool { return a.ID == r.From })
		has = slices.Concat(stays, has)
	}
	return slices.Concat(has, comes, r.Known)
}

// newCAFirst returns the trusted CAs when the new CA signs and the others are still
// trusted.
func (r AuthorityRotation) newCAFirst(next []byte) ([]byte, error) {
	comes, err := r.parseNextCA(next)
	if comes == nil || err != nil {
		return nil, err
	}
	return pki.BundleCAs(slices.Concat(comes, r.Known)...), nil
}

// parseNextCA returns the new CA; nil if it does not exist yet.
func (r AuthorityRotation) parseNextCA(next []byte) ([]pki.Authority, error) {
	if len(next) == 0 {
		return nil, nil
	}
	list, err := pki.ParseAuthorities(next)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.NextCert(), err)
	}
	return list[:1], nil
}

// reissueCert returns the renewal of a certificate that was not signed by the current
// CA of its host.
func (r AuthorityRotation) reissueCert(env module.Env, path string) op.RenewCertificate {
	return op.RenewCertificate{
		CertificateFile: op.CertificateFile{Path: path + ".crt", Key: path + ".key", CA: r.Cert},
		CAKey:           r.Key, Due: op.DueForeign, ValiditySeconds: int64(env.CertValidity() / time.Second),
	}
}
