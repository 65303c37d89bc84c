package spec

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/registryname"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// Defaults of the registry on one of the hosts.
const (
	DefaultRegistryPort      = 5000
	DefaultRegistryDirectory = "/var/lib/slipway-registry"
	DefaultRegistryUser      = "slipway"
)

// IDNoRegistryHost is reported if no host has the role registry.
const IDNoRegistryHost = "no-registry-host"

const pathPrivate = "spec.registry.private"

// RegistryHost returns the host with the registry, if there is one.
func RegistryHost(c *v1alpha1.Cluster) (v1alpha1.Host, bool) {
	hosts := HostsWithRole(c, v1alpha1.RoleRegistry)
	if len(hosts) == 0 || c.Spec.Registry.Private == nil {
		return v1alpha1.Host{}, false
	}
	return hosts[0], true
}

// RemoveHosts removes hosts from a description, and the registry settings together with the
// registry host.
func RemoveHosts(c *v1alpha1.Cluster, hosts ...string) {
	c.Spec.Hosts = slices.DeleteFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return slices.Contains(hosts, h.Name) })
	if len(HostsWithRole(c, v1alpha1.RoleRegistry)) == 0 {
		c.Spec.Registry.Private = nil
	}
}

// RegistryName returns the name of the cluster's own registry in image names: host and
// port. It returns "" if there is none.
func RegistryName(c *v1alpha1.Cluster) string {
	h, ok := RegistryHost(c)
	if !ok {
		return ""
	}
	p := c.Spec.Registry.Private
	name := InternalAddress(h)
	if len(p.Names) > 0 {
		name = p.Names[0]
	}
	return net.JoinHostPort(name, strconv.Itoa(p.Port))
}

