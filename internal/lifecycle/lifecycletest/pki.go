package lifecycletest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// ServerCert returns the certificate of all test servers. It has an ECDSA key: the key of
// httptest takes too long to sign thousands of connections.
var ServerCert = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"example.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for i := byte(11); i < 40; i++ { // kubelets show it as well
		c.IPAddresses = append(c.IPAddresses, net.IPv4(192, 0, 2, i))
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}
})

// CA returns the certificate that clients of the API trust.
func (a *API) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
}

// Kubeconfig returns a kubeconfig for the name in the server's certificate.
func (a *API) Kubeconfig() string {
	cert, key := AdminPair()
	return pkitest.MakeKubeconfig("https://example.com:6443", string(a.CA()), "", cert, key)
}

// AdminPair returns the administrator's certificate, signed by the certificate of all servers,
// and its key.
var AdminPair = sync.OnceValues(func() (cert, key string) {
	ca := ServerCert()
	signer, text, err := pki.NewKey()
	if err != nil {
		panic(err)
	}
	signed, err := pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "admin.conf"}, NotBefore: CertTime.Add(-Year), NotAfter: CertTime.Add(5 * Year),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, signer.Public(), ca.PrivateKey.(crypto.Signer))
	if err != nil {
		panic(err)
	}
	return string(signed), string(text)
})

// AdminSecret returns a part of the administrator's key, as it is in a kubeconfig.
func AdminSecret() string {
	_, key := AdminPair()
	return base64.StdEncoding.EncodeToString([]byte(key))[60:120]
}

// CertTime is the time of all checks of certificates, also on the hosts.
var CertTime = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

// Day is the unit of the validity of certificates.
const Day = 24 * time.Hour

// Year is the usual validity of certificates.
const Year = 365 * Day

// ReadFile returns a file for the code of the helper. The caller holds Mu.
func (m *Host) ReadFile(path string) ([]byte, error) { return []byte(m.Files[path]), nil }

// inspectCertificates simulates the helper. Placeholders count as certificates that are
// valid for years.
func (m *Host) inspectCertificates(o op.InspectCertificates) []byte {
	var out []op.CertificateState
	for _, f := range o.Files {
		st := pki.ReadState(m.ReadFile, f)
		if st.Problem != "" || st.Missing && m.HasFile(f.Path) && path.Base(f.Path) != "kubelet.conf" {
			st = op.CertificateState{Path: f.Path, Subject: "placeholder", Issuer: "placeholder", Begins: CertTime, Ends: CertTime.Add(5 * Year)}
		}
		if f.Key != "" && m.HasFile(f.Key) {
			st.NoKey = false
		}
		out = append(out, st)
	}
	raw, _ := json.Marshal(out) // they are times and text
	return raw
}

// IssueCertificate gives a host a certificate.
func (m *Host) IssueCertificate(t testing.TB, k certs.Known, by *pkitest.Authority, ends time.Time) {
	t.Helper()
	if by == nil {
		by = pkitest.NewAuthority(t, m.Name+"-ca", ends.Add(-Year), ends)
	}
	cert, key := by.IssueCertificate(t, k.Name+" of "+m.Name, ends)
	switch {
	case k.Key != "":
		m.Files[k.Path], m.Files[k.Key] = cert, key
	case strings.HasSuffix(k.Path, ".conf"):
		m.Files[k.Path] = pkitest.MakeKubeconfig("https://example.com:6443", string(m.API.CA())+by.Cert, "", cert, key)
	default:
		m.Files[k.Path] = cert + key
	}
}

// certificateReady evaluates waits for certificates.
func (m *Host) certificateReady(w op.Wait) (answer, known bool) {
	switch {
	case w.Certificate != "":
		if w.Certificate == module.ServingCert {
			m.updateServingCert()
		}
		return m.HasFile(w.Certificate) && !m.isExpired(w.Certificate), true
	case w.Name == "etcd member of this host", w.Name == "etcd cluster" && w.Manifest == "":
		return !m.isExpired(module.EtcdPKI+"/server.crt") && !m.isExpired(module.EtcdHealthCert), true
	case w.Name == "API server of this host":
		return !m.APISilent && !m.hasExpiredCert() && !m.isExpired("/etc/kubernetes/admin.conf"), true
	}
	return false, false
}

// isExpired reports whether a certificate has expired.
func (m *Host) isExpired(path string) bool {
	st := pki.ReadState(m.ReadFile, op.CertificateFile{Path: path})
	return !st.Ends.IsZero() && CertTime.After(st.Ends)
}

// hasExpiredCert reports whether a serving certificate of the API server or an etcd certificate on
// the host has expired.
func (m *Host) hasExpiredCert() bool {
	return slices.ContainsFunc([]string{"apiserver", "apiserver-etcd-client", "etcd/server", "etcd/peer"}, func(name string) bool {
		return m.isExpired("/etc/kubernetes/pki/" + name + ".crt")
	})
}

