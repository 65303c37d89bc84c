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
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// KeyAdmin is the administrator's kubeconfig, with its new certificate.
var KeyAdmin = engine.NewKey("certs.admin", kubeconfig.Untrusted{})

const (
	adminConf = dir + "admin.conf"
	kubectl   = "/usr/local/bin/kubectl"
)

// A RenewalRequest selects the certificates to renew, with the facts about their hosts.
type RenewalRequest struct {
	module.Renewal
	// Concerned lists hosts with a certificate to renew. The renewal waits until such a
	// host serves before it continues with the next one.
	Concerned []string
	// Lapsed reports whether certificates of etcd, or of kubelets that run it, have
	// expired on some host: then nothing serves before all of them are renewed.
	Lapsed bool
	// Readmit lists workers whose kubelet credentials have expired.
	Readmit []string
	// Continues reports whether an earlier attempt was interrupted, and may have left
	// tokens.
	Continues bool
}

// HostRenewals returns what is renewed on a host with the CAs that it has.
func (w RenewalRequest) HostRenewals(env module.Env, h v1alpha1.Host) op.List {
	var out op.List
	for _, k := range ExpectedCerts(env, h) {
		if r, ok := w.renewalOf(env, h, k); ok {
			out = append(out, r)
		}
	}
	return out
}

// renewalOf returns how a certificate is renewed, if it is.
func (w RenewalRequest) renewalOf(env module.Env, h v1alpha1.Host, k Known) (op.RenewCertificate, bool) {
	r := op.RenewCertificate{
		CertificateFile: k.CertificateFile, CAKey: strings.TrimSuffix(k.CA, ".crt") + ".key",
		ValiditySeconds: int64(env.CertValidity() / time.Second),
	}
	var wanted bool
	r.Due, r.WithinSeconds, wanted = w.DueFor(k.Name)
	control := slices.Contains(h.Roles, v1alpha1.RoleControlPlane)
	switch {
	case k.Authority || k.Theirs || !wanted:
		return r, false
	case k.Name == nameKubeletServing && !k.Rotates:
		r.CAKey, r.Unit, r.Remade = "", kubelet, true
		return r, true
	case k.Name == "apiserver-etcd-client" && !env.HasStackedEtcd():
		return r, false // the key of its CA is on other hosts; see module etcd
	case k.Name == nameRegistry:
		r.Unit = module.RegistryUnit // it reads the certificate at its start
	case !control && !strings.Contains(k.CA, "/etcd/"):
		return r, false // the key of the CA is not on workers
	case k.Rotates:
		r.Due, r.WithinSeconds, r.Unit = op.DueExpired, 0, kubelet
	case k.Path == dir+"kubelet.conf":
		r.Unit = kubelet
	}
	return r, true
}

