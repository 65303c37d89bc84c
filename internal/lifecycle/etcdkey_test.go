package lifecycle

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
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
	for _, m := range w.machines {
		m.given = func(o op.Op) { k.sent(m, o) }
	}
	return k
}

func (k *keyWatch) sent(m *machine, o op.Op) {
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
	k.seen[m.name]++
	for _, key := range keysIn(fields) {
		if !signsForEtcd(key) {
			continue
		}
		k.keys[m.name]++
		if !strings.HasPrefix(m.name, "e") {
			k.t.Errorf("%s gets the key of etcd's CA in %s %s", m.name, o.Kind(), o.Target())
		}
	}
}

// TestEtcdKey_OnlyOnMembers: with etcd on dedicated hosts, no operation on a control
// plane holds a key of the etcd CA, whatever is done with the cluster.
func TestEtcdKey_OnlyOnMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "cp2", "e1", "e2", "e3")
	w.managed, w.apart = true, true
	k := watchKeys(w)
	c := w.cluster()
	less := w.cluster()
	less.Spec.Hosts = slices.DeleteFunc(less.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == "cp2" })
	w.do(creating(less), event.Succeeded)
	w.asks("cp1")
	w.do(applying(c), event.Succeeded)
	w.asks("cp1", "cp2")
	before := w.machines["cp1"].files[module.EtcdClientCert]
	w.settled(c)

	for _, name := range []string{"cp1", "cp2"} {
		w.machines[name].ages(t, w.machines["e1"].files[etcdCAKey])
	}
	w.renew(Renewal{Names: []string{"apiserver-etcd-client"}}, event.Succeeded)
	w.asks("cp1", "cp2")
	if st := pki.ReadState(w.machines["cp2"].read,
		op.CertificateFile{Path: module.EtcdClientCert}); st.Ends.Before(certTime.Add(9 * certYear)) {
		t.Errorf("the certificate expires on %s: it was not renewed", st.Ends)
	}

	was := w.machines["e1"].files[module.EtcdCA]
	w.do(rotateEtcd(), event.Succeeded)
	w.asks("cp1", "cp2")
	if after := w.machines["cp1"].files; after[module.EtcdCA] == was || after[module.EtcdClientCert] == before {
		t.Error("cp1 uses the old CA")
	}

	delete(w.machines["cp2"].files, module.EtcdClientKey)
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
		m := w.machines[name]
		st := pki.ReadState(m.read, op.CertificateFile{Path: module.EtcdClientCert, Key: module.EtcdClientKey, CA: module.EtcdCA})
		if st.Missing || st.Problem != "" || st.NoKey || st.OtherKey || st.Foreign {
			w.t.Errorf("%s authenticates to etcd with %+v", name, st)
		}
		for path, content := range m.files {
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

// etcdKeys holds the keys of the etcd CAs that test machines have made.
var etcdKeys sync.Map

// signsForEtcd reports whether a text holds a key of a CA of etcd.
func signsForEtcd(text string) (is bool) {
	etcdKeys.Range(func(key, _ any) bool {
		is = strings.Contains(text, strings.TrimSpace(key.(string)))
		return !is
	})
	return is
}

// ages replaces the etcd client certificate of a machine with one that expires in ten
// days.
func (m *machine) ages(t *testing.T, caKey string) {
	t.Helper()
	o := op.Certificate{
		Cert: module.EtcdClientCert, Key: module.EtcdClientKey, CA: []byte(m.files[module.EtcdCA]),
		CommonName: "kube-apiserver-etcd-client", Client: true, ValiditySeconds: int64(10 * certDay / time.Second),
	}
	signed, err := pki.SignRequest(m.request(op.CertificateRequest{Certificate: o}), o, []byte(caKey), certTime)
	if err != nil {
		t.Fatal(err)
	}
	m.files[module.EtcdClientCert] = string(signed)
}
