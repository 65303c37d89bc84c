package etcd

import (
	"context"
	"fmt"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const (
	serverCert = module.EtcdPKI + "/server.crt"
	serverKey  = module.EtcdPKI + "/server.key"
	peerCert   = module.EtcdPKI + "/peer.crt"
	peerKey    = module.EtcdPKI + "/peer.key"
)

// An authority is the CA that signs certificates of etcd.
type authority struct{ cert, key []byte }

var keyAuthority = engine.NewKey("etcd.authority", authority{})

// keySigned is the certificate that was signed for a control plane; nil if it needs none.
var keySigned = engine.NewHostKey[[]byte]("etcd.signed", nil)

// pkiTasks makes every host create its own keys. The CA is created on one host with etcd
// and copied to all of them, so that each can be lost, and each can sign. The manager
// signs for control planes, which do not receive the key of the CA. client returns the
// client certificate of a control plane.
func pkiTasks(env module.Env, client func(*engine.Scope) op.Certificate) []engine.Task {
	return []engine.Task{
		{
			ID: "etcd.programs", Title: "install etcd", Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			On:  func(h *engine.Host) bool { return env.RunsEtcd(h) || h.HasRole(v1alpha1.RoleControlPlane) },
			Ops: func(s *engine.Scope) (op.List, error) { return installPrograms(env, s) },
		},
		{
			ID: "etcd.authority", Title: "create etcd CA", On: env.RunsEtcd, Provides: []engine.KeyRef{keyAuthority.Ref()},
			When: func(s *engine.Scope) bool { return s.Host().Name == findCAHost(env, s.Hosts()) },
			Ops: func(*engine.Scope) (op.List, error) {
				made := op.Certificate{
					Cert: module.EtcdCA, Key: caKey, Authority: true, CommonName: "etcd-ca",
					ValiditySeconds: int64(env.Cluster.Spec.Kubernetes.Certificates.CAValidity.Seconds()),
				}
				return op.List{made, op.ReadFile{Path: module.EtcdCA}, op.ReadFile{Path: caKey, Secret: true}}, nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				engine.ProvideValue(s, keyAuthority, authority{cert: results[1].Output, key: results[2].Output})
				return nil
			},
		},
		{
			ID: "etcd.certificates", Title: "create etcd certificates", On: env.RunsEtcd, Consumes: []engine.KeyRef{keyAuthority.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) { return memberPKI(env, s), nil },
		},
		requestTask(env, client),
		{
			ID: "etcd.client", Title: "install etcd client certificate", On: selectClients(env),
			Consumes: []engine.KeyRef{keyAuthority.Ref(), keySigned.Ref()},
			When:     func(s *engine.Scope) bool { return env.Cluster.Spec.Etcd.External != nil || canSign(env, s) },
			Ops: func(s *engine.Scope) (op.List, error) {
				if x := env.Cluster.Spec.Etcd.External; x != nil {
					return externalPKI(x)
				}
				return clientPKI(s, client), nil
			},
		},
	}
}

// canSign reports whether a certificate can be signed for a host. If no etcd member takes
// part, the CA cannot be read, and the host keeps its certificate.
func canSign(env module.Env, s *engine.Scope) bool { return findCAHost(env, s.Hosts()) != "" }

// requestTask creates the key of the client certificate on the control plane, and signs
// its request on the manager: the key of the CA is not sent.
func requestTask(env module.Env, client func(*engine.Scope) op.Certificate) engine.Task {
	return engine.Task{
		ID: "etcd.request", Title: "request etcd client certificate", Consumes: []engine.KeyRef{keyAuthority.Ref()},
		Provides: []engine.KeyRef{keySigned.Ref()},
		On:       func(h *engine.Host) bool { return selectClients(env)(h) && env.Cluster.Spec.Etcd.External == nil },
		When:     func(s *engine.Scope) bool { return canSign(env, s) },
		Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{op.CertificateRequest{Certificate: client(s)}}, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			signed, err := module.SignRequest(s, client(s), engine.GetValue(s, keyAuthority).key, results[0])
			if err != nil {
				return err
			}
			engine.ProvideValue(s, keySigned, signed)
			return nil
		},
	}
}

