package spec

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // whether a zone name is valid does not depend on this machine

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

func (v *validator) registry() {
	r, path := v.c.Spec.Registry, "spec.registry"
	registries := entries{}
	for _, name := range sortedKeys(r.Mirrors) {
		at := keyed(path+".mirrors", name)
		v.registryOfImages(at, name)
		v.repeated(diag.Error, registries, at, registryMeaning(name), name)
		if len(r.Mirrors[name]) == 0 {
			v.refuse(idMissingField, at, "the list of mirrors is empty", "write a list of URLs, or leave the registry out")
		}
		mirrors := entries{}
		for i, mirror := range r.Mirrors[name] {
			if hint, ok := mirrorURL(mirror); !ok {
				v.refuse(idInvalidValue, indexed(at, i), quoteAddress(mirror)+" is not a mirror URL", hint)
			} else {
				v.repeated(diag.Error, mirrors, indexed(at, i), URLMeaning(mirror), mirror)
			}
		}
	}
	for i, name := range r.Insecure {
		v.registryOrMirror(r, indexed(path+".insecure", i), name)
	}
	v.warnRepeated(path+".insecure", r.Insecure, registryMeaning)
	v.auths(r, path+".auths")
	v.privateRegistry()
}

// auths checks the credentials and CAs of registries.
func (v *validator) auths(r v1alpha1.Registry, path string) {
	names := map[string]int{}
	for i, a := range r.Auths {
		at := indexed(path, i)
		if !v.missing(at+".registry", a.Registry, "write host or host:port, such as registry.example.com:5000") {
			v.registryOrMirror(r, at+".registry", a.Registry)
		}
		if first, ok := names[registryMeaning(a.Registry)]; ok && a.Registry != "" {
			v.refuse(idDuplicateName, at+".registry", "registry "+a.Registry+" is also used by auths["+strconv.Itoa(first)+"]", "keep one of them")
		}
		names[registryMeaning(a.Registry)] = i
		insecure := slices.Contains(r.Insecure, a.Registry)
		switch {
		case a.Username == "" && a.PasswordFrom == nil && a.CAFile == "":
			v.refuse(idMissingField, at, "this registry has no settings", "write username and passwordFrom, or caFile, or leave it out")
		case a.Username == "" && a.PasswordFrom != nil:
			v.missing(at+".username", "", "write the user for this password")
		case a.Username != "" && a.PasswordFrom == nil:
			v.refuse(idMissingField, at+".passwordFrom", "this field is required",
				"set a file or an environment variable: {file: registry.password}")
		case strings.ContainsFunc(a.Username, func(c rune) bool { return c == ':' || c < ' ' }):
			v.refuse(idInvalidValue, at+".username",
				strconv.Quote(a.Username)+" is not a valid user name: it has a colon or a control character", "")
		}
		v.secretSource(a.PasswordFrom, at+".passwordFrom")
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

// registryOrMirror checks the name of a registry in image names, or of the host of a
// mirror.
func (v *validator) registryOrMirror(r v1alpha1.Registry, at, name string) {
	if len(mirrorsAt(r, name)) == 0 {
		v.registryOfImages(at, name)
	}
}

// hasPlainMirror reports whether a mirror uses plain HTTP.
func hasPlainMirror(r v1alpha1.Registry, name string) bool {
	return slices.ContainsFunc(mirrorsAt(r, name), func(u *url.URL) bool { return u.Scheme == "http" })
}

// mirrorsAt returns the mirrors on a host.
func mirrorsAt(r v1alpha1.Registry, host string) (out []*url.URL) {
	for _, mirrors := range r.Mirrors {
		for _, m := range mirrors {
			if u, err := url.Parse(m); err == nil && u.Host == host {
				out = append(out, u)
			}
		}
	}
	return out
}

// bundle rejects a value that is neither a path nor a reference to a registry, which
// begins with a host and ends with a tag or a digest.
func (v *validator) bundle() {
	b := v.c.Spec.Bundle
	if b == "" || IsBundlePath(b) {
		return
	}
	text, scheme := strings.CutPrefix(b, "oci://")
	host, rest, _ := strings.Cut(text, "/")
	file := "./" + text
	if strings.Contains(text, "@") { // it can contain a password
		file = "./FILE"
	}
	hint := "write " + file + " for a file next to this one, or registry.example.com/slipway:v1.37.1 for a bundle in a registry"
	switch {
	case rest == "" || !scheme && host != localhost && !strings.ContainsAny(host, ".:"):
		v.refuse(idInvalidValue, "spec.bundle", quoteAddress(b)+" is neither a path nor a reference to a registry", hint)
	case !strings.ContainsAny(text[strings.LastIndex(text, "/"):], ":@"):
		v.refuse(idInvalidValue, "spec.bundle", quoteAddress(b)+" is a reference to a registry, without a tag or a digest", hint)
	}
}

// bundleKeys requires the form that package bundle reads. An invalid value is not
// printed, because it can be a private key.
func (v *validator) bundleKeys() {
	v.warnRepeated("spec.bundleKeys", v.c.Spec.BundleKeys, func(key string) string {
		if !strings.HasPrefix(key, "ed25519:") {
			return ""
		}
		return key
	})
	for i, key := range v.c.Spec.BundleKeys {
		raw, ok := strings.CutPrefix(key, "ed25519:")
		data, err := base64.StdEncoding.Strict().DecodeString(raw)
		if !ok || err != nil || len(data) != ed25519.PublicKeySize {
			v.refuse(idBundleKey, indexed("spec.bundleKeys", i), "this is not a public key for bundles",
				"copy the line from NAME.pub, which 'slipway bundle keygen NAME' writes: ed25519:…")
		}
	}
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
	return "write it as https://mirror.example.com", registryName(u.Host)
}

// registryName accepts host and host:port.
func registryName(name string) bool {
	u, err := url.Parse("//" + name)
	if err != nil || u.Host != name || u.Hostname() == "" {
		return false
	}
	if port := u.Port(); port != "" || strings.HasSuffix(name, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return false
		}
	}
	_, ok := hostAddress(u.Hostname())
	return ok
}

func (v *validator) dns() {
	d, path := v.c.Spec.DNS, "spec.dns"
	for i, server := range d.Upstream {
		_, addrErr := netip.ParseAddr(server)
		_, portErr := netip.ParseAddrPort(server)
		if addrErr != nil && portErr != nil {
			v.refuse(idInvalidAddress, indexed(path+".upstream", i),
				strconv.Quote(server)+" is not the address of a server", "write an IP address, with :port if it is not 53")
		}
	}
	v.warnRepeated(path+".upstream", d.Upstream, serverMeaning)
	addresses := entries{}
	for _, address := range sortedKeys(d.Hosts) {
		at := keyed(path+".hosts", address)
		v.repeated(diag.Warning, addresses, at, addressMeaning(address), address)
		v.warnRepeated(at, d.Hosts[address], addressMeaning)
		if _, err := netip.ParseAddr(address); err != nil {
			v.refuse(idInvalidAddress, at, strconv.Quote(address)+" is not an IP address", "write entries as address: [name, …]")
		}
		if len(d.Hosts[address]) == 0 {
			v.refuse(idMissingField, at, "no name is given for "+address, "write a list of names, or remove the address")
		}
		for i, name := range d.Hosts[address] {
			v.domain(indexed(at, i), name)
		}
	}
}

var sysctlName = regexp.MustCompile(`^[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)+$`)

func (v *validator) system() {
	s, path := v.c.Spec.System, "spec.system"
	for i, server := range s.NTPServers {
		if hint, ok := hostAddress(server); !ok {
			v.refuse(idInvalidAddress, indexed(path+".ntpServers", i), strconv.Quote(server)+" is neither an IP address nor a host name", hint)
		} else if h, ok := HostCalled(v.c, server); ok {
			v.warn(idTimeServer, indexed(path+".ntpServers", i), h.Name+" is a host of this cluster, and Slipway does not set up time servers",
				"use an existing time server; or set one up on "+h.Name+": the other hosts then use it, and "+h.Name+" keeps its own settings")
		}
	}
	v.warnRepeated(path+".ntpServers", s.NTPServers, addressMeaning)
	if s.Timezone != "" {
		if _, err := time.LoadLocation(s.Timezone); err != nil || s.Timezone == "Local" {
			v.refuse(idInvalidValue, path+".timezone", "there is no time zone "+strconv.Quote(s.Timezone),
				"write a time zone such as Europe/Berlin or UTC")
		}
	}
	parameters := entries{}
	for _, key := range sortedKeys(s.Sysctls) {
		at := keyed(path+".sysctls", key)
		v.repeated(diag.Error, parameters, at, SysctlName(key), key)
		if !sysctlName.MatchString(key) {
			v.refuse(idInvalidName, at, strconv.Quote(key)+" is not the name of a sysctl", "write a name such as net.core.somaxconn")
			continue
		}
		v.sysctl(at, key, strings.TrimSpace(s.Sysctls[key]))
	}
}

// sysctlNeeds returns the sysctls without which pods cannot reach each other.
func sysctlNeeds() map[string]string {
	return map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.forwarding": "1",
		"net.bridge.bridge-nf-call-iptables": "1", "net.bridge.bridge-nf-call-ip6tables": "1",
	}
}

