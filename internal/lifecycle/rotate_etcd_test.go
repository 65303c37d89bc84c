package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

const etcdCAKey = module.EtcdPKI + "/ca.key"

// haveOne reports whether two bundles have a CA in common. Bundles of tests without real
// certificates have no CA.
func haveOne(one, other string) bool {
	list, _ := pki.ParseAuthorities([]byte(one))
	others, _ := pki.ParseAuthorities([]byte(other))
	return slices.ContainsFunc(list, func(a pki.Authority) bool { return pki.TrustsCA(others, a.ID) })
}

// etcdRuns returns the programs on a machine that read etcd's CA at startup.
func (m *machine) etcdRuns() (member, server string) {
	if m.has(etcdCAKey) {
		if member = etcdManifest; m.has(etcdUnit) {
			member = "etcd.service"
		}
	}
	if m.has(module.APIServerManifest) {
		server = module.APIServerManifest
	}
	return member, server
}

const etcdUnit = "/etc/systemd/system/etcd.service"

// withEtcd creates a running cluster with real certificates, whose programs have read
// etcd's CA bundle.
func withEtcd(t *testing.T, machines ...string) *world {
	t.Helper()
	w := newWorld(t, machines...)
	w.apart = slices.Contains(machines, "ex1")
	w.managed = w.apart || slices.Contains(machines, "e1")
	w.create(event.Succeeded)
	w.certified(300 * certDay)
	for _, m := range w.machines {
		member, server := m.etcdRuns()
		for _, by := range []string{member, server} {
			if by == "" {
				continue
			}
			m.state["etcd by "+by] = m.files[module.EtcdCA]
			if strings.HasPrefix(by, "/") {
				m.state["read by "+by] = m.content(op.StaticPodRestart{Files: []string{module.EtcdCA}})
			} else {
				m.state[by+" started"] = m.content(module.EtcdUnit())
				w.api.managedEtcd.run[m.name] = m.files[module.EtcdCA]
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
	for _, m := range w.machines {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	for _, a := range w.machines {
		member, server := a.etcdRuns()
		for _, b := range w.machines {
			for _, name := range []string{module.EtcdPKI + "/server.crt", module.EtcdPKI + "/peer.crt", module.EtcdClientCert} {
				cert := b.files[name]
				if cert == "" {
					continue
				}
				if member != "" && !believes(a.state["etcd by "+member], cert) {
					w.t.Errorf("%s: the etcd member of %s does not trust %s of %s", at, a.name, name, b.name)
				}
				if server != "" && name == module.EtcdPKI+"/server.crt" && !believes(a.state["etcd by "+server], cert) {
					w.t.Errorf("%s: the API server of %s does not trust %s of %s", at, a.name, name, b.name)
				}
			}
		}
	}
}

// watched calls coherent before each change of a machine.
func (w *world) watched() {
	for _, m := range w.machines {
		m.touched = func(what string) { w.coherent(what) }
	}
}

// etcdExchanged checks that all hosts trust only one new etcd CA and have started with it.
// Only hosts with a member have its key, and nothing of the rotation is left.
func (w *world) etcdExchanged(from string) {
	w.t.Helper()
	w.coherent("at the end")
	var one string
	for _, m := range w.machines {
		member, server := m.etcdRuns()
		if member == "" && server == "" {
			continue
		}
		is := m.files[module.EtcdCA]
		if one == "" {
			one = is
		}
		if is == from || is != one || strings.Count(is, "BEGIN") != 1 {
			w.t.Errorf("%s trusts\n%s", m.name, is)
		}
		for _, by := range []string{member, server} {
			if by != "" && m.state["etcd by "+by] != is {
				w.t.Errorf("%s of %s has started with\n%s", by, m.name, m.state["etcd by "+by])
			}
		}
		if st := pki.ReadState(m.read, op.CertificateFile{Path: module.EtcdCA, Key: etcdCAKey}); member != "" && (st.NoKey || st.OtherKey) ||
			member == "" && m.has(etcdCAKey) {
			w.t.Errorf("the key of %s: %+v", m.name, st)
		}
		for path := range m.files {
			if strings.Contains(path, "/rotate/") {
				w.t.Errorf("%s still has %s", m.name, path)
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

// TestRotateEtcd checks that all etcd certificates are trusted at every moment of the
// rotation.
func TestRotateEtcd(t *testing.T) {
	for name, machines := range etcdShapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withEtcd(t, machines...)
			from, key := w.machines["cp1"].files[module.EtcdCA], w.machines["cp1"].files[module.EtcdClientKey]
			w.watched()
			res := w.do(rotateEtcd(), event.Succeeded)
			w.etcdExchanged(from)
			if name == "stacked" && w.machines["cp1"].files[module.EtcdClientKey] != key {
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

// TestKilledRotateEtcd kills the manager at the end of each step and resumes. The old CA
// is replaced exactly once.
func TestKilledRotateEtcd(t *testing.T) {
	for name, machines := range etcdShapes {
		t.Run(name, func(t *testing.T) {
			w := withEtcd(t, machines...)
			from := w.machines["cp1"].files[module.EtcdCA]
			w.killedExchange(t, rotateEtcd(), "/etc/slipway/rotate/etcd-ca.crt", module.EtcdCA, (*world).watched,
				func(k *world) { k.etcdExchanged(from) })
		})
	}
}

// TestRotateEtcdUnread finishes a rotation that was interrupted when all files had only
// the next CA. Programs that have not restarted since then are restarted.
func TestRotateEtcdUnread(t *testing.T) {
	t.Parallel()
	for name, machines := range etcdShapes {
		t.Run(name, func(t *testing.T) {
			w := withEtcd(t, machines...)
			from := w.machines["cp1"].files[module.EtcdCA]
			w.do(rotateEtcd(), event.Succeeded)
			is := w.machines["cp1"].files[module.EtcdCA]
			keeper := w.machines["cp1"]
			if w.apart {
				keeper = w.machines["ex1"]
			}
			keeper.files["/etc/slipway/rotate/etcd-ca.crt"] = is // the last step was not done
			keeper.files["/etc/slipway/rotate/etcd-ca.key"] = keeper.files[etcdCAKey]
			m := w.machines["cp2"]
			member, server := m.etcdRuns()
			for _, by := range []string{member, server} {
				m.state["etcd by "+by] += from
				m.state["read by "+by], m.state[by+" started"] = "older", "older"
			}
			w.do(rotateEtcd(), event.Succeeded)
			w.etcdExchanged(from)
			if m.files[module.EtcdCA] != is {
				t.Error("it was rotated twice")
			}
		})
	}
}
