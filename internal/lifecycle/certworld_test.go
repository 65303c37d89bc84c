package lifecycle

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// certTime is the time of all checks of certificates, also on the machines.
var certTime = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

const (
	certDay  = 24 * time.Hour
	certYear = 365 * certDay
)

// read returns a file for the code of the helper. The caller holds mu.
func (m *machine) read(path string) ([]byte, error) { return []byte(m.files[path]), nil }

// states plays the helper. Played files are not certificates; they count as certificates
// that are valid for years.
func (m *machine) states(o op.InspectCertificates) []byte {
	var out []op.CertificateState
	for _, f := range o.Files {
		st := pki.ReadState(m.read, f)
		if st.Problem != "" || st.Missing && m.has(f.Path) && path.Base(f.Path) != "kubelet.conf" {
			st = op.CertificateState{Path: f.Path, Subject: "played", Issuer: "played", Begins: certTime, Ends: certTime.Add(5 * certYear)}
		}
		if f.Key != "" && m.has(f.Key) {
			st.NoKey = false
		}
		out = append(out, st)
	}
	raw, _ := json.Marshal(out) // they are times and text
	return raw
}

// certified gives the machines real certificates instead of the played ones. Certificates
// of a year have the time left before they expire; CAs have nine years.
func (w *world) certified(left time.Duration) {
	w.t.Helper()
	c := w.cluster()
	env := module.Env{Cluster: c}
	begins := certTime.Add(left - certYear)
	signers := map[string]*pkitest.Authority{}
	for _, ca := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
		name := map[string]string{"ca": "kubernetes", "etcd/ca": "etcd-ca"}[ca]
		if name == "" {
			name = ca
		}
		signers["/etc/kubernetes/pki/"+ca+".crt"] = pkitest.NewAuthority(w.t, name, begins, begins.Add(10*certYear))
	}
	for _, h := range c.Spec.Hosts {
		m := w.machines[h.Name]
		for _, k := range certs.ExpectedCerts(env, h) {
			if path.Base(k.Path) == "kubelet.conf" {
				m.files[k.Path] = "kind: Config\n" // it names the file that rotates
			} else if a := signers[k.Path]; a != nil {
				m.files[k.Path] = a.Cert
				if !k.KeyElsewhere {
					m.files[k.Key] = a.Key
				}
			} else if m.has(k.Path) || !k.Optional {
				m.certify(w.t, k, signers[k.CA], certTime.Add(left))
			}
		}
		m.admit = func(m *machine) {
			cert, key := signers["/etc/kubernetes/pki/ca.crt"].IssueCertificate(w.t, "system:node:"+m.name, certTime.Add(certYear))
			m.files[module.ClientCert] = cert + key
		}
		if facts.RunsKubelet(h.Roles) {
			m.files["/etc/kubernetes/pki/ca.crt"] = signers["/etc/kubernetes/pki/ca.crt"].Cert
		}
	}
	w.api.kubeletShows = func(address string) *tls.Certificate {
		cert, key := signers["/etc/kubernetes/pki/ca.crt"].IssueCertificate(w.t, address, begins.Add(9*certYear))
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			w.t.Error(err)
		}
		return &pair
	}
	w.recorded(signers["/etc/kubernetes/pki/ca.crt"])
}