// sysctlTrees are the directories below /proc/sys.
var sysctlTrees = []string{"abi", "crypto", "debug", "dev", "fs", "kernel", "net", "sunrpc", "user", "vm"}

// sysctl checks a name and its value for errors that every kernel rejects, or with which
// no cluster works.
func (v *validator) sysctl(at, key, value string) {
	name := SysctlName(key)
	tree, _, _ := strings.Cut(name, ".")
	switch want := sysctlNeeds()[name]; {
	case value == "" || strings.ContainsAny(value, "\r\n"):
		v.refuse(idInvalidValue, at, "a sysctl value must be one line and not empty", "")
	case !slices.Contains(sysctlTrees, tree):
		v.refuse(idInvalidName, at, "the kernel has no parameters below "+strconv.Quote(tree), suggest(tree, sysctlTrees))
	case want != "" && value != want:
		v.refuse(idInvalidValue, at, "without "+name+"="+want+" pods cannot reach each other", "leave the entry out: Slipway sets it")
	}
}

func (v *validator) hooks() {
	names := map[string]int{}
	for i, h := range v.c.Spec.Hooks {
		path := indexed("spec.hooks", i)
		v.hookName(h, path, i, names)
		if !v.missing(path+".phase", string(h.Phase), "use "+orList(hookPhases())) {
			v.oneOf(path+".phase", string(h.Phase), hookPhases(), nil)
		}
		before := entries{}
		for r, role := range h.Roles {
			v.hookRole(indexed(path+".roles", r), role)
			v.repeated(diag.Warning, before, indexed(path+".roles", r), string(role), string(role))
		}
		if !v.missing(path+".script", h.Script, "write the path of the script, relative to the cluster file") &&
			strings.Contains(h.Script, "\n") {
			v.refuse(idInvalidValue, path+".script", "this is a script, but the path of its file is expected",
				"save the script next to the cluster file, and write its path")
		}
		base := map[string]bool{filepath.Base(h.Script): true}
		for m, file := range h.Materials {
			at := indexed(path+".materials", m)
			if v.missing(at, file, "write the path of the file, relative to the cluster file") {
				continue
			}
			if base[filepath.Base(file)] {
				v.refuse(idDuplicateName, at, "two files of this hook are named "+filepath.Base(file),
					"use different file names: Slipway sends both to one directory")
			}
			base[filepath.Base(file)] = true
		}
		v.positive(path+".timeout", h.Timeout)
	}
}

