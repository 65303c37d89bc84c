package certs

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// KeyAdmin is the administrator's kubeconfig, with its new certificate.
var KeyAdmin = engine.NewKey("certs.admin", kubeconfig.Untrusted{})

const (
	adminConf = dir + "admin.conf"
	kubectl   = "/usr/local/bin/kubectl"
)

// A Wish is which certificates are renewed, of which hosts what is known.
type Wish struct {
	module.Renewal
	// Concerned are hosts on which something is renewed: what they serve is
	// waited for before the next one's turn comes.
	Concerned []string
	// Lapsed says that the cluster's etcd, or the kubelets that run it, have
	// nothing valid any more on some host: nobody serves before all have.
	Lapsed bool
	// Readmit are workers whose kubelets' credentials have expired.
	Readmit []string
	// Continues says that another attempt was cut off, and may have left tokens.
	Continues bool
}

// Renewals are what is renewed on a host with the authorities that it has.
func (w Wish) Renewals(env module.Env, h v1alpha1.Host) op.List {
	var out op.List
	for _, k := range Of(env, h) {
		if r, ok := w.renewal(env, h, k); ok {
			out = append(out, r)
		}
	}
	return out
}

// renewal is how one is renewed, if it is.
func (w Wish) renewal(env module.Env, h v1alpha1.Host, k Known) (op.Renewal, bool) {
	r := op.Renewal{CertificateFile: k.CertificateFile, CAKey: strings.TrimSuffix(k.CA, ".crt") + ".key", ValiditySeconds: int64(env.Validity() / time.Second)}
	var wanted bool
	r.Due, r.WithinSeconds, wanted = w.Due(k.Name)
	control := slices.Contains(h.Roles, v1alpha1.RoleControlPlane)
	switch {
	case k.Authority || k.Theirs || !wanted:
		return r, false
	case k.Name == nameKubeletServing && !k.Rotates:
		r.CAKey, r.Unit, r.Remade = "", kubelet, true
		return r, true
	case k.Name == "apiserver-etcd-client" && !env.Stacked():
		return r, false // its authority has its key on other hosts; see module etcd
	case k.Name == nameRegistry:
		r.Unit = module.RegistryUnit // which reads it when it starts
	case !control && !strings.Contains(k.CA, "/etcd/"):
		return r, false // so has that of a worker's kubelet
	case k.Rotates:
		r.Due, r.WithinSeconds, r.Unit = op.DueExpired, 0, kubelet
	case k.Path == dir+"kubelet.conf":
		r.Unit = kubelet
	}
	return r, true
}

