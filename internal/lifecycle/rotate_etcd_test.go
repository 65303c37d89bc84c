package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// withEtcd creates a running cluster with real certificates, whose programs have read
// etcd's CA bundle.
func withEtcd(t *testing.T, machines ...string) *world {
	t.Helper()
	w := newWorld(t, machines...)
	w.SeparateEtcd = slices.Contains(machines, "ex1")
	w.ManagedEtcd = w.SeparateEtcd || slices.Contains(machines, "e1")
	w.create(event.Succeeded)
	w.issueCertificates(300 * certDay)
	for _, m := range w.Hosts {
		member, server := m.EtcdCAReaders()
		for _, by := range []string{member, server} {
			if by == "" {
				continue
			}
			m.State["etcd by "+by] = m.Files[module.EtcdCA]
			if strings.HasPrefix(by, "/") {
				m.State["read by "+by] = m.HashInputs(op.StaticPodRestart{Files: []string{module.EtcdCA}})
			} else {
				m.State[by+" started"] = m.HashInputs(module.EtcdUnit())
				w.API.ManagedEtcd.Running[m.Name] = m.Files[module.EtcdCA]
			}
		}
	}
	return w
}

// coherent checks that each program trusts the current etcd certificates of all machines,
// with the CA bundle that it read at startup.
func (w *world) coherent(at string) {
	believes := func(bundle, cert string) bool {
		list, err := pki.ParseAuthorities([]byte(bundle))
		leaf, err2 := pki.ParseCertificate([]byte(cert))
		return err == nil && err2 == nil && slices.ContainsFunc(list, func(a pki.Authority) bool {
			ca, err := pki.ParseCertificate(a.Text)
			return err == nil && leaf.CheckSignatureFrom(ca) == nil
		})
	}
	for _, m := range w.Hosts {
		m.Mu.Lock()
		defer m.Mu.Unlock()
	}
	for _, a := range w.Hosts {
		member, server := a.EtcdCAReaders()
		for _, b := range w.Hosts {
			for _, name := range []string{module.EtcdPKI + "/server.crt", module.EtcdPKI + "/peer.crt", module.EtcdClientCert} {
				cert := b.Files[name]
				if cert == "" {
					continue
				}
				if member != "" && !believes(a.State["etcd by "+member], cert) {
					w.t.Errorf("%s: the etcd member of %s does not trust %s of %s", at, a.Name, name, b.Name)
				}
				if server != "" && name == module.EtcdPKI+"/server.crt" && !believes(a.State["etcd by "+server], cert) {
					w.t.Errorf("%s: the API server of %s does not trust %s of %s", at, a.Name, name, b.Name)
				}
			}
		}
	}
}

// watched calls coherent before each change of a machine.
func (w *world) watched() {
	for _, m := range w.Hosts {
		m.OnChange = func(what string) { w.coherent(what) }
	}
}

// etcdExchanged checks that all hosts trust only one new etcd CA and have started with it.
// Only hosts with a member have its key, and nothing of the rotation is left.
func (w *world) etcdExchanged(from string) {
	w.t.Helper()
	w.coherent("at the end")
	var one string
	for _, m := range w.Hosts {
		member, server := m.EtcdCAReaders()
		if member == "" && server == "" {
			continue
		}
		is := m.Files[module.EtcdCA]
		if one == "" {
			one = is
		}
		if is == from || is != one || strings.Count(is, "BEGIN") != 1 {
			w.t.Errorf("%s trusts\n%s", m.Name, is)
		}
		for _, by := range []string{member, server} {
			if by != "" && m.State["etcd by "+by] != is {
				w.t.Errorf("%s of %s has started with\n%s", by, m.Name, m.State["etcd by "+by])
			}
		}
		st := pki.ReadState(m.ReadFile, op.CertificateFile{Path: module.EtcdCA, Key: lifecycletest.EtcdCAKey})
		if member != "" && (st.NoKey || st.OtherKey) ||
			member == "" && m.HasFile(lifecycletest.EtcdCAKey) {
			w.t.Errorf("the key of %s: %+v", m.Name, st)
		}
		for path := range m.Files {
			if strings.Contains(path, "/rotate/") {
				w.t.Errorf("%s still has %s", m.Name, path)
			}
		}
	}
}

