package spec

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/registryname"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

func (v *validator) checkRegistry() {
	r, path := v.c.Spec.Registry, "spec.registry"
	registries := entries{}
	for _, name := range sortedKeys(r.Mirrors) {
		at := yamlfile.KeyPath(path+".mirrors", name)
		if v.checkImageRegistry(at, name) {
			v.checkRepeated(diag.Error, registries, at, registryname.Canonical(name), name)
		}
		if len(r.Mirrors[name]) == 0 {
			v.refuse(idMissingField, at, "the list of mirrors is empty", "write a list of URLs, or leave the registry out")
		}
		mirrors := entries{}
		for i, mirror := range r.Mirrors[name] {
			if hint, ok := mirrorURL(mirror); !ok {
				v.refuse(idInvalidValue, yamlfile.IndexPath(at, i), quoteAddress(mirror)+" is not a mirror URL", hint)
			} else {
				v.checkRepeated(diag.Error, mirrors, yamlfile.IndexPath(at, i), URLMeaning(mirror), mirror)
			}
		}
	}
	for i, name := range r.Insecure {
		v.checkRegistryOrMirror(r, yamlfile.IndexPath(path+".insecure", i), name)
	}
	v.warnRepeated(path+".insecure", r.Insecure, func(name string) string { return registryForm(r, name) })
	v.checkAuths(r, path+".auths")
	v.checkPrivateRegistry()
}

// checkAuths checks the credentials and CAs of registries.
func (v *validator) checkAuths(r v1alpha1.Registry, path string) {
	names := map[string]int{}
	for i, a := range r.Auths {
		at := yamlfile.IndexPath(path, i)
		if !v.requireText(at+".registry", a.Registry, "write host or host:port, such as registry.example.com:5000") {
			v.checkRegistryOrMirror(r, at+".registry", a.Registry)
		}
		form := registryForm(r, a.Registry)
		if first, ok := names[form]; ok && a.Registry != "" {
			v.refuse(idDuplicateName, at+".registry", "registry "+a.Registry+" is also used by auths["+strconv.Itoa(first)+"]", "keep one of them")
		}
		names[form] = i
		insecure := slices.ContainsFunc(r.Insecure, func(name string) bool { return registryForm(r, name) == form })
		switch {
		case a.Username == "" && a.PasswordFrom == nil && a.CAFile == "":
			v.refuse(idMissingField, at, "this registry has no settings", "write username and passwordFrom, or caFile, or leave it out")
		case a.Username == "" && a.PasswordFrom != nil:
			v.requireText(at+".username", "", "write the user for this password")
		case a.Username != "" && a.PasswordFrom == nil:
			v.refuse(idMissingField, at+".passwordFrom", "this field is required",
				"set a file or an environment variable: {file: registry.password}")
		case strings.ContainsFunc(a.Username, func(c rune) bool { return c == ':' || c < ' ' }):
			v.refuse(idInvalidValue, at+".username",
				strconv.Quote(a.Username)+" is not a valid user name: it has a colon or a control character", "")
		}
		v.checkSecretSource(a.PasswordFrom, at+".passwordFrom")
		if a.CAFile != "" && insecure {
			v.refuse(idConflictingFields, at+".caFile",
				"registry "+a.Registry+" is listed as insecure, so its certificate is not verified",
				"remove the registry from spec.registry.insecure, or remove this field")
		}
		if a.Username != "" && (insecure || hasPlainMirror(r, a.Registry)) {
			v.warn(idInsecureSource, at+".username",
				"anyone who impersonates "+a.Registry+" receives this password: the certificate is not verified", "set its CA at caFile, and use https")
		}
	}
}

// checkRegistryOrMirror checks the name of a registry in image names, or of the host of a
// mirror.
func (v *validator) checkRegistryOrMirror(r v1alpha1.Registry, at, name string) {
	if len(mirrorsAt(r, name)) == 0 {
		v.checkImageRegistry(at, name)
	}
}

// registryForm returns the canonical form of a name in auths or insecure: of a registry in
// image names, or of the host of a mirror.
func registryForm(r v1alpha1.Registry, name string) string {
	if len(mirrorsAt(r, name)) > 0 {
		return registryname.Host(name)
	}
	return registryname.Canonical(name)
}

// hasPlainMirror reports whether a mirror uses plain HTTP.
func hasPlainMirror(r v1alpha1.Registry, name string) bool {
	return slices.ContainsFunc(mirrorsAt(r, name), func(u *url.URL) bool { return u.Scheme == "http" })
}

// mirrorsAt returns the mirrors on a host.
func mirrorsAt(r v1alpha1.Registry, host string) (out []*url.URL) {
	for _, mirrors := range r.Mirrors {
		for _, m := range mirrors {
			if u, err := url.Parse(m); err == nil && registryname.Host(u.Host) == registryname.Host(host) {
				out = append(out, u)
			}
		}
	}
	return out
}

func mirrorURL(text string) (hint string, ok bool) {
	u, err := url.Parse(text)
	switch {
	case err != nil || !strings.Contains(text, "://"):
		return "begin the URL with https:// or http://", false
	case u.Scheme != "https" && u.Scheme != "http":
		return "use https or http", false
	case u.User != nil:
		return "remove the user and password: they are not allowed in a URL", false
	case u.RawQuery != "" || u.Fragment != "":
		return "write only scheme, host and path", false
	}
	return "write it as https://mirror.example.com", registryname.IsValid(u.Host)
}
