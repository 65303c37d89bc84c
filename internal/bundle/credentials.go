package bundle

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/secret"
)

// A Registry says how registries are spoken to. The zero value trusts the
// system's authorities and takes the credentials that docker login keeps.
type Registry struct {
	// Credentials is a file of the form of ~/.docker/config.json.
	Credentials string
	// CA is a file of PEM certificates, trusted beside the system's.
	CA string
	// Insecure trusts any certificate, and plain HTTP.
	Insecure bool
	// Logins are credentials and authorities of single registries, and Plain those
	// for which Insecure is meant. They come before what is said above of all.
	Logins []Login
	Plain  []string
}

// A Login is how one registry is logged in to, and whom it is trusted by.
type Login struct {
	Registry string // host or host:port
	Username string // "" is none
	Password secret.String
	CA       string // as that of Registry
}

// of is what is said of one registry.
func (r Registry) of(host string) Registry {
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	r.Insecure = r.Insecure || slices.Contains(r.Plain, host)
	r.Logins = slices.DeleteFunc(slices.Clone(r.Logins), func(l Login) bool { return l.Registry != host })
	for _, l := range r.Logins {
		r.CA = cmp.Or(l.CA, r.CA)
	}
	return r
}

// Speak is how one registry is spoken to, for others than this package. The error
// is a diag.List.
func (r Registry) Speak(ctx context.Context, host string) ([]remote.Option, error) {
	return r.of(host).options(ctx)
}

// keychain are the credentials for the registries that are spoken to.
func (r Registry) keychain() (authn.Keychain, error) {
	for _, l := range r.Logins {
		if l.Username != "" {
			return login(l), nil
		}
	}
	if r.Credentials == "" {
		return authn.DefaultKeychain, nil
	}
	return readCredentials(r.Credentials)
}

// A login is the keychain of one registry.
type login Login

var _ authn.Keychain = login{}

// Resolve answers its credentials, and nobody else's.
func (l login) Resolve(of authn.Resource) (authn.Authenticator, error) {
	host := of.RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	if host != l.Registry {
		return authn.Anonymous, nil
	}
	return &authn.Basic{Username: l.Username, Password: l.Password.Reveal()}, nil
}

func (r Registry) names() []name.Option {
	if r.Insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

func (r Registry) options(ctx context.Context) ([]remote.Option, error) {
	keys, err := r.keychain()
	if err != nil {
		return nil, problem(IDCredentials, "name a file as `docker login` writes it: {\"auths\": {\"registry.example.com\": {\"username\": …, \"password\": …}}}", "credentials for registries cannot be used: %v", err)
	}
	transport, err := r.transport()
	if err != nil {
		return nil, problem(IDRegistryCA, "name a file with the PEM certificates of the registry's authority", "authorities for registries cannot be used: %v", err)
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithTransport(transport)}, nil
}

func (r Registry) transport() (http.RoundTripper, error) {
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the transport for registries is of another kind")
	}
	t := base.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: r.Insecure} //nolint:gosec // the user asked for it
	if r.CA != "" {
		data, err := bounded.ReadArgument(r.CA, bounded.Argument)
		if err != nil {
			return nil, err
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s holds no PEM certificate", r.CA)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if r.Insecure {
		return t, nil
	}
	return guarded{t}, nil
}

// guarded sends no credentials in the clear: registries with a private address
// are spoken to by plain HTTP where they do not answer TLS.
type guarded struct{ next http.RoundTripper }

// RoundTrip sends a request, or refuses to.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && r.Header.Get("Authorization") != "" && !loopback(r.URL.Hostname()) {
		return nil, fmt.Errorf("%s does not speak TLS: credentials are not sent in the clear (--insecure sends them)", r.URL.Host)
	}
	return g.next.RoundTrip(r)
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// credentials are those of a file, by registry.
type credentials map[string]authn.AuthConfig

var _ authn.Keychain = credentials{}

// Resolve finds those for a repository or its registry.
func (c credentials) Resolve(of authn.Resource) (authn.Authenticator, error) {
	registry := of.RegistryStr()
	keys := []string{of.String(), registry, "https://" + registry, "https://" + registry + "/v2/"}
	if registry == name.DefaultRegistry {
		keys = append(keys, "docker.io", authn.DefaultAuthKey)
	}
	for _, key := range keys {
		if found, ok := c[key]; ok {
			return authn.FromConfig(found), nil
		}
	}
	return authn.Anonymous, nil
}

func readCredentials(path string) (credentials, error) {
	data, err := bounded.ReadArgument(path, bounded.Argument)
	if err != nil {
		return nil, err
	}
	var file struct {
		Auths credentials `json:"auths"`
	}
	if json.Unmarshal(data, &file) != nil { // its error may quote a password
		return nil, fmt.Errorf("%s is no JSON of that form", path)
	}
	if len(file.Auths) == 0 {
		return nil, fmt.Errorf("%s has none", path)
	}
	return file.Auths, nil
}
