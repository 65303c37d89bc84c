package apicheck

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/internal/spec"
)

// addressHint is the remedy for an address of the server.
const addressHint = "write the name or address that the machine has in your network"

// addressProblem returns why the server must not connect to a host, or "". It refuses all forms
// that a resolver can read as the server itself, without asking it.
func addressProblem(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip, zone := ip.Unmap(), ip.Zone()
		switch {
		case ip.IsLoopback() || ip.IsUnspecified():
			return "means the server itself"
		case zone != "":
			return "names a network interface of the server"
		case ip.IsLinkLocalUnicast():
			return "is only valid on a network link of the server"
		}
		return ""
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(name, ".")
	switch {
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return "is neither an IP address nor a host name"
	case isNumber(labels[len(labels)-1]):
		return "is not an IP address, but some programs read it as one"
	case isOwnName(labels):
		return "means the server itself"
	}
	return ""
}

// isNumber reports whether programs read a label as a number: a name that ends with one can be
// an abbreviated IP address, such as 127.1 or 0x7f000001.
func isNumber(label string) bool {
	return strings.Trim(label, "0123456789") == "" || strings.HasPrefix(label, "0x") && strings.Trim(label[2:], "0123456789abcdef") == ""
}

// isOwnName reports whether a name means each machine itself: RFC 6761, and the hosts files of
// distributions.
func isOwnName(labels []string) bool {
	names := []string{"localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback", "ipv6-localhost", "ipv6-loopback"}
	return slices.Contains(names, labels[0]) || labels[len(labels)-1] == "localhost"
}

// checkAddress checks a host to which the server connects.
func (k *checker) checkAddress(path, host string) {
	if problem := addressProblem(host); problem != "" {
		k.refuse(idLocalAddress, path, quoteAddress(host)+" "+problem, addressHint)
	}
}

// quoteAddress returns an address without a user, because the text can contain a password.
func quoteAddress(text string) string {
	if i := strings.LastIndex(text, "@"); i >= 0 {
		text = "…" + text[i:]
	}
	return quoteText(text)
}

// checkURL checks a URL to which the server connects. A text that is not one is refused, because
// it can be a path.
func (k *checker) checkURL(path, text string) {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"https", "http", "oci"}, u.Scheme) || u.Hostname() == "" {
		k.refuse(idLocalAddress, path, quoteAddress(text)+" is not the URL of a server in a network", "write it as https://HOST/PATH")
		return
	}
	if problem := addressProblem(u.Hostname()); problem != "" {
		k.refuse(idLocalAddress, path, "the host "+quoteText(u.Hostname())+" of the URL "+problem, addressHint)
	}
}

// reference matches a reference in an OCI registry, after its host:
// https://github.com/distribution/reference, with a full name. No part of it can be "..".
var reference = regexp.MustCompile(`^(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)+` +
	`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`)

// checkBundle checks a bundle. An object can only name a reference in a registry.
func (k *checker) checkBundle(path, text string) {
	const hint = "push the bundle to a registry and write its reference, or leave the field out for the server's bundle of this version"
	if spec.IsBundlePath(text) {
		k.refuse(IDBundleFile, path, quoteText(text)+" is a path on the server, and an object cannot use files of the server", hint)
		return
	}
	name, scheme := strings.CutPrefix(text, "oci://")
	slash := max(strings.Index(name, "/"), 0)
	u, err := url.Parse("//" + name[:slash])
	switch {
	case err != nil || u.Host != name[:slash] || u.Hostname() == "" || !reference.MatchString(name[slash:]):
		k.refuse(IDBundleFile, path, quoteAddress(text)+" is not a reference in a registry, so it can be a file of the server", hint)
	case addressProblem(u.Hostname()) != "":
		k.refuse(idLocalAddress, path, "the registry "+quoteText(u.Hostname())+" "+addressProblem(u.Hostname()), addressHint)
	case !scheme && !strings.ContainsAny(u.Host, ".:"):
		k.refuse(IDBundleFile, path, quoteAddress(text)+" begins with a directory, not with a registry", hint)
	}
}

// checkInlineKey checks a public key. Its text is not shown, because it can be a private key.
func (k *checker) checkInlineKey(path, text string) {
	if !strings.HasPrefix(text, "ed25519:") {
		k.refuse(IDBundleFile, path, "this is not a public key for bundles, so it can be the name of a file of the server",
			"copy the line from NAME.pub: ed25519:…")
	}
}
