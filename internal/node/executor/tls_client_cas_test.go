//go:build linux

package executor

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// knows starts a server that accepts client certificates of the CAs, and returns its
// address.
func knows(t *testing.T, authorities ...*pkitest.Authority) string {
	t.Helper()
	cert, key := authorities[0].IssueCertificate(t, "server", time.Now().Add(time.Hour))
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for _, a := range authorities {
		pool.AppendCertsFromPEM([]byte(a.Cert))
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, ClientCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-served })
	return l.Addr().String()
}

// TestWait_RequiresServerThatTrustsCurrentCAs checks that a server has reloaded its bundles when it lists as many CAs,
// by name, as they contain.
func TestWait_RequiresServerThatTrustsCurrentCAs(t *testing.T) {
	h := newHost(t)
	make := func(name string) *pkitest.Authority {
		return pkitest.NewAuthority(t, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	}
	cluster, old, next := make("kubernetes"), make("front-proxy-ca"), make("front-proxy-ca")
	h.write("/etc/ca.crt", cluster.Cert)
	before, both := knows(t, cluster, old), knows(t, cluster, old, next)
	for name, tc := range map[string]struct {
		at, bundle string
		is         bool
	}{
		"as it was":                 {before, old.Cert, true},
		"it has not read it":        {before, next.Cert + old.Cert, false},
		"it has read it":            {both, next.Cert + old.Cert + old.Cert, true},
		"it trusts what is dropped": {both, next.Cert, false},
		"nobody answers":            {"127.0.0.1:1", old.Cert, false},
		"there is nothing to trust": {before, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			h.write("/etc/front-proxy-ca.crt", tc.bundle)
			r := h.check(op.Wait{TCP: tc.at, Trusts: []string{"/etc/ca.crt", "/etc/front-proxy-ca.crt"}, TimeoutSeconds: 1})[0]
			if r.Error != nil || (r.Status == op.Unchanged) != tc.is {
				t.Errorf("%+v", r)
			}
		})
	}
	if r := h.check(op.Wait{Trusts: []string{"/etc/ca.crt"}, TimeoutSeconds: 1})[0]; r.Error == nil ||
		!strings.Contains(r.Error.Message, "trust") {
		t.Errorf("a wait without an address is accepted: %+v", r)
	}
}