// recorded saves a kubeconfig in which the manager trusts the current CA.
func (w *world) recorded(ca *pkitest.Authority) {
	w.t.Helper()
	c, err := w.service().Cluster(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	text := kubeconfig.Untrusted{Text: []byte(w.api.kubeconfig()), CAs: []byte(string(w.api.ca()) + ca.Cert)}
	conf, err := clusterstate.MakeExternalKubeconfig(module.Env{Cluster: c}, text, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.service().Store.Kubeconfigs().Save("prod", conf); err != nil {
		w.t.Fatal(err)
	}
}

// certify gives a machine a certificate.
func (m *machine) certify(t testing.TB, k certs.Known, by *pkitest.Authority, ends time.Time) {
	t.Helper()
	if by == nil {
		by = pkitest.NewAuthority(t, m.name+"-ca", ends.Add(-certYear), ends)
	}
	cert, key := by.IssueCertificate(t, k.Name+" of "+m.name, ends)
	switch {
	case k.Key != "":
		m.files[k.Path], m.files[k.Key] = cert, key
	case strings.HasSuffix(k.Path, ".conf"):
		m.files[k.Path] = pkitest.MakeKubeconfig("https://example.com:6443", string(m.api.ca())+by.Cert, "", cert, key)
	default:
		m.files[k.Path] = cert + key
	}
}

// certified evaluates waits for certificates.
func (m *machine) certified(w op.Wait) (answer, known bool) {
	switch {
	case w.Certificate != "":
		if w.Certificate == module.ServingCert {
			m.certifies()
		}
		return m.has(w.Certificate) && !m.over(w.Certificate), true
	case w.Name == "etcd member of this host", w.Name == "etcd cluster" && w.Manifest == "":
		return !m.over(module.EtcdPKI+"/server.crt") && !m.over(module.EtcdHealthCert), true
	case w.Name == "API server of this host":
		return !m.silent && !m.lapsed() && !m.over("/etc/kubernetes/admin.conf"), true
	}
	return false, false
}

// over reports whether a certificate has expired.
func (m *machine) over(path string) bool {
	st := pki.ReadState(m.read, op.CertificateFile{Path: path})
	return !st.Ends.IsZero() && certTime.After(st.Ends)
}

// lapsed reports whether a serving certificate of the API server or an etcd certificate on
// the machine has expired.
func (m *machine) lapsed() bool {
	return slices.ContainsFunc([]string{"apiserver", "apiserver-etcd-client", "etcd/server", "etcd/peer"}, func(name string) bool {
		return m.over("/etc/kubernetes/pki/" + name + ".crt")
	})
}

// ends returns when a certificate of a machine expires.
func (w *world) ends(host, path string) time.Time {
	w.t.Helper()
	st := pki.ReadState(w.machines[host].read, op.CertificateFile{Path: path})
	if st.Ends.IsZero() {
		w.t.Errorf("%s of %s: %+v", path, host, st)
	}
	return st.Ends
}

// checked returns a check of the cluster's certificates.
func (w *world) checked(within time.Duration) *inspect.Certificates {
	w.t.Helper()
	c, err := w.service().Certificates(w.t.Context(), Subject{Name: "prod"}, within, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// certIDs returns the distinct ids of the warnings, each with its host.
func certIDs(c *inspect.Certificates) []string {
	out := []string{}
	for _, d := range c.Warnings {
		if id := d.ID + " " + d.Host; !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// due and renew play the helper with its real code. Played files are not certificates and
// are never due.
func (m *machine) due(o op.RenewCertificate) (string, *op.Error) {
	why, err := pki.RenewalReason(m.read, o, certTime)
	var oe *op.Error
	switch {
	case errors.As(err, &oe):
		return "", oe
	case err != nil && strings.Contains(m.files[o.Path], "BEGIN"):
		return "", &op.Error{Reason: "Internal", Message: err.Error()}
	}
	return why, nil
}

func (m *machine) renew(o op.RenewCertificate) *op.Error {
	if o.Remade {
		delete(m.files, o.Path)
		delete(m.files, o.Key)
		return nil
	}
	files, err := pki.RenewCertificate(m.read, o, certTime)
	if err != nil {
		return &op.Error{Reason: "Internal", Message: err.Error()}
	}
	for _, f := range files {
		m.files[f.Path] = string(f.Content)
	}
	return nil
}

// outOfDate reports whether a certificate differs from the wanted one. A real certificate
// is also out of date when its renewal is due.
func (m *machine) outOfDate(o op.Certificate) bool {
	text := m.files[o.Cert]
	cert, err := pki.ParseCertificate([]byte(text))
	if err != nil {
		return text != pairOf(o)
	}
	if ca, err := pki.ParseCertificate(o.CA); err == nil && o.CAKey == "" && cert.CheckSignatureFrom(ca) != nil {
		return true
	}
	wish := pki.Wish{
		Validity: time.Duration(o.ValiditySeconds) * time.Second, Due: o.Due,
		Within: time.Duration(o.WithinSeconds) * time.Second,
	}
	return wish.UnmetReason(cert, time.Time{}, certTime) != ""
}

// unsigned reports whether the host needs a certificate that the manager signs.
func (m *machine) unsigned(o op.Certificate) bool {
	return !m.has(o.Cert) || len(o.CA) == 0 || m.outOfDate(o) || pki.ReadState(m.read, op.CertificateFile{Path: o.Cert, Key: o.Key}).OtherKey
}

// request plays the helper making a certificate request.
func (m *machine) request(o op.CertificateRequest) []byte {
	key, err := pki.ParseKey([]byte(m.files[o.Key]))
	if err != nil {
		m.api.t.Errorf("the key of %s on %s: %v", o.Cert, m.name, err)
		return nil
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		m.api.t.Error(err)
	}
	return request
}

// certificate plays the helper making a key pair, or installing a signed certificate.
func (m *machine) certificate(o op.Certificate) *op.Error {
	if o.CAKey != "" {
		m.files[o.Key], m.files[o.Cert] = "key of "+m.name, pairOf(o)
		return nil
	}
	cert, err := pki.ParseCertificate(o.Signed)
	if err != nil {
		return &op.Error{Reason: "Internal", Message: o.Cert + " is not signed: " + err.Error()}
	}
	key, err := pki.ParseKey([]byte(m.files[o.Key]))
	if err != nil || !pki.IsPair(cert, key) {
		return &op.Error{Reason: "Internal", Message: o.Cert + " is not of the key that is there"}
	}
	m.files[o.Cert] = string(o.Signed)
	return nil
}

// outdated reports whether the program of a static pod has read other files than the
// current ones.
func (m *machine) outdated(o op.StaticPodRestart) bool {
	if slices.Contains(o.Files, module.EncryptionFile) {
		return m.keysOutdated()
	}
	read, ok := m.state["read by "+o.Manifest]
	return ok && read != m.content(o)
}
