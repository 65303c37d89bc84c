package spec

import (
	"net/netip"
	"net/url"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
)

// CanonicalizeAddresses writes the addresses of c in the canonical form of RFC 5952, IPv4 as IPv4, so
// that they can be compared as text: with each other, and with addresses from etcd and
// Kubernetes. Names and invalid addresses are not changed.
func CanonicalizeAddresses(c *v1alpha1.Cluster) {
	s := &c.Spec
	canonicalBastion(&s.SSH)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.Address, h.InternalAddress = CanonicalIP(h.Address), CanonicalIP(h.InternalAddress)
		canonicalBastion(&h.SSH)
	}
	s.ControlPlaneEndpoint.Address = CanonicalIP(s.ControlPlaneEndpoint.Address)
	if b := s.Etcd.Backup; b != nil {
		for i := range b.Copies {
			if m := b.Copies[i].SSH; m != nil {
				m.Address = CanonicalIP(m.Address)
			}
		}
	}
	if e := s.Etcd.External; e != nil {
		for i := range e.Endpoints {
			e.Endpoints[i] = canonicalURL(e.Endpoints[i])
		}
	}
}

func canonicalBastion(ssh *v1alpha1.SSH) {
	if ssh.Bastion != nil {
		ssh.Bastion.Address = CanonicalIP(ssh.Bastion.Address)
	}
}

// CanonicalIP returns an IP address in its usual spelling, and any other text as it is.
func CanonicalIP(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().String()
	}
	return text
}

// canonicalURL is for URLs with only an address and a port.
func canonicalURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	at, err := netip.ParseAddrPort(u.Host)
	if err != nil {
		return text
	}
	is := netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
	return strings.Replace(text, u.Host, is, 1)
}