// RegistryNames returns all names and addresses of the registry.
func RegistryNames(c *v1alpha1.Cluster) []string {
	h, _ := RegistryHost(c)
	names := append(slices.Clone(c.Spec.Registry.Private.Names), h.Name, InternalAddress(h), h.Address, localhost, "127.0.0.1", "::1")
	var out []string
	for _, name := range names {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// RegistryFolder returns the folder in the cluster's own registry for images of another
// one, so that images of different registries do not replace each other.
func RegistryFolder(registry string) string { return strings.ReplaceAll(registry, ":", "_") }

// setRegistryDefaults sets the defaults of the registry on a host.
func setRegistryDefaults(c *v1alpha1.Cluster) {
	r := &c.Spec.Registry
	if r.Private == nil && len(HostsWithRole(c, v1alpha1.RoleRegistry)) > 0 {
		r.Private = &v1alpha1.PrivateRegistry{}
	}
	p := r.Private
	if p == nil {
		return
	}
	setDefault(&p.Port, DefaultRegistryPort)
	setDefault(&p.Directory, DefaultRegistryDirectory)
	setDefault(&p.Username, DefaultRegistryUser)
	if len(p.MirrorOf) == 0 && !UsesDocker(c) { // Docker would not use it for another registry
		p.MirrorOf = []string{dockerHub, "ghcr.io", "quay.io", "registry.k8s.io", "slipway.dev"}
	}
}

// checkPrivateRegistry checks the registry on a host.
func (v *validator) checkPrivateRegistry() {
	p, hosts := v.c.Spec.Registry.Private, HostsWithRole(v.c, v1alpha1.RoleRegistry)
	switch {
	case p == nil && len(hosts) == 0:
		return
	case len(hosts) == 0:
		v.refuse(idNoRegistryHost, pathPrivate, "no host has the role registry",
			"give the role to one host: roles: [registry]")
		return
	case len(hosts) > 1:
		v.refuse(idOneRegistry, v.checkRegistryRole(hosts[1]),
			fmt.Sprintf("%d hosts have the role registry, but a cluster has only one registry: %s and %s", len(hosts),
				hosts[0].Name, hosts[1].Name), "remove the role from the other hosts")
	}
	if p == nil {
		return // Default sets it
	}
	v.checkPort(pathPrivate+".port", p.Port)
	for i, name := range p.Names {
		if at := yamlfile.IndexPath(pathPrivate+".names", i); len(validation.IsDNS1123Subdomain(name)) > 0 {
			v.refuse(idInvalidAddress, at, strconv.Quote(name)+" is not a DNS name",
				"write a name such as registry.example.com; addresses are added automatically")
		}
	}
	if d := p.Directory; d != "" &&
		(!path.IsAbs(d) || path.Clean(d) != d || strings.Count(d, "/") < 2 || strings.ContainsFunc(d, unfitForUnit)) {
		v.refuse(idInvalidValue, pathPrivate+".directory", strconv.Quote(d)+" cannot be the registry's directory",
			"write an absolute path of letters, digits, '.', '_' and '-', at least two levels deep; only the registry may use this directory")
	}
	v.checkSecretSource(p.PasswordFrom, pathPrivate+".passwordFrom")
	if strings.ContainsFunc(p.Username, func(c rune) bool { return c == ':' || c <= ' ' || c > '~' }) {
		v.refuse(idInvalidValue, pathPrivate+".username",
			strconv.Quote(p.Username)+" is not a valid user name for a registry", "write ASCII characters without spaces and colons")
	}
	for i, name := range p.MirrorOf {
		v.checkImageRegistry(yamlfile.IndexPath(pathPrivate+".mirrorOf", i), name)
	}
	v.warnRepeated(pathPrivate+".mirrorOf", p.MirrorOf, registryname.Canonical)
	v.warnRepeated(pathPrivate+".names", p.Names, addressMeaning)
	if (p.CertFile == "") != (p.KeyFile == "") {
		v.refuse(idMissingField, pathPrivate+".certFile", "certFile and keyFile must be set together",
			"write both fields, or leave both out")
	}
	if p.CAFile != "" && p.CertFile == "" {
		v.refuse(idConflictingFields, pathPrivate+".caFile", "caFile needs certFile, which is not set",
			"leave the field out: Slipway creates a CA, and nodes trust it")
	}
	isOwn := func(a v1alpha1.RegistryAuth) bool { return registryname.Equal(a.Registry, RegistryName(v.c)) }
	if i := slices.IndexFunc(v.c.Spec.Registry.Auths, isOwn); i >= 0 {
		v.refuse(idConflictingFields, yamlfile.IndexPath("spec.registry.auths", i),
			"nodes already have the login for the cluster's own registry", "leave the entry out; set its user and password at "+pathPrivate)
	}
}

// checkRegistryRole returns the path of the role registry of a host.
func (v *validator) checkRegistryRole(h v1alpha1.Host) string {
	at := slices.IndexFunc(v.c.Spec.Hosts, func(other v1alpha1.Host) bool { return other.Name == h.Name })
	return yamlfile.IndexPath(yamlfile.IndexPath("spec.hosts", at)+".roles", slices.Index(h.Roles, v1alpha1.RoleRegistry))
}

func unfitForUnit(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/._-", c))
}

// checkPrivateRegistryFiles checks the registry's password, certificate and key.
func (v fileValidator) checkPrivateRegistryFiles(p Paths) {
	r := v.c.Spec.Registry.Private
	if r == nil {
		return
	}
	v.checkSecretFrom(pathPrivate+".passwordFrom", r.PasswordFrom, p)
	v.checkCertificates(pathPrivate+".caFile", v.readContent(pathPrivate+".caFile", r.CAFile, p, false), p.Resolve(r.CAFile), p.now())
	cert := v.readContent(pathPrivate+".certFile", r.CertFile, p, false)
	v.checkCertificates(pathPrivate+".certFile", cert, p.Resolve(r.CertFile), p.now())
	key := v.readContent(pathPrivate+".keyFile", r.KeyFile, p, true)
	if cert == nil || key == nil {
		return
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		v.refuse(idCertificate, pathPrivate+".keyFile",
			p.Resolve(r.KeyFile)+" does not match the certificate "+p.Resolve(r.CertFile)+": "+strings.TrimPrefix(err.Error(), "tls: "),
			"write the path of the private key for this certificate (without a passphrase)")
		return
	}
	name, _, err := net.SplitHostPort(RegistryName(v.c))
	if leaf, errLeaf := x509.ParseCertificate(pair.Certificate[0]); err == nil && errLeaf == nil {
		if err := leaf.VerifyHostname(name); err != nil {
			v.refuse(idCertificate, pathPrivate+".certFile",
				"nodes pull images from "+name+", but the certificate does not have this name: "+strings.TrimPrefix(err.Error(), "x509: "),
				"write a name from the certificate first at "+pathPrivate+".names, or issue a certificate with this name")
		}
	}
}

// RegistryChange rejects changes of a cluster's own registry that are not possible.
func RegistryChange(old, new *v1alpha1.Cluster) diag.List {
	v := changeValidator{&validator{c: new}}
	v.checkSameRegistry(old)
	return v.found
}

// checkSameRegistry rejects changes that would leave images behind.
func (v changeValidator) checkSameRegistry(old *v1alpha1.Cluster) {
	o, n := old.Spec.Registry.Private, v.c.Spec.Registry.Private
	if o != nil && n != nil {
		v.checkFixed(pathPrivate+".directory", o.Directory, n.Directory)
	}
	for i, h := range v.c.Spec.Hosts {
		at := slices.IndexFunc(old.Spec.Hosts, func(was v1alpha1.Host) bool { return was.Name == h.Name })
		if at >= 0 && HasRole(old.Spec.Hosts[at], v1alpha1.RoleRegistry) && !HasRole(h, v1alpha1.RoleRegistry) {
			v.refuse(idRolesFixed, yamlfile.IndexPath("spec.hosts", i)+".roles",
				h.Name+" holds the registry and all images pushed to it; the role cannot be removed while the host is in the cluster",
				"write the role registry, or remove the host and add it again without the role")
		}
	}
}
