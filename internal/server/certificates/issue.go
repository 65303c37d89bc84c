package certificates

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/pki"
)

// backdate lets a certificate begin in the past, for clients whose clocks are slow.
const backdate = 5 * time.Minute

// subjectNames holds the names of a serving certificate.
type subjectNames struct {
	dns []string
	ips []net.IP
}

// parseNames returns DNS names and IP addresses, with the names that every serving
// certificate has.
func parseNames(list []string) (subjectNames, error) {
	var out subjectNames
	for _, name := range slices.Concat([]string{"localhost", "127.0.0.1", "::1"}, list) {
		if ip, err := netip.ParseAddr(name); err == nil && ip.Zone() == "" {
			out.ips = append(out.ips, ip.Unmap().AsSlice())
			continue
		}
		name = strings.ToLower(name)
		problems := validation.IsDNS1123Subdomain(name)
		if strings.HasPrefix(name, "*.") {
			problems = validation.IsWildcardDNS1123Subdomain(name)
		}
		if len(problems) > 0 {
			return subjectNames{}, diag.Refuse(idInvalidName,
				fmt.Sprintf("%q is not a DNS name or an IP address for the serving certificate", name), "correct the value of --tls-san")
		}
		out.dns = append(out.dns, name)
	}
	slices.Sort(out.dns)
	out.dns = slices.Compact(out.dns)
	slices.SortFunc(out.ips, func(a, b net.IP) int { return cmp.Compare(a.String(), b.String()) })
	out.ips = slices.CompactFunc(out.ips, net.IP.Equal)
	return out, nil
}

// missingIn returns a name that a certificate lacks; "" if it has all.
func (n subjectNames) missingIn(cert *x509.Certificate) string {
	for _, name := range n.dns {
		if !slices.Contains(cert.DNSNames, name) {
			return name
		}
	}
	for _, ip := range n.ips {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return ip.String()
		}
	}
	return ""
}

// caTemplate returns a new CA certificate without validity.
func caTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "slipway-server-ca"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
}

// renewedCA returns a CA certificate that replaces old: with the same subject and key ID,
// all certificates that the CA has signed remain valid, and clients with the old
// certificate accept new ones.
func renewedCA(old *x509.Certificate) *x509.Certificate {
	next := caTemplate()
	next.RawSubject, next.SubjectKeyId = old.RawSubject, old.SubjectKeyId
	return next
}

func (c *Certificates) servingTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "slipway-server"}, DNSNames: c.names.dns, IPAddresses: c.names.ips,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
}

func adminTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:  pkix.Name{CommonName: "slipway:admin", Organization: []string{"system:masters"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
}

// renewalTime returns the time at which two thirds of a certificate's lifetime have passed,
// or of the configured lifetime, if that is shorter.
func renewalTime(cert *x509.Certificate, lifetime time.Duration) time.Time {
	issued := cert.NotBefore.Add(backdate)
	return issued.Add(min(cert.NotAfter.Sub(issued), lifetime) * 2 / 3)
}

// renewalReason returns the reason to renew a certificate, in words; "" if it is not due.
func renewalReason(cert *x509.Certificate, lifetime time.Duration, now time.Time) string {
	switch {
	case cert == nil:
		return "it is missing"
	case now.Before(cert.NotBefore): // the clock was ahead when it was issued
		return "it is not valid yet"
	case !now.Before(cert.NotAfter):
		return "it has expired"
	case !now.Before(renewalTime(cert, lifetime)):
		return "two thirds of its lifetime have passed"
	}
	return ""
}

// renewCA makes the CA if it is missing, and renews its certificate if that is due. The CA's
// key is made once and never replaced.
func (c *Certificates) renewCA(now time.Time) error {
	reason := renewalReason(c.ca.cert, c.options.Lifetimes.CA, now)
	if reason == "" {
		return nil
	}
	next := c.ca
	var err error
	if next.key == nil {
		if next.key, next.keyText, err = pki.NewKey(); err != nil {
			return err
		}
		if err := c.writer.Replace(c.CAKeyFile(), next.keyText); err != nil {
			return fmt.Errorf("writing the key of the CA: %w", err)
		}
		c.ca = next
	}
	template := caTemplate()
	if next.cert != nil {
		template = renewedCA(next.cert)
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(c.options.Lifetimes.CA)
	if next.text, err = pki.SignCertificate(template, template, next.key.Public(), next.key); err != nil {
		return fmt.Errorf("signing the CA certificate: %w", err)
	}
	if next.cert, err = pki.ParseCertificate(next.text); err != nil {
		return fmt.Errorf("reading the new CA certificate: %w", err)
	}
	if err := c.writer.Replace(c.CAFile(), next.text); err != nil {
		return fmt.Errorf("writing the CA certificate: %w", err)
	}
	c.ca, c.kubeconfigDue = next, true
	c.logRenewal(caName, reason, next.cert)
	return nil
}

// renewLeaf makes a certificate with a new key, if the present one is missing or due.
func (c *Certificates) renewLeaf(p *pair, name string, lifetime time.Duration, template *x509.Certificate, now time.Time) error {
	reason := renewalReason(p.cert, lifetime, now)
	if reason == "" && name == servingName {
		if missing := c.names.missingIn(p.cert); missing != "" {
			reason = "it lacks the name " + missing
		}
	}
	if reason == "" {
		return nil
	}
	if !now.Before(c.ca.cert.NotAfter) { // renewing the CA has failed
		return fmt.Errorf("signing %s: %w", name+certSuffix, errExpiredCA)
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lifetime)
	next := pair{}
	var err error
	if next.key, next.keyText, err = pki.NewKey(); err != nil {
		return err
	}
	if next.text, err = pki.SignCertificate(template, c.ca.cert, next.key.Public(), c.ca.key); err != nil {
		return fmt.Errorf("signing %s: %w", name+certSuffix, err)
	}
	if next.cert, err = pki.ParseCertificate(next.text); err != nil {
		return fmt.Errorf("reading the new %s: %w", name+certSuffix, err)
	}
	if err := c.writePair(name, next); err != nil {
		return fmt.Errorf("writing %s: %w", name+certSuffix, err)
	}
	*p, c.kubeconfigDue = next, true
	c.logRenewal(name, reason, next.cert)
	return nil
}

var errExpiredCA = errors.New("the CA has expired")

func (c *Certificates) logRenewal(name, reason string, cert *x509.Certificate) {
	c.options.Log.Info("Issued a certificate", "certificate", name+certSuffix, "reason", reason, "expires", cert.NotAfter.UTC())
}
