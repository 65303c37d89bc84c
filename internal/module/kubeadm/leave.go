package kubeadm

import (
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// MakeRoom is the module that takes members out of etcd that are lost, before
// others join: those of hosts that are given up, those in whose place there is
// another machine, and learners of machines that nobody knows any more. Each of
// them counts for the majority that must be up, or keeps etcd from taking
// another learner.
func MakeRoom(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: "join.make-room", Title: "take lost members out of etcd", On: env.IsFirst, Timeout: 5 * time.Minute,
		Ops: func(s *engine.Scope) (op.List, error) {
			var o op.EtcdRemove
			for _, l := range env.Leaving {
				if l.Gone && spec.HasRole(l.Host, v1alpha1.RoleControlPlane) {
					o.Peers = append(o.Peers, peer(l.Host, true))
				}
			}
			joins := false
			for _, h := range s.Hosts() {
				if !env.Stays(h) || !env.JoinsAsControlPlane(h) || module.Holds(h) {
					continue
				}
				if joins = true; blank(h) {
					o.Peers = append(o.Peers, peer(h.Host, true))
				}
			}
			if joins {
				for _, h := range spec.HostsWithRole(env.WithLeaving(), v1alpha1.RoleControlPlane) {
					o.Known = append(o.Known, peer(h, false))
				}
			}
			return removeMembers(env, o), nil
		},
	}}}
}

// Leave is the module that takes the members of control planes that leave out
// of etcd, before their hosts are touched.
func Leave(env module.Env) engine.Module {
	return engine.Module{Name: "etcd", Tasks: []engine.Task{{
		ID: "leave.member", Title: "take members out of etcd", On: env.IsFirst, Timeout: 5 * time.Minute,
		// Nobody may be sent to a control plane that is about to go: on workers
		// this comes after the load balancer of whatever mode.
		Needs: []string{"leave.drain", "endpoint.pods"},
		Ops: func(*engine.Scope) (op.List, error) {
			var o op.EtcdRemove
			for _, l := range env.Leaving {
				if spec.HasRole(l.Host, v1alpha1.RoleControlPlane) {
					o.Peers = append(o.Peers, peer(l.Host, false))
				}
			}
			return removeMembers(env, o), nil
		},
	}}}
}

func peer(h v1alpha1.Host, dead bool) op.EtcdPeer {
	return op.EtcdPeer{Name: h.Name, PeerURL: module.EtcdURL(h, facts.EtcdPeerPort), Dead: dead}
}

// blank says that there is nothing of a cluster on a host.
func blank(h *engine.Host) bool {
	return h.Facts != nil && !slices.ContainsFunc([]string{facts.EtcdData, adminConf, kubeletConf, module.ClientCert}, func(p string) bool {
		return slices.Contains(h.Facts.Present, p)
	})
}

// removeMembers completes an operation with whom it asks.
func removeMembers(env module.Env, o op.EtcdRemove) op.List {
	if len(o.Peers)+len(o.Known) == 0 || !env.Stacked() { // its members are not those of control planes
		return nil
	}
	o.EtcdClient = etcdClient()
	o.Endpoints = []string{module.EtcdURL(env.FirstControlPlane(), facts.EtcdClientPort)}
	for _, h := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		if url := module.EtcdURL(h, facts.EtcdClientPort); !slices.Contains(o.Endpoints, url) {
			o.Endpoints = append(o.Endpoints, url)
		}
	}
	return op.List{o}
}