// RenewCerts is the module that renews certificates. The certificates of etcd and of the
// kubelets that run it come first, on all hosts, because nothing serves without them. Then
// the control planes follow one after the other, and each must serve before the next one.
// etcd and API servers read new certificates automatically at the next connection.
// Programs that read their kubeconfig only at their start are restarted.
func RenewCerts(env module.Env, w RenewalRequest) engine.Module {
	concerned := func(h *engine.Host) bool { return slices.Contains(w.Concerned, h.Name) }
	chosen := func(h *engine.Host, want func(op.RenewCertificate) bool) (out op.List) {
		for _, o := range w.HostRenewals(env, h.Host) {
			if want(o.(op.RenewCertificate)) {
				out = append(out, o)
			}
		}
		return out
	}
	ofKubelet := func(r op.RenewCertificate) bool { return r.Unit == kubelet }
	ofRegistry := func(r op.RenewCertificate) bool { return r.Unit == module.RegistryUnit }
	ofEtcd := func(r op.RenewCertificate) bool { return strings.Contains(r.CA, "/etcd/") }
	m := engine.Module{Name: "certs", Tasks: []engine.Task{
		{
			ID: "certs.kubelet", Title: "renew kubelet certificates", On: module.IsNode, Rollout: engine.Rollout{MaxParallel: "10%"},
			Ops: func(s *engine.Scope) (op.List, error) { return chosen(s.Host(), ofKubelet), nil },
		},
		{
			ID: "certs.etcd", Title: "renew etcd certificates", Rollout: rolling, Timeout: 6 * time.Minute,
			On:    func(h *engine.Host) bool { return hostroles.RunsEtcd(env.Cluster, h.Roles) },
			Needs: []string{"certs.kubelet"},
			Ops: func(s *engine.Scope) (op.List, error) {
				list := chosen(s.Host(), ofEtcd)
				if concerned(s.Host()) && !w.Lapsed {
					list = append(list, waitLocalMember(env))
				}
				return list, nil
			},
		},
		{
			ID: "certs.control-plane", Title: "renew control plane certificates", Rollout: rolling, Timeout: 20 * time.Minute,
			On:       func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) },
			Needs:    []string{"certs.etcd"},
			Provides: []engine.KeyRef{KeyAdmin.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				list := chosen(s.Host(), func(r op.RenewCertificate) bool { return !ofKubelet(r) && !ofEtcd(r) && !ofRegistry(r) })
				list = append(list, restartOps(env)...)
				if concerned(s.Host()) {
					list = append(list, waitAPIServes(env))
					if !w.Lapsed {
						list = append(list, env.ComponentsHealthy()...)
					}
				}
				return append(list, op.ReadFile{Path: adminConf, Secret: true}), nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				if last := results[len(results)-1]; env.IsFirst(s.Host()) && !last.Missing {
					engine.ProvideValue(s, KeyAdmin, kubeconfig.Untrusted{Text: last.Output})
				}
				return nil
			},
		},
	}}
	if _, ok := spec.RegistryHost(env.Cluster); ok {
		m.Tasks = append(m.Tasks, engine.Task{
			ID: "certs.registry", Title: "renew registry certificate", On: engine.HasRole(v1alpha1.RoleRegistry),
			Ops: func(s *engine.Scope) (op.List, error) { return chosen(s.Host(), ofRegistry), nil },
		})
	}
	return m
}

// PreviewRenewal returns everything that RenewCerts would do on a host in one list, so that
// errors are known before anything is changed.
func (w RenewalRequest) PreviewRenewal(env module.Env, h v1alpha1.Host) op.List {
	list := w.HostRenewals(env, h)
	if slices.Contains(h.Roles, v1alpha1.RoleControlPlane) {
		list = append(list, restartOps(env)...)
	}
	return list
}

// restartOps restarts programs that must read their kubeconfig again. kube-vip, if there is
// one, reads its own certificate automatically, but not its CA. In an older cluster it
// uses the certificate of the administrator.
func restartOps(env module.Env) op.List {
	restart := func(manifest string, files ...string) op.StaticPodRestart {
		return op.StaticPodRestart{Manifest: manifest, Files: files, TimeoutSeconds: 300}
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

// waitLocalMember waits for the etcd member of the host, as a client that verifies its
// current certificate.
func waitLocalMember(env module.Env) op.Wait {
	w := env.WaitLocalMember("health")
	w.Name, w.TimeoutSeconds = "etcd member of this host", 300
	return *w
}

// waitAPIServes waits until the API server of the host has a valid certificate and
// accepts the certificate of the administrator. After repeated failures the kubelet
// restarts it within five minutes.
func waitAPIServes(env module.Env) op.Wait {
	return op.Wait{Name: "API server of this host", TimeoutSeconds: 600, Program: requestLocalServer(env, "/readyz")}
}

// requestLocalServer returns a request to the API server of the host itself, as the
// administrator.
func requestLocalServer(env module.Env, path string) []string {
	own := net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port))
	return []string{kubectl, "--kubeconfig=" + adminConf, "--server=https://" + own, "--request-timeout=8s", "get", "--raw=" + path}
}
