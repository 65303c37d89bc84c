// Package registryname compares the names of image registries, which have several spellings.
package registryname

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/spec/hostaddress"
)

// DockerHub is the name of Docker Hub in the names of its images.
const DockerHub = "docker.io"

// dockerHubHosts are other hosts of Docker Hub: of its API and of its web pages.
func dockerHubHosts() []string {
	return []string{
		DockerHub, "docker.com", "hub.docker.com", "index.docker.io", "registry-1.docker.io", "registry.docker.io",
		"registry.hub.docker.com", "www.docker.com", "www.docker.io",
	}
}

// Canonical returns the canonical form of a registry, which is a host, or a host and a port.
// Equal registries have the same form. All names of Docker Hub have the form DockerHub,
// also with the port 443. Another registry with this port differs from the one without it,
// because runtimes compare the names of images as text. The form of an invalid name is in
// lower case.
func Canonical(name string) string {
	name = Host(name)
	host, port, err := net.SplitHostPort(name)
	if err != nil || port != "443" {
		host = name
	}
	if slices.Contains(dockerHubHosts(), strings.TrimSuffix(host, ".")) {
		return DockerHub
	}
	return name
}

// Host returns the canonical form of a host, or of a host and a port. Unlike Canonical, it
// distinguishes the hosts of Docker Hub: one of them can be a mirror with its own login.
func Host(name string) string {
	if at, err := netip.ParseAddrPort(name); err == nil {
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(name)
}

// InImages returns the name that a registry has in the names of its images.
func InImages(name string) string {
	if Canonical(name) == DockerHub {
		return DockerHub
	}
	return name
}

// Equal reports whether two names are of the same registry.
func Equal(a, b string) bool { return Canonical(a) == Canonical(b) }

// IsValid accepts a host, or a host and a port.
func IsValid(name string) bool {
	u, err := url.Parse("//" + name)
	if err != nil || u.Host != name || u.Hostname() == "" {
		return false
	}
	if port := u.Port(); port != "" || strings.HasSuffix(name, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return false
		}
	}
	_, ok := hostaddress.Check(u.Hostname())
	return ok
}
