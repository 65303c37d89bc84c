package lifecycle

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// A keyWatch reports operations that bring a key of etcd's CA to a host that has no
// etcd member. It reads every string and every encoded byte slice of an operation.
type keyWatch struct {
	t  testing.TB
	mu sync.Mutex
	// seen counts operations, and keys the operations that held a key of the CA, by host.
	seen, keys map[string]int
}

func watchKeys(w *world) *keyWatch {
	k := &keyWatch{t: w.t, seen: map[string]int{}, keys: map[string]int{}}
	for _, m := range w.Hosts {
		m.OnOperation = func(o op.Op) { k.sent(m, o) }
	}
	return k
}

func (k *keyWatch) sent(m *lifecycletest.Host, o op.Op) {
	raw, err := json.Marshal(o)
	if err != nil {
		k.t.Error(err)
		return
	}
	var fields any
	if err := json.Unmarshal(raw, &fields); err != nil {
		k.t.Error(err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[m.Name]++
	for _, key := range keysIn(fields) {
		if !signsForEtcd(key) {
			continue
		}
		k.keys[m.Name]++
		if !strings.HasPrefix(m.Name, "e") {
			k.t.Errorf("%s gets the key of etcd's CA in %s %s", m.Name, o.Kind(), o.Target())
		}
	}
}

// TestEtcdKey_OnlyOnMembers: with etcd on dedicated hosts, no operation on a control
// plane holds a key of the etcd CA, whatever is done with the cluster.
func TestEtcdKey_OnlyOnMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "cp2", "e1", "e2", "e3")
	w.ManagedEtcd, w.SeparateEtcd = true, true
	k := watchKeys(w)
	c := w.Manifest()
	less := w.Manifest()
	less.Spec.Hosts = slices.DeleteFunc(less.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == "cp2" })
	w.do(creating(less), event.Succeeded)
	w.asks("cp1")
	w.do(applying(c), event.Succeeded)
	w.asks("cp1", "cp2")
	before := w.Hosts["cp1"].Files[module.EtcdClientCert]
	w.settled(c)

	for _, name := range []string{"cp1", "cp2"} {
		w.Hosts[name].AgeEtcdClientCert(t, w.Hosts["e1"].Files[lifecycletest.EtcdCAKey])
	}
	w.renew(Renewal{Names: []string{"apiserver-etcd-client"}}, event.Succeeded)
	w.asks("cp1", "cp2")
	if st := pki.ReadState(w.Hosts["cp2"].ReadFile,
		op.CertificateFile{Path: module.EtcdClientCert}); st.Ends.Before(certTime.Add(9 * certYear)) {
		t.Errorf("the certificate expires on %s: it was not renewed", st.Ends)
	}

	was := w.Hosts["e1"].Files[module.EtcdCA]
	w.do(rotateEtcd(), event.Succeeded)
	w.asks("cp1", "cp2")
	if after := w.Hosts["cp1"].Files; after[module.EtcdCA] == was || after[module.EtcdClientCert] == before {
		t.Error("cp1 uses the old CA")
	}

	delete(w.Hosts["cp2"].Files, module.EtcdClientKey)
	w.do(applying(c), event.Succeeded)
	w.asks("cp1", "cp2")
	for host, n := range k.seen {
		if n == 0 || strings.HasPrefix(host, "e") && k.keys[host] == 0 {
			t.Errorf("%s: %d operations, %d with the key: the watch sees nothing", host, n, k.keys[host])
		}
	}
}

// asks checks that hosts authenticate to etcd with a certificate of the current etcd CA,
// and have no key of that CA.
func (w *world) asks(hosts ...string) {
	w.t.Helper()
	for _, name := range hosts {
		m := w.Hosts[name]
		st := pki.ReadState(m.ReadFile, op.CertificateFile{Path: module.EtcdClientCert, Key: module.EtcdClientKey, CA: module.EtcdCA})
		if st.Missing || st.Problem != "" || st.NoKey || st.OtherKey || st.Foreign {
			w.t.Errorf("%s authenticates to etcd with %+v", name, st)
		}
		for path, content := range m.Files {
			if signsForEtcd(content) {
				w.t.Errorf("%s has a key of etcd's CA in %s", name, path)
			}
		}
	}
}

// keysIn returns the strings of a decoded operation that hold a private key, plain or
// encoded.
func keysIn(fields any) (out []string) {
	switch v := fields.(type) {
	case string:
		if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
			v = string(raw)
		}
		if strings.Contains(v, "PRIVATE KEY") {
			out = append(out, v)
		}
	case []any:
		for _, f := range v {
			out = append(out, keysIn(f)...)
		}
	case map[string]any:
		for _, f := range v {
			out = append(out, keysIn(f)...)
		}
	}
	return out
}

// signsForEtcd reports whether a text holds a key of a CA of etcd.
func signsForEtcd(text string) (is bool) {
	lifecycletest.EtcdKeys.Range(func(key, _ any) bool {
		is = strings.Contains(text, strings.TrimSpace(key.(string)))
		return !is
	})
	return is
}