// renewalReason and renewCertificate use the code of the helper. Placeholders are not
// certificates and are never due.
func (m *Host) renewalReason(o op.RenewCertificate) (string, *op.Error) {
	why, err := pki.RenewalReason(m.ReadFile, o, CertTime)
	var oe *op.Error
	switch {
	case errors.As(err, &oe):
		return "", oe
	case err != nil && strings.Contains(m.Files[o.Path], "BEGIN"):
		return "", &op.Error{Reason: "Internal", Message: err.Error()}
	}
	return why, nil
}

func (m *Host) renewCertificate(o op.RenewCertificate) *op.Error {
	if o.Remade {
		delete(m.Files, o.Path)
		delete(m.Files, o.Key)
		return nil
	}
	files, err := pki.RenewCertificate(m.ReadFile, o, CertTime)
	if err != nil {
		return &op.Error{Reason: "Internal", Message: err.Error()}
	}
	for _, f := range files {
		m.Files[f.Path] = string(f.Content)
	}
	return nil
}

// certOutdated reports whether a certificate differs from the wanted one. A real certificate
// is also out of date when its renewal is due.
func (m *Host) certOutdated(o op.Certificate) bool {
	text := m.Files[o.Cert]
	cert, err := pki.ParseCertificate([]byte(text))
	if err != nil {
		return text != pairText(o)
	}
	if ca, err := pki.ParseCertificate(o.CA); err == nil && o.CAKey == "" && cert.CheckSignatureFrom(ca) != nil {
		return true
	}
	wish := pki.Wish{
		Validity: time.Duration(o.ValiditySeconds) * time.Second, Due: o.Due,
		Within: time.Duration(o.WithinSeconds) * time.Second,
	}
	return wish.UnmetReason(cert, time.Time{}, CertTime) != ""
}

// needsSigning reports whether the host needs a certificate that the manager signs.
func (m *Host) needsSigning(o op.Certificate) bool {
	return !m.HasFile(o.Cert) || len(o.CA) == 0 || m.certOutdated(o) ||
		pki.ReadState(m.ReadFile, op.CertificateFile{Path: o.Cert, Key: o.Key}).OtherKey
}

// makeRequest simulates the helper making a certificate request.
func (m *Host) makeRequest(o op.CertificateRequest) []byte {
	key, err := pki.ParseKey([]byte(m.Files[o.Key]))
	if err != nil {
		m.API.T.Errorf("the key of %s on %s: %v", o.Cert, m.Name, err)
		return nil
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		m.API.T.Error(err)
	}
	return request
}

// makeCertificate simulates the helper making a key pair, or installing a signed certificate.
func (m *Host) makeCertificate(o op.Certificate) *op.Error {
	if o.CAKey != "" {
		m.Files[o.Key], m.Files[o.Cert] = "key of "+m.Name, pairText(o)
		return nil
	}
	cert, err := pki.ParseCertificate(o.Signed)
	if err != nil {
		return &op.Error{Reason: "Internal", Message: o.Cert + " is not signed: " + err.Error()}
	}
	key, err := pki.ParseKey([]byte(m.Files[o.Key]))
	if err != nil || !pki.IsPair(cert, key) {
		return &op.Error{Reason: "Internal", Message: o.Cert + " is not of the key that is there"}
	}
	m.Files[o.Cert] = string(o.Signed)
	return nil
}

// podOutdated reports whether the program of a static pod has read other files than the
// current ones.
func (m *Host) podOutdated(o op.StaticPodRestart) bool {
	if slices.Contains(o.Files, module.EncryptionFile) {
		return m.keysOutdated()
	}
	read, ok := m.State["read by "+o.Manifest]
	return ok && read != m.HashInputs(o)
}

// EtcdKeys holds the keys of the etcd CAs that test hosts have made.
var EtcdKeys sync.Map

// AgeEtcdClientCert replaces the etcd client certificate of a host with one that expires in ten
// days.
func (m *Host) AgeEtcdClientCert(t *testing.T, caKey string) {
	t.Helper()
	o := op.Certificate{
		Cert: module.EtcdClientCert, Key: module.EtcdClientKey, CA: []byte(m.Files[module.EtcdCA]),
		CommonName: "kube-apiserver-etcd-client", Client: true, ValiditySeconds: int64(10 * Day / time.Second),
	}
	signed, err := pki.SignRequest(m.makeRequest(op.CertificateRequest{Certificate: o}), o, []byte(caKey), CertTime)
	if err != nil {
		t.Fatal(err)
	}
	m.Files[module.EtcdClientCert] = string(signed)
}
