package lifecycletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"

	"slipway.dev/slipway/internal/kubeletcsr"
	"slipway.dev/slipway/internal/module"
)

const signingRequests = "/apis/certificates.k8s.io/v1/certificatesigningrequests/"

// KubeletDropIn is the path of the settings that Slipway gives to a kubelet.
const KubeletDropIn = "/etc/kubernetes/kubelet.conf.d/50-slipway.conf"

// kubeletKey is the key of all simulated kubelets.
var kubeletKey = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// dialKubelet returns a connection to the kubelet of the host, which shows its certificate.
func (m *Host) dialKubelet() (net.Conn, error) {
	m.Mu.Lock()
	serves := !m.requestsServingCert() || m.HasFile(module.ServingCert)
	moved := m.CertMoved
	m.Mu.Unlock()
	if !serves {
		return nil, errors.New("the kubelet has no certificate to serve with")
	}
	cert := ServerCert()
	if moved {
		cert = otherAddressCert()
	}
	if m.API.KubeletCert != nil {
		cert = *m.API.KubeletCert(m.Address)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		defer func() { _ = l.Close() }()
		if there, err := l.Accept(); err == nil {
			_ = tls.Server(there, &tls.Config{Certificates: []tls.Certificate{cert}}).Handshake()
			_ = there.Close()
		}
	}()
	return net.Dial("tcp", l.Addr().String())
}

// otherAddressCert returns the serving certificate of a kubelet with another address.
var otherAddressCert = sync.OnceValue(func() tls.Certificate { return newKubeletCert("192.0.2.99") })

// newKubeletCert returns the serving certificate of a kubelet with an address.
func newKubeletCert(address string) tls.Certificate {
	ca := ServerCert()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: ca.Leaf.NotBefore, NotAfter: ca.Leaf.NotAfter, IPAddresses: []net.IP{net.ParseIP(address)},
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, ca.Leaf, kubeletKey().Public(), ca.PrivateKey)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: kubeletKey()}
}

// requestsServingCert reports whether the kubelet asks the cluster for its serving certificate.
func (m *Host) requestsServingCert() bool {
	return m.HasFile(module.ClientCert) && strings.Contains(m.Files[KubeletDropIn], "serverTLSBootstrap: true")
}

// updateServingCert simulates a kubelet without a serving certificate: it requests one, and installs
// the approved one.
func (m *Host) updateServingCert() {
	if !m.requestsServingCert() || m.HasFile(module.ServingCert) && !m.isExpired(module.ServingCert) && !m.CertMoved {
		return
	}
	at := signingRequests + "csr-" + m.Name
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	have := m.API.Objects[at]
	if have == nil {
		m.API.Objects[at] = m.newSigningRequest()
		return
	}
	if status, _ := have["status"].(object); status != nil && len(status["conditions"].([]any)) > 0 {
		delete(m.API.Objects, at)
		m.Files[module.ServingCert], m.CertMoved = "made by the kubelet", false
	}
}

// newSigningRequest returns the certificate request of the kubelet. It asks for one more address if
// ExtraAddress is set.
func (m *Host) newSigningRequest() object {
	ips := []net.IP{net.ParseIP(m.Address)}
	if m.ExtraAddress != "" {
		ips = append(ips, net.ParseIP(m.ExtraAddress))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + m.Name, Organization: []string{"system:nodes"}},
		DNSNames: []string{m.Name}, IPAddresses: ips,
	}, kubeletKey())
	if err != nil {
		m.API.T.Error(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return object{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": object{"name": "csr-" + m.Name},
		"spec": object{
			"request": base64.StdEncoding.EncodeToString(text), "signerName": kubeletcsr.Signer, "username": "system:node:" + m.Name,
			"groups": []any{"system:nodes", "system:authenticated"}, "usages": []any{"digital signature", "server auth"},
		},
	}
}

// approveRequest simulates the approval of a request. The caller holds Mu.
func (a *API) approveRequest(p string, body object) (any, int) {
	have := a.Objects[path.Dir(p)]
	if have == nil || have["spec"].(object)["request"] != body["spec"].(object)["request"] {
		return object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}, http.StatusConflict
	}
	have["status"] = body["status"]
	return have, http.StatusOK
}