// Renew is the module. What etcd and its kubelets go by comes first, on all
// hosts: without that nobody serves. Then one control plane comes after the
// other, and none before the one before it serves with what it has got. etcd and
// API servers read what is new by themselves, at the next connection; what reads
// its kubeconfig when it starts is started anew.
func Renew(env module.Env, w Wish) engine.Module {
	concerned := func(h *engine.Host) bool { return slices.Contains(w.Concerned, h.Name) }
	chosen := func(h *engine.Host, want func(op.Renewal) bool) (out op.List) {
		for _, o := range w.Renewals(env, h.Host) {
			if want(o.(op.Renewal)) {
				out = append(out, o)
			}
		}
		return out
	}
	ofKubelet := func(r op.Renewal) bool { return r.Unit == kubelet }
	ofRegistry := func(r op.Renewal) bool { return r.Unit == module.RegistryUnit }
	ofEtcd := func(r op.Renewal) bool { return strings.Contains(r.CA, "/etcd/") }
	m := engine.Module{Name: "certs", Tasks: []engine.Task{
		{
			ID: "certs.kubelet", Title: "renew the kubelet's certificates", On: module.IsNode, Rollout: engine.Rollout{MaxParallel: "10%"},
			Ops: func(s *engine.Scope) (op.List, error) { return chosen(s.Host(), ofKubelet), nil },
		},
		{
			ID: "certs.etcd", Title: "renew etcd's certificates", Rollout: rolling, Timeout: 6 * time.Minute,
			On:    func(h *engine.Host) bool { return facts.RunsEtcd(env.Cluster, h.Roles) },
			Needs: []string{"certs.kubelet"},
			Ops: func(s *engine.Scope) (op.List, error) {
				list := chosen(s.Host(), ofEtcd)
				if concerned(s.Host()) && !w.Lapsed {
					list = append(list, ownMember(env))
				}
				return list, nil
			},
		},
		{
			ID: "certs.control-plane", Title: "renew the control plane's certificates", Rollout: rolling, Timeout: 20 * time.Minute,
			On:       func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) },
			Needs:    []string{"certs.etcd"},
			Provides: []engine.KeyRef{KeyAdmin.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				list := chosen(s.Host(), func(r op.Renewal) bool { return !ofKubelet(r) && !ofEtcd(r) && !ofRegistry(r) })
				list = append(list, restarts(env)...)
				if concerned(s.Host()) {
					list = append(list, serves(env))
				}
				return append(list, op.ReadFile{Path: adminConf, Secret: true}), nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				if last := results[len(results)-1]; env.IsFirst(s.Host()) && !last.Missing {
					engine.Provide(s, KeyAdmin, kubeconfig.Untrusted{Text: last.Output})
				}
				return nil
			},
		},
	}}
	if _, ok := spec.RegistryHost(env.Cluster); ok {
		m.Tasks = append(m.Tasks, engine.Task{
			ID: "certs.registry", Title: "renew the registry's certificate", On: engine.Role(v1alpha1.RoleRegistry),
			Ops: func(s *engine.Scope) (op.List, error) { return chosen(s.Host(), ofRegistry), nil },
		})
	}
	return m
}

// Look is all that Renew would do on a host, in one list: what is refused is
// known by it before anything is touched.
func (w Wish) Look(env module.Env, h v1alpha1.Host) op.List {
	list := w.Renewals(env, h)
	if slices.Contains(h.Roles, v1alpha1.RoleControlPlane) {
		list = append(list, restarts(env)...)
	}
	return list
}

// restarts have programs read their kubeconfigs anew. kube-vip, where there is
// one, follows its own certificate, and not its authority; that of a cluster from
// before goes by the administrator's.
func restarts(env module.Env) op.List {
	restart := func(manifest string, files ...string) op.PodRestart {
		return op.PodRestart{Manifest: manifest, Files: files, TimeoutSeconds: 300}
	}
	vip := []string{adminConf}
	if env.Cluster.Spec.ControlPlaneEndpoint.Mode == v1alpha1.EndpointKubeVIP {
		vip = append(vip, module.KubeVIPCert, AuthorityCert)
	}
	return op.List{
		restart(dir+"manifests/kube-controller-manager.yaml", dir+"controller-manager.conf"),
		restart(dir+"manifests/kube-scheduler.yaml", dir+"scheduler.conf"),
		restart(module.KubeVIPManifest, vip...),
	}
}

// ownMember waits for a host's own member of etcd, as who asks it by what it
// shows now.
func ownMember(env module.Env) op.Wait {
	w := env.AskMember("health")
	w.Name, w.TimeoutSeconds = "its member of etcd", 300
	return *w
}

// serves waits for a control plane's own API server: it shows what its authority
// has signed, and takes the administrator's certificate. One that the kubelet
// has given up for now is tried again within five minutes.
func serves(env module.Env) op.Wait {
	return op.Wait{Name: "its API server", TimeoutSeconds: 600, Program: ownServer(env, "/readyz")}
}

// ownServer asks a control plane's own API server for something, as the administrator.
func ownServer(env module.Env, path string) []string {
	own := net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port))
	return []string{kubectl, "--kubeconfig=" + adminConf, "--server=https://" + own, "--request-timeout=8s", "get", "--raw=" + path}
}
