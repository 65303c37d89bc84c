package bundle

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/ocitransport"
	"slipway.dev/slipway/internal/secret"
)

// A Registry configures the access to registries. The zero value trusts the CAs of the
// system and uses the credentials of docker login.
type Registry struct {
	// Credentials is a file in the format of ~/.docker/config.json.
	Credentials string
	// CA is a file of PEM certificates, trusted in addition to the CAs of the system.
	CA string
	// Insecure accepts any certificate, and plain HTTP.
	Insecure bool
	// Logins has credentials and CAs of single registries, and Plain lists the registries
	// for which Insecure applies. They have precedence over the fields above.
	Logins []Login
	Plain  []string
	// Mirrors has the URLs of the mirrors of registries. Bundles are opened from them if their registry fails.
	Mirrors map[string][]string

	// Set by forHost: the registry itself, and the hosts with logins in the cluster file.
	host  string
	named []string
}

// A Login has the credentials and the CA of one registry.
type Login struct {
	Registry string // host or host:port
	Username string // "" means none
	Password secret.String
	CA       string // in the same format as CA of Registry
}

// forHost returns the settings for one registry.
func (r Registry) forHost(host string) Registry {
	r.host = host
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	r.Insecure = r.Insecure || slices.Contains(r.Plain, host)
	r.named = nil
	for _, l := range r.Logins {
		r.named = append(r.named, l.Registry)
	}
	r.Logins = slices.DeleteFunc(slices.Clone(r.Logins), func(l Login) bool { return l.Registry != host })
	for _, l := range r.Logins {
		r.CA = cmp.Or(l.CA, r.CA)
	}
	return r
}

// AccessOptions returns the access to one registry, for other packages. The error is a diag.List.
func (r Registry) AccessOptions(ctx context.Context, host string) ([]remote.Option, error) {
	return r.forHost(host).requestOptions(ctx)
}

// readKeychain returns the credentials for the registries.
func (r Registry) readKeychain() (authn.Keychain, error) {
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

// Resolve returns its credentials only for this registry.
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

func (r Registry) nameOptions() []name.Option {
	if r.Insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

// requestOptions returns the options of requests to the registry that was passed to forHost.
func (r Registry) requestOptions(ctx context.Context) ([]remote.Option, error) {
	keys, err := r.readKeychain()
	if err != nil {
		return nil, newProblem(IDCredentials,
			"use a file in the format of `docker login`: {\"auths\": {\"registry.example.com\": {\"username\": …, \"password\": …}}}",
			"the registry credentials cannot be used: %v", err)
	}
	transport, err := r.newTransport(keys)
	if err != nil {
		return nil, newProblem(IDRegistryCA, "use a file with the PEM certificates of the registry's CA",
			"the registry CA cannot be used: %v", err)
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithTransport(transport)}, nil
}

func (r Registry) newTransport(keys authn.Keychain) (http.RoundTripper, error) {
	o := ocitransport.Options{Registry: r.host, Insecure: r.Insecure, Named: r.isNamedFunc(keys)}
	if r.CA != "" {
		data, err := bounded.ReadArgument(r.CA, bounded.Argument)
		if err != nil {
			return nil, err
		}
		if o.Roots, err = x509.SystemCertPool(); err != nil {
			o.Roots = x509.NewCertPool()
		}
		if !o.Roots.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s has no PEM certificate", r.CA)
		}
	}
	return ocitransport.New(o)
}

// isNamedFunc returns a function that reports whether the user has named a host in the
// cluster file or in the credentials file.
func (r Registry) isNamedFunc(keys authn.Keychain) func(host string) bool {
	return func(host string) bool {
		if slices.Contains(r.named, host) {
			return true
		}
		if file, ok := keys.(credentials); ok {
			return file.hasHost(host)
		}
		return ocitransport.HasCredentialsFunc(keys)(host)
	}
}

// credentials maps registries to their credentials from a file.
type credentials map[string]authn.AuthConfig

var _ authn.Keychain = credentials{}

// hasHost reports whether the file has an entry for a host, even an empty one.
func (c credentials) hasHost(host string) bool {
	for _, key := range []string{host, "https://" + host, "https://" + host + "/v2/"} {
		if _, ok := c[key]; ok {
			return true
		}
	}
	return false
}

// Resolve returns the credentials for a repository or its registry.
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
	if json.Unmarshal(data, &file) != nil { // its error can contain a password
		return nil, fmt.Errorf("%s is not JSON in this format", path)
	}
	if len(file.Auths) == 0 {
		return nil, fmt.Errorf("%s has no credentials", path)
	}
	return file.Auths, nil
}
