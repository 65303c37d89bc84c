package bundle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
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
}

func (r Registry) names() []name.Option {
	if r.Insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

func (r Registry) options(ctx context.Context) ([]remote.Option, error) {
	var keys authn.Keychain = authn.DefaultKeychain
	if r.Credentials != "" {
		own, err := readCredentials(r.Credentials)
		if err != nil {
			return nil, problem(IDCredentials, "name a file as `docker login` writes it: {\"auths\": {\"registry.example.com\": {\"username\": …, \"password\": …}}}", "credentials for registries cannot be used: %v", err)
		}
		keys = own
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
		data, err := os.ReadFile(r.CA)
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
	data, err := os.ReadFile(path)
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
