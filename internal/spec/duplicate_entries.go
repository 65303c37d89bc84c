package spec

import (
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/registryname"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// entries maps the canonical form of the entries of one list or mapping so far to their
// spelling: a registry, address or parameter has several spellings.
type entries map[string]string

// checkRepeated reports an entry with the same canonical form as an earlier one. An entry
// without a canonical form is invalid, and another check reports it.
func (v *validator) checkRepeated(severity diag.Severity, before entries, at, meaning, written string) {
	first, seen := before[meaning]
	switch {
	case meaning == "":
		return
	case !seen:
		before[meaning] = written
		return
	}
	message := quoteAddress(written) + " is given more than once"
	if first != written {
		message = quoteAddress(written) + " means the same as " + quoteAddress(first)
	}
	v.found = append(v.found,
		diag.Diagnostic{ID: idDuplicateEntry, Severity: severity, Path: at, Message: message, Hint: "keep one of the two"})
}

// warnRepeated warns about entries of a list without effect: each is equal to an earlier
// one.
func (v *validator) warnRepeated(at string, list []string, meaning func(string) string) {
	before := entries{}
	for i, written := range list {
		v.checkRepeated(diag.Warning, before, yamlfile.IndexPath(at, i), meaning(written), written)
	}
}

// addressMeaning returns the canonical form of a name or an address.
func addressMeaning(text string) string { return strings.ToLower(CanonicalIP(text)) }

// serverMeaning returns the canonical form of an address with a port; the default is 53.
func serverMeaning(text string) string {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), 53).String()
	}
	return ""
}

// URLMeaning returns the canonical form of a URL without a query: equal URLs have the
// same form. It returns "" for a text that is not a URL.
func URLMeaning(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return ""
	}
	port := u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[u.Scheme] { // url.Parse writes a scheme in lower case
		port = ""
	}
	return u.Scheme + "://" + addressMeaning(u.Hostname()) + ":" + port + path.Clean("/"+u.Path)
}

// SysctlName returns the canonical form of a kernel parameter: the first separator of a
// name decides whether '.' or '/' separates its parts, as in sysctl(8).
func SysctlName(key string) string {
	if i := strings.IndexAny(key, "./"); i < 0 || key[i] == '.' {
		return key
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(key)
}

// otherDockerHub reports whether a name is of Docker Hub, but not the name that is in the
// names of its images. Runtimes would never use settings for it.
func otherDockerHub(name string) bool {
	return name != dockerHub && registryname.Equal(name, dockerHub)
}

// checkImageRegistry checks the name of a registry in image names, and reports whether it is
// valid.
func (v *validator) checkImageRegistry(at, name string) bool {
	switch {
	case !registryname.IsValid(name):
		v.refuse(idInvalidAddress, at, quoteAddress(name)+" is not the name of a registry", registryHint(name))
	case otherDockerHub(name):
		v.refuse(idInvalidAddress, at, strconv.Quote(name)+" is Docker Hub; its image names begin with "+dockerHub, "did you mean "+dockerHub+"?")
	default:
		return true
	}
	return false
}

// registryHint returns how to write a text that may be the URL of a registry.
func registryHint(name string) string {
	u, err := url.Parse(name)
	switch {
	case err != nil || u.Host == "" || !registryname.IsValid(u.Host):
	case otherDockerHub(u.Host):
		return "did you mean " + dockerHub + "?"
	default:
		return "did you mean " + u.Host + "?"
	}
	return "write host or host:port, such as " + dockerHub
}
