package certs

import (
	"context"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// Etcd is the name of the etcd CA.
const Etcd = "etcd"

const etcdPod = dir + "manifests/etcd.yaml"

// EtcdAuthority returns the CA with which etcd members verify each other and their
// clients, and with which clients verify them. Its key is on hosts with an etcd member.
func EtcdAuthority(env module.Env) Authority {
	first := env.EtcdMembers(env.Cluster)[0].Name
	return Authority{
		Name: Etcd, CommonName: "etcd-ca", Cert: module.EtcdCA, Key: module.EtcdPKI + "/ca.key", Trust: module.EtcdCA,
		On:     func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) || env.HasEtcdMember(h) },
		Keeper: func(h *engine.Host) bool { return h.Name == first },
	}
}

var keyNextEtcd = engine.NewKey("certs.next-etcd", nextPair{})

// RotateEtcd is the module that rotates the etcd CA. etcd members and API servers read
// their CAs at their start, and their certificates at each connection. So all are
// restarted, one host after the other, before a certificate of the new CA is used. They
// are restarted again without the old CA when all use new certificates.
func RotateEtcd(env module.Env, r AuthorityRotation) engine.Module {
	next := []engine.KeyRef{keyNextEtcd.Ref()}
	get := func(s *engine.Scope) nextPair { return engine.GetValue(s, keyNextEtcd) }
	return engine.Module{Name: "rotate", Tasks: []engine.Task{
		r.createCATask(env, keyNextEtcd, r.IsOldTrusted),
		{
			ID: "rotate.etcd.trust", Title: "trust both etcd CAs", On: r.On, When: r.IsOldTrustedEverywhere, Rollout: rolling,
			Timeout: rereadTime, Consumes: next,
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.bothCAs(s.Host().Name, get(s).cert)
				return reloadEtcdCAs(env, s.Host(), op.File{Path: r.Trust, Content: text}), err
			},
		},
		r.requestTask(env),
		{
			ID: "rotate.etcd.sign", Title: "reissue etcd certificates", On: r.On, When: r.IsOldTrustedEverywhere, Rollout: rolling,
			Timeout:  rereadTime,
			Consumes: append(next, keyEtcdSigned.Ref()),
			Needs:    []string{"rotate.etcd.trust"},
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.newCAFirst(get(s).cert)
				var signed []byte
				if isClientOnly(env, s.Host()) {
					signed = engine.GetValue(s, keyEtcdSigned)
				}
				return r.reissueEtcdCerts(env, s.Host(), text, get(s), signed), err
			},
		},
		{
			// An interrupted attempt may have written the last file without a restart.
			ID: "rotate.etcd.drop", Title: "trust new etcd CA only", On: r.On, When: r.HasBegun, Rollout: rolling,
			Timeout: rereadTime, Consumes: next,
			Needs: []string{"rotate.etcd.sign"},
			Ops: func(s *engine.Scope) (op.List, error) {
				if r.Gone {
					return reloadEtcdCAs(env, s.Host()), nil
				}
				return reloadEtcdCAs(env, s.Host(), op.File{Path: r.Trust, Content: get(s).cert}), nil
			},
		},
		r.deleteFilesTask("rotate.etcd.drop"),
	}}
}

// keyEtcdSigned is the certificate that the new etcd CA has signed for a control plane;
// nil if it needs none.
var keyEtcdSigned = engine.NewHostKey[[]byte]("certs.etcd-signed", nil)

// isClientOnly reports whether a host is a client of etcd and has no member, so that it
// does not receive the key of the CA.
func isClientOnly(env module.Env, h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleControlPlane) && !env.HasEtcdMember(h)
}

// requestTask is the task in which the manager signs with the new CA for control planes
// without a member.
func (r AuthorityRotation) requestTask(env module.Env) engine.Task {
	pair := func(s *engine.Scope) op.Certificate {
		return env.EtcdClientPair(s.Host(), engine.GetValue(s, keyNextEtcd).cert)
	}
	return engine.Task{
		ID: "rotate.etcd.request", Title: "request etcd client certificate", When: r.IsOldTrustedEverywhere,
		On:       func(h *engine.Host) bool { return isClientOnly(env, h) },
		Consumes: []engine.KeyRef{keyNextEtcd.Ref()}, Provides: []engine.KeyRef{keyEtcdSigned.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			return op.List{op.CertificateRequest{Certificate: pair(s)}}, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			signed, err := module.SignRequest(s, pair(s), engine.GetValue(s, keyNextEtcd).key, results[0])
			if err != nil {
				return err
			}
			engine.ProvideValue(s, keyEtcdSigned, signed)
			return nil
		},
	}
}

// rereadTime is the timeout for the work on one host: two restarts and their waits.
const rereadTime = 30 * time.Minute

// reloadEtcdCAs makes the etcd member and the API server of a host read their CAs
// again. The member is restarted when all members are healthy, the API server when its
// own member is.
func reloadEtcdCAs(env module.Env, h *engine.Host, files ...op.Op) op.List {
	var list op.List
	if env.HasEtcdMember(h) {
		list = append(list, everyMember(env))
	}
	list = append(list, files...)
	if env.HasEtcdMember(h) {
		if env.HasStackedEtcd() {
			list = append(list, op.StaticPodRestart{Manifest: etcdPod, Files: []string{module.EtcdCA}, TimeoutSeconds: 300})
		} else {
			list = append(list, module.EtcdUnit())
		}
		list = append(list, waitLocalMember(env), everyMember(env))
	}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		list = append(list,
			op.StaticPodRestart{Manifest: module.APIServerManifest, Files: []string{module.EtcdCA}, TimeoutSeconds: 300}, waitAPIServes(env))
		list = append(list, env.ComponentsHealthy()...)
	}
	return list
}

// everyMember waits for all etcd members, on a host that has one.
func everyMember(env module.Env) op.Wait {
	w := env.WaitAllMembersHealthy()
	w.TimeoutSeconds = 300
	return *w
}

// reissueEtcdCerts reissues all etcd certificates of a host with the new CA. A host
// with a member signs with that CA from then on. For a control plane without a member
// the manager signs, and it does not receive the key.
func (r AuthorityRotation) reissueEtcdCerts(env module.Env, h *engine.Host, trusted []byte, next nextPair, signed []byte) op.List {
	member, control := env.HasEtcdMember(h), h.HasRole(v1alpha1.RoleControlPlane)
	var list op.List
	if member {
		list = append(list, everyMember(env), op.File{Path: r.Key, Content: next.key, Mode: 0o600, Secret: true})
	}
	list = append(list, op.File{Path: r.Trust, Content: trusted})
	if member {
		for _, name := range []string{"server", "peer", "healthcheck-client"} {
			list = append(list, r.reissueCert(env, module.EtcdPKI+"/"+name))
		}
	}
	switch {
	case control && member:
		list = append(list, r.reissueCert(env, pkiDir+"apiserver-etcd-client"))
	case control:
		c := env.EtcdClientPair(h, next.cert)
		c.Signed = signed
		list = append(list, c)
	}
	if member {
		list = append(list, waitLocalMember(env), everyMember(env))
	}
	if control {
		list = append(list, waitAPIServes(env))
	}
	return list
}