func rotateEtcd() RotateCARequest {
	return RotateCARequest{Name: "prod", Names: []string{certs.Etcd}}
}

// etcdShapes are clusters with etcd in static pods, as a service on all hosts, and as a
// service on dedicated hosts only.
var etcdShapes = map[string][]string{
	"stacked": {"cp1", "cp2", "cp3", "w1"}, "managed": {"cp1", "cp2", "e1"},
	"apart": {"cp1", "cp2", "ex1"},
}

// TestRotateEtcd_KeepsAllCertificatesTrusted checks that all etcd certificates are trusted at every moment of the
// rotation.
func TestRotateEtcd_KeepsAllCertificatesTrusted(t *testing.T) {
	for name, machines := range etcdShapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withEtcd(t, machines...)
			from, key := w.Hosts["cp1"].Files[module.EtcdCA], w.Hosts["cp1"].Files[module.EtcdClientKey]
			w.watched()
			res := w.do(rotateEtcd(), event.Succeeded)
			w.etcdExchanged(from)
			if name == "stacked" && w.Hosts["cp1"].Files[module.EtcdClientKey] != key {
				t.Error("the key was replaced: key and certificate do not match for a moment")
			}
			if len(res.Ready) == 0 {
				t.Error("the result is empty")
			}
			for _, d := range w.checked(0).Warnings {
				t.Errorf("%+v", d)
			}
			w.wantPhase(v1alpha1.PhaseRunning)
		})
	}
}

// TestRotateEtcd_ReplacesCAOnceAfterKill kills the manager at the end of each step and resumes. The old CA
// is replaced exactly once.
func TestRotateEtcd_ReplacesCAOnceAfterKill(t *testing.T) {
	for name, machines := range etcdShapes {
		t.Run(name, func(t *testing.T) {
			w := withEtcd(t, machines...)
			from := w.Hosts["cp1"].Files[module.EtcdCA]
			w.killedExchange(t, rotateEtcd(), "/etc/slipway/rotate/etcd-ca.crt", module.EtcdCA, (*world).watched,
				func(k *world) { k.etcdExchanged(from) })
		})
	}
}

// TestRotateEtcd_RestartsProgramsThatUseOldCA finishes a rotation that was interrupted when all files had only
// the next CA. Programs that have not restarted since then are restarted.
func TestRotateEtcd_RestartsProgramsThatUseOldCA(t *testing.T) {
	t.Parallel()
	for name, machines := range etcdShapes {
		t.Run(name, func(t *testing.T) {
			w := withEtcd(t, machines...)
			from := w.Hosts["cp1"].Files[module.EtcdCA]
			w.do(rotateEtcd(), event.Succeeded)
			is := w.Hosts["cp1"].Files[module.EtcdCA]
			keeper := w.Hosts["cp1"]
			if w.SeparateEtcd {
				keeper = w.Hosts["ex1"]
			}
			keeper.Files["/etc/slipway/rotate/etcd-ca.crt"] = is // the last step was not done
			keeper.Files["/etc/slipway/rotate/etcd-ca.key"] = keeper.Files[lifecycletest.EtcdCAKey]
			m := w.Hosts["cp2"]
			member, server := m.EtcdCAReaders()
			for _, by := range []string{member, server} {
				m.State["etcd by "+by] += from
				m.State["read by "+by], m.State[by+" started"] = "older", "older"
			}
			w.do(rotateEtcd(), event.Succeeded)
			w.etcdExchanged(from)
			if m.Files[module.EtcdCA] != is {
				t.Error("it was rotated twice")
			}
		})
	}
}
