// Package ocitransport decides which HTTP requests to an OCI registry can be sent. The
// registry library falls back to plain HTTP for private addresses and sends credentials
// to any host that a registry names; this package prevents both.
package ocitransport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/registryname"
)

// Options configure the transport to one registry.
type Options struct {
	// Registry is the host or host:port of the registry.
	Registry string
	// Roots are the trusted CAs; nil means the CAs of the system.
	Roots *x509.CertPool
	// Insecure accepts plain HTTP and any certificate.
	Insecure bool
	// Named reports whether the user has configured credentials for a host. Such a host
	// can issue tokens for the registry. nil means none.
	Named func(host string) bool
}

// ErrPlain reports a request that would leave this machine over plain HTTP.
var ErrPlain = errors.New("plain HTTP is not allowed without --insecure or spec.registry.insecure")

// headerTime limits the time until a registry responds to a request. It may need a minute to check a large upload.
const headerTime = 2 * time.Minute

// New returns the transport to a registry. It fails if the transport of the registry
// library has an unexpected type.
func New(o Options) (http.RoundTripper, error) {
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("unexpected type of the default transport for registries")
	}
	base = base.Clone()
	base.ResponseHeaderTimeout = headerTime
	verified := base.Clone()
	verified.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots}
	g := &guard{Options: o, next: verified, verified: verified}
	if o.Insecure {
		lax := base.Clone()
		lax.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // the user asked for it
		g.next = lax
	}
	return g, nil
}

// guard rejects requests before anything is sent.
type guard struct {
	Options
	next     http.RoundTripper // to the registry
	verified http.RoundTripper // to another host that gets credentials
}

// RoundTrip sends a request if the policy allows it.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	plain := r.URL.Scheme != "https"
	if plain && !g.Insecure && !IsLoopback(r.URL.Hostname()) {
		return nil, fmt.Errorf("%s: %w", r.URL.Host, ErrPlain)
	}
	next := g.next
	if carriesCredentials(r) && !sameHost(r.URL, g.Registry) {
		if err := g.mayIssueTokens(r.URL); err != nil {
			return nil, err
		}
		next = g.verified
	}
	res, err := next.RoundTrip(r)
	if err == nil && plain && !g.Insecure && asksForToken(res) {
		res.Body.Close()
		return nil, fmt.Errorf("%s requests a token over plain HTTP: %w", r.URL.Host, ErrPlain)
	}
	return res, err
}

// mayIssueTokens rejects credentials for a host that is neither known nor named by the
// user as the token service of the registry.
func (g *guard) mayIssueTokens(to *url.URL) error {
	if to.Scheme != "https" {
		return fmt.Errorf("registry %s requests its credentials for %s over plain HTTP, which is not allowed", g.Registry, to.Host)
	}
	if slices.Contains(tokenServices(g.Registry), to.Host) || g.Named != nil && g.Named(to.Host) {
		return nil
	}
	return fmt.Errorf("credentials of registry %s are not sent to host %s; if that host is right, add it to the "+
		"credentials file or to spec.registry.auths",
		g.Registry, to.Host)
}

// HasCredentialsFunc returns an Options.Named for the credentials of docker login or podman login.
func HasCredentialsFunc(keys authn.Keychain) func(host string) bool {
	return func(host string) bool {
		registry, err := name.NewRegistry(host)
		if err != nil {
			return false
		}
		auth, err := keys.Resolve(registry)
		return err == nil && auth != authn.Anonymous
	}
}

// tokenServices returns the hosts that are known to issue the tokens of a public
// registry. Most registries do so on their own host.
func tokenServices(registry string) []string {
	switch registryname.Canonical(registry) {
	case registryname.DockerHub:
		return []string{"auth.docker.io"}
	case "registry.gitlab.com":
		return []string{"gitlab.com"}
	case "registry.digitalocean.com":
		return []string{"api.digitalocean.com"}
	}
	switch {
	case scaleway.MatchString(registry):
		return []string{"api.scaleway.com"}
	case alibaba.MatchString(registry):
		m := alibaba.FindStringSubmatch(registry)
		return alibabaServices("", m[1], m[2])
	case alibabaEnterprise.MatchString(registry):
		m := alibabaEnterprise.FindStringSubmatch(registry)
		return append(alibabaServices("", m[1], m[2]), alibabaServices("-ee", m[1], m[2])...)
	}
	return nil
}

// Registries of clouds with one registry per region. Alibaba Cloud has other names, and
// other token services, in its private networks.
var (
	scaleway          = regexp.MustCompile(`^rg\.[a-z0-9-]+\.scw\.cloud$`)
	alibaba           = regexp.MustCompile(`^registry(?:-intl)?(-vpc)?\.([a-z0-9-]+)\.aliyuncs\.com$`)
	alibabaEnterprise = regexp.MustCompile(`^[a-z0-9-]+-registry(-vpc)?\.([a-z0-9-]+)\.cr\.aliyuncs\.com$`)
)

// alibabaServices returns the token services of an edition and a network in a region. One
// region has a different spelling.
func alibabaServices(edition, network, region string) []string {
	service := "dockerauth" + edition + network
	out := []string{service + "." + region + ".aliyuncs.com"}
	if region == "cn-zhangjiakou" {
		out = append(out, service+"-"+region+".aliyuncs.com")
	}
	return out
}

// carriesCredentials reports whether a request has a password or a refresh token. A
// bearer token does not count: the library sends it only to the registry. A token service
// gets a password in the header, or a refresh token in a form.
func carriesCredentials(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	form := strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded")
	return scheme != "" && !strings.EqualFold(scheme, "Bearer") || form && r.Method == http.MethodPost
}

// asksForToken reports whether a response is a Bearer challenge.
func asksForToken(res *http.Response) bool {
	return res.StatusCode == http.StatusUnauthorized &&
		slices.ContainsFunc(res.Header.Values("WWW-Authenticate"), func(challenge string) bool {
			return strings.Contains(strings.ToLower(challenge), "bearer")
		})
}

// sameHost reports whether a URL has the host of a registry, on any port.
func sameHost(u *url.URL, registry string) bool {
	own := url.URL{Host: registry}
	return strings.EqualFold(u.Hostname(), own.Hostname())
}

// IsLoopback reports whether a host, without its port, is this machine by its loopback
// address or by the name localhost. Names below localhost do not count: a DNS server can
// resolve them to any address.
func IsLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