func (v *validator) hookName(h v1alpha1.Hook, path string, i int, names map[string]int) {
	path += ".name"
	if v.missing(path, h.Name, "write the name of the hook: logs and state use it") {
		return
	}
	if len(validation.IsDNS1123Label(h.Name)) > 0 {
		v.refuse(idInvalidName, path,
			strconv.Quote(h.Name)+" is not a valid hook name: only a-z, 0-9 and '-' are allowed, with a letter or digit first and last",
			didYouMeanName(h.Name))
	}
	if first, ok := names[h.Name]; ok {
		v.refuse(idDuplicateName, path, "the name "+h.Name+" is also used by hooks["+strconv.Itoa(first)+"]", "give each hook its own name")
		return
	}
	names[h.Name] = i
}

func (v *validator) hookRole(path string, role v1alpha1.Role) {
	known := []string{string(v1alpha1.RoleControlPlane), string(v1alpha1.RoleWorker)}
	switch role {
	case v1alpha1.RoleControlPlane, v1alpha1.RoleWorker:
	default:
		v.refuse(idUnknownRole, path, "there is no role "+strconv.Quote(string(role)), suggest(string(role), known))
	}
}

// hookPhases returns the phases.
func hookPhases() []string {
	return []string{
		string(v1alpha1.HookPreInstall), string(v1alpha1.HookPostControlPlane), string(v1alpha1.HookPostInstall),
		string(v1alpha1.HookPreDelete), string(v1alpha1.HookPreUpgrade), string(v1alpha1.HookPostUpgrade),
	}
}
