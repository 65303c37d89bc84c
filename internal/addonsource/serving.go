package addonsource

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/pki"
)

// servingYears is the validity of the certificate of an API that an add-on serves: the
// same as for the CAs of a cluster. It is renewed in the last fifth of that time.
const servingYears = 10

// Keys of the Secret that holds the certificate.
const (
	keyCert, keyKey, keyCA = "tls.crt", "tls.key", "ca.crt"
)

// Serving describes how an add-on serves an API to the API server: with a certificate in
// a Secret, from a CA that signs nothing else and that the APIService trusts. The add-on
// has both objects, without these values.
type Serving struct {
	Namespace, Secret, APIService string
	// Name is the name with which the API server verifies the add-on.
	Name string
}

// A ServingCert is the content of that Secret, in PEM form.
type ServingCert struct {
	Cert, Key []byte
	// CA has the trusted CAs: the one that signed Cert, and after a renewal the previous
	// one.
	CA []byte
}

// NewServingCert returns a certificate and the CA that signs it, whose key is not kept.
// The previous CA remains trusted: a pod with the previous certificate needs a minute to
// read the new one.
func (s Serving) NewServingCert(now time.Time, before ServingCert) (ServingCert, error) {
	caKey, _, err := pki.NewKey()
	if err != nil {
		return ServingCert{}, err
	}
	begins, ends := now.Add(-time.Hour).UTC(), now.AddDate(servingYears, 0, 0).UTC()
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: s.Secret + "-ca"}, NotBefore: begins, NotAfter: ends,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	text, err := pki.SignCertificate(ca, ca, caKey.Public(), caKey)
	if err != nil {
		return ServingCert{}, fmt.Errorf("creating a CA: %w", err)
	}
	if ca, err = pki.ParseCertificate(text); err != nil {
		return ServingCert{}, err
	}
	key, keyText, err := pki.NewKey()
	if err != nil {
		return ServingCert{}, err
	}
	cert, err := pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: s.Name}, DNSNames: []string{s.Name}, NotBefore: begins, NotAfter: ends,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, key.Public(), caKey)
	if err != nil {
		return ServingCert{}, fmt.Errorf("creating a certificate: %w", err)
	}
	if old, err := pki.ParseAuthorities(before.CA); err == nil && len(old) > 0 {
		text = slices.Concat(text, pki.BundleCAs(old[0]))
	}
	return ServingCert{Cert: cert, Key: keyText, CA: text}, nil
}

// RenewalReason returns why the certificate must be renewed, or "".
func (c ServingCert) RenewalReason(s Serving, now time.Time) string {
	if len(c.Cert) == 0 {
		return "it is missing"
	}
	cert, err := pki.ParseCertificate(c.Cert)
	if err != nil {
		return "it cannot be read"
	}
	ca, err := pki.ParseCertificate(c.CA)
	if err != nil {
		return "its CA cannot be read"
	}
	key, err := pki.ParseKey(c.Key)
	switch {
	case err != nil || !pki.IsPair(cert, key):
		return "its key does not match"
	case pki.LastPart(cert.NotBefore, cert.NotAfter, now):
		return "it expires on " + cert.NotAfter.Format(time.DateOnly)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: s.Name, CurrentTime: now}); err != nil {
		return "it is not valid: " + err.Error()
	}
	return ""
}

// ServingCertOf reads a Secret; nil means that it is empty.
func ServingCertOf(secret *unstructured.Unstructured) (c ServingCert) {
	if secret == nil {
		return c
	}
	for key, into := range map[string]*[]byte{keyCert: &c.Cert, keyKey: &c.Key, keyCA: &c.CA} {
		text, _, _ := unstructured.NestedString(secret.Object, "data", key)
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			*into = raw
		}
	}
	return c
}

// IsSecret and IsAPI select the two objects.
func (s Serving) IsSecret(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Secret" && o.GetName() == s.Secret && o.GetNamespace() == s.Namespace
}

// IsAPI selects the APIService.
func (s Serving) IsAPI(o *unstructured.Unstructured) bool {
	return o.GetKind() == "APIService" && o.GetName() == s.APIService
}

// WithServingCert returns the add-on with a certificate in its objects.
func (a Addon) WithServingCert(c ServingCert) Addon {
	a.Objects = slices.Clone(a.Objects)
	for i, o := range a.Objects {
		encoded := base64.StdEncoding.EncodeToString
		switch {
		case a.Serving.IsSecret(o):
			o = o.DeepCopy()
			o.Object["data"] = map[string]any{keyCert: encoded(c.Cert), keyKey: encoded(c.Key), keyCA: encoded(c.CA)}
		case a.Serving.IsAPI(o):
			o = o.DeepCopy()
			o.Object["spec"].(map[string]any)["caBundle"] = encoded(c.CA)
		}
		a.Objects[i] = o
	}
	return a
}
