package etcd

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// An authority is what signs certificates of etcd.
type authority struct{ cert, key []byte }

var keyAuthority = engine.NewKey("etcd.authority", authority{})

// pkiTasks have every host make its own keys. The authority is made on one
// host with etcd, and all of these have it: each can be lost, and any can make
// what another needs. Control planes are signed for and do not get its key.
func pkiTasks(env module.Env) []engine.Task {
	return []engine.Task{
		{
			ID: "etcd.programs", Title: "install etcd", Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			On:  func(h *engine.Host) bool { return env.RunsEtcd(h) || h.HasRole(v1alpha1.RoleControlPlane) },
			Ops: func(s *engine.Scope) (op.List, error) { return install(env, s) },
		},
		{
			ID: "etcd.authority", Title: "make etcd's authority", On: env.RunsEtcd, Provides: []engine.KeyRef{keyAuthority.Ref()},
			When: func(s *engine.Scope) bool { return s.Host().Name == keeper(env, s.Hosts()) },
			Ops: func(*engine.Scope) (op.List, error) {
				made := op.Certificate{
					Cert: module.EtcdCA, Key: caKey, Authority: true, CommonName: "etcd-ca",
					ValiditySeconds: int64(env.Cluster.Spec.Kubernetes.Certificates.CAValidity.Seconds()),
				}
				return op.List{made, op.ReadFile{Path: module.EtcdCA}, op.ReadFile{Path: caKey, Secret: true}}, nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				engine.Provide(s, keyAuthority, authority{cert: results[1].Output, key: results[2].Output})
				return nil
			},
		},
		{
			ID: "etcd.certificates", Title: "make etcd's certificates", On: env.RunsEtcd, Consumes: []engine.KeyRef{keyAuthority.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) { return memberPKI(env, s), nil },
		},
		{
			ID: "etcd.client", Title: "let the API server into etcd", On: asks(env), Consumes: []engine.KeyRef{keyAuthority.Ref()},
			// Without a member that takes part there is nobody to ask for the
			// authority; what the host has is good for as long.
			When: func(s *engine.Scope) bool {
				return env.Cluster.Spec.Etcd.External != nil || keeper(env, s.Hosts()) != ""
			},
			Ops: func(s *engine.Scope) (op.List, error) {
				if x := env.Cluster.Spec.Etcd.External; x != nil {
					return externalPKI(x)
				}
				return clientPKI(env, s), nil
			},
		},
	}
}

// Renew is the module that renews what API servers ask an etcd with that is not
// in their pods: its authority has its key on hosts with etcd alone.
func Renew(env module.Env, r module.Renewal) engine.Module {
	due, within, wanted := r.Due("apiserver-etcd-client")
	m := engine.Module{Name: "etcd"}
	if env.Cluster.Spec.Etcd.Type != spec.EtcdManaged || !wanted {
		return m
	}
	for _, t := range pkiTasks(env) {
		switch t.ID {
		case "etcd.authority":
		case "etcd.client":
			t.Ops = func(s *engine.Scope) (op.List, error) {
				ops := clientPKI(env, s)
				for i, o := range ops {
					if c, ok := o.(op.Certificate); ok {
						c.Due, c.WithinSeconds = due, within
						ops[i] = c
					}
				}
				return ops, nil
			}
		default:
			continue
		}
		m.Tasks = append(m.Tasks, t)
	}
	return m
}

// keeper is the host whose authority counts: one with data before one without,
// for what is stored was signed for by it; and if there is none yet, the first.
func keeper(env module.Env, hosts []*engine.Host) string {
	best, rank := "", -1
	for _, h := range hosts {
		if !env.RunsEtcd(h) || !env.Stays(h) {
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

// memberPKI is a member's: it serves clients and other members, and is their
// client.
func memberPKI(env module.Env, s *engine.Scope) op.List {
	names := []string{s.Host().Name, module.InternalAddress(s.Host().Host), "localhost", "127.0.0.1", "::1"}
	ca := engine.Get(s, keyAuthority)
	pair := func(cert, key, name string, server bool) op.Certificate {
		c := signed(env, ca, cert, key, name)
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

// clientPKI is an API server's.
func clientPKI(env module.Env, s *engine.Scope) op.List {
	ca := engine.Get(s, keyAuthority)
	client := signed(env, ca, module.EtcdClientCert, module.EtcdClientKey, "kube-apiserver-etcd-client")
	client.ValiditySeconds = int64(env.EtcdClientValidity(s.Host()) / time.Second)
	return op.List{op.File{Path: module.EtcdCA, Content: ca.cert}, client}
}

func signed(env module.Env, ca authority, cert, key, name string) op.Certificate {
	return op.Certificate{
		Cert: cert, Key: key, CA: ca.cert, CAKey: ca.key, CommonName: name, Client: true,
		ValiditySeconds: int64(env.Cluster.Spec.Kubernetes.Certificates.Validity.Seconds()),
	}
}

// externalPKI are the user's files.
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