// RenewClientCerts is the module that renews the client certificates of API servers for
// an etcd that does not run in their pods. The key of its CA is on hosts with etcd
// only.
func RenewClientCerts(env module.Env, r module.Renewal) engine.Module {
	due, within, wanted := r.DueFor("apiserver-etcd-client")
	m := engine.Module{Name: "etcd"}
	if env.Cluster.Spec.Etcd.Type != spec.EtcdManaged || !wanted {
		return m
	}
	client := func(s *engine.Scope) op.Certificate {
		c := clientPair(env)(s)
		c.Due, c.WithinSeconds = due, within
		return c
	}
	for _, t := range pkiTasks(env, client) {
		if slices.Contains([]string{"etcd.authority", "etcd.request", "etcd.client"}, t.ID) {
			m.Tasks = append(m.Tasks, t)
		}
	}
	return m
}

// findCAHost returns the host whose CA is used: a host with etcd data before one without,
// because its CA signed for the stored data; without any CA, the first host.
func findCAHost(env module.Env, hosts []*engine.Host) string {
	best, rank := "", -1
	for _, h := range hosts {
		if !env.RunsEtcd(h) || !env.IsStaying(h) {
			continue
		}
		is := 0
		if h.Facts != nil && slices.Contains(h.Facts.Present, caKey) {
			if is = 1; slices.Contains(h.Facts.Present, facts.EtcdData) {
				is = 2
			}
		}
		if is > rank {
			best, rank = h.Name, is
		}
	}
	return best
}

// memberPKI returns the certificates of a member: it serves clients and other members, and
// is their client.
func memberPKI(env module.Env, s *engine.Scope) op.List {
	names := []string{s.Host().Name, module.InternalAddress(s.Host().Host), "localhost", "127.0.0.1", "::1"}
	ca := engine.GetValue(s, keyAuthority)
	pair := func(cert, key, name string, server bool) op.Certificate {
		c := op.Certificate{
			Cert: cert, Key: key, CA: ca.cert, CAKey: caKey, CommonName: name, Client: true,
			ValiditySeconds: int64(env.Cluster.Spec.Kubernetes.Certificates.Validity.Seconds()),
		}
		if server {
			c.Server, c.Names = true, names
		}
		return c
	}
	return op.List{
		op.File{Path: module.EtcdCA, Content: ca.cert},
		op.File{Path: caKey, Content: ca.key, Mode: 0o600, Secret: true},
		pair(serverCert, serverKey, s.Host().Name, true),
		pair(peerCert, peerKey, s.Host().Name, true),
		pair(module.EtcdHealthCert, module.EtcdHealthKey, "kube-etcd-healthcheck-client", false),
	}
}

// clientPair returns the certificate with which a control plane authenticates.
func clientPair(env module.Env) func(*engine.Scope) op.Certificate {
	return func(s *engine.Scope) op.Certificate {
		return env.EtcdClientPair(s.Host(), engine.GetValue(s, keyAuthority).cert)
	}
}

// clientPKI returns the files of an API server.
func clientPKI(s *engine.Scope, client func(*engine.Scope) op.Certificate) op.List {
	c := client(s)
	c.Signed = engine.GetValue(s, keySigned)
	return op.List{op.File{Path: module.EtcdCA, Content: c.CA}, c}
}

// externalPKI returns the files of the user.
func externalPKI(x *v1alpha1.ExternalEtcd) (op.List, error) {
	var list op.List
	for _, f := range []struct {
		from, to string
		private  bool
	}{{x.CAFile, module.EtcdCA, false}, {x.CertFile, module.EtcdClientCert, false}, {x.KeyFile, module.EtcdClientKey, true}} {
		content, err := bounded.ReadArgument(f.from, bounded.Argument)
		if err != nil {
			return nil, fmt.Errorf("reading credentials for etcd: %w", err)
		}
		file := op.File{Path: f.to, Content: content, Secret: f.private}
		if f.private {
			file.Mode = 0o600
		}
		list = append(list, file)
	}
	return list, nil
}
