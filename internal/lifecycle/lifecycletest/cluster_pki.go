package lifecycletest

import (
	"crypto/tls"
	"path"
	"time"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// IssueCertificates replaces the placeholders on the hosts with real certificates, and
// returns the cluster CA. Certificates of a year have the time left before they expire;
// CAs have nine years.
func (c *Cluster) IssueCertificates(left time.Duration) *pkitest.Authority {
	c.T.Helper()
	manifest := c.Manifest()
	env := module.Env{Cluster: manifest}
	begins := CertTime.Add(left - Year)
	signers := map[string]*pkitest.Authority{}
	for file, name := range map[string]string{"ca": "kubernetes", "front-proxy-ca": "front-proxy-ca", "etcd/ca": "etcd-ca"} {
		signers["/etc/kubernetes/pki/"+file+".crt"] = pkitest.NewAuthority(c.T, name, begins, begins.Add(10*Year))
	}
	ca := signers[CACert]
	for _, h := range manifest.Spec.Hosts {
		m := c.Hosts[h.Name]
		for _, k := range certs.ExpectedCerts(env, h) {
			if path.Base(k.Path) == "kubelet.conf" {
				m.Files[k.Path] = "kind: Config\n" // it names the file that rotates
			} else if a := signers[k.Path]; a != nil {
				m.Files[k.Path] = a.Cert
				if !k.KeyElsewhere {
					m.Files[k.Key] = a.Key
				}
			} else if m.HasFile(k.Path) || !k.Optional {
				m.IssueCertificate(c.T, k, signers[k.CA], CertTime.Add(left))
			}
		}
		m.Admit = func(m *Host) {
			cert, key := ca.IssueCertificate(c.T, "system:node:"+m.Name, CertTime.Add(Year))
			m.Files[module.ClientCert] = cert + key
		}
		if hostroles.RunsKubelet(h.Roles) {
			m.Files[CACert] = ca.Cert
		}
	}
	c.API.KubeletCert = func(address string) *tls.Certificate {
		return c.issuePair(ca, address, begins.Add(9*Year))
	}
	return ca
}

// issuePair returns a serving certificate with its key.
func (c *Cluster) issuePair(ca *pkitest.Authority, name string, ends time.Time) *tls.Certificate {
	cert, key := ca.IssueCertificate(c.T, name, ends)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		c.T.Error(err)
	}
	return &pair
}

// CertificateEnd returns when a certificate on a host expires.
func (c *Cluster) CertificateEnd(host, path string) time.Time {
	c.T.Helper()
	st := pki.ReadState(c.Hosts[host].ReadFile, op.CertificateFile{Path: path})
	if st.Ends.IsZero() {
		c.T.Errorf("%s of %s: %+v", path, host, st)
	}
	return st.Ends
}

// ServingCert returns a serving certificate for the name of the API.
func (c *Cluster) ServingCert() *tls.Certificate { return c.ServingCertFor("example.com") }

// ServingCertFor returns a serving certificate for a name or an address. Its CA has signed
// the certificate of the API server on the first control plane that answers.
func (c *Cluster) ServingCertFor(name string) *tls.Certificate {
	m := c.Hosts["cp1"]
	if m.Down != nil {
		m = c.Hosts["cp2"]
	}
	m.Mu.Lock()
	defer m.Mu.Unlock()
	leaf, err := pki.ParseCertificate([]byte(m.Files["/etc/kubernetes/pki/apiserver.crt"]))
	if err != nil {
		c.T.Error(err)
		return nil
	}
	var out *tls.Certificate
	AuthoritiesMade.Range(func(text, by any) bool {
		ca, err := pki.ParseCertificate([]byte(text.(string)))
		if err != nil || leaf.CheckSignatureFrom(ca) != nil {
			return true
		}
		out = c.issuePair(by.(*pkitest.Authority), name, ca.NotAfter)
		return false
	})
	return out
}
