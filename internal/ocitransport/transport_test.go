package ocitransport

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// network responds to requests without a connection, and records them.
type network struct {
	answer func(*http.Request) (*http.Response, error)

	mu   sync.Mutex
	sent []string
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	line := r.URL.Scheme + "://" + r.URL.Host
	if carriesCredentials(r) {
		line += " with credentials"
	}
	n.mu.Lock()
	n.sent = append(n.sent, line)
	n.mu.Unlock()
	return n.answer(r)
}

func (n *network) allRequests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

func newResponse(r *http.Request, status int, challenge, body string) *http.Response {
	h := http.Header{}
	if challenge != "" {
		h.Set("WWW-Authenticate", challenge)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// getManifest requests a manifest from a registry, as a pull does, with a password or a
// refresh token.
func getManifest(t *testing.T, g *guard, auth authn.AuthConfig) error {
	t.Helper()
	ref, err := name.ParseReference(g.Registry + "/slipway/bundle:v1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = remote.Get(ref, remote.WithContext(t.Context()), remote.WithTransport(g), remote.WithAuth(authn.FromConfig(auth)))
	return err
}

// TestGuard_NeverFallsBackToPlainHTTP: TLS fails for every form of an address, as an
// attacker on the network path can make it fail, and plain HTTP responds with a
// challenge.
func TestGuard_NeverFallsBackToPlainHTTP(t *testing.T) {
	for name, registry := range map[string]string{
		"10/8":           "10.1.2.3:5000",
		"172.16/12":      "172.20.0.9:5000",
		"192.168/16":     "192.168.1.1",
		"x.localhost":    "registry.localhost:5000",
		".local":         "registry.local",
		"IPv6 ULA":       "[fd00::1]:5000",
		"IPv6 link":      "[fe80::1]:5000",
		"public address": "198.51.100.7:5000",
		"name":           "registry.example.com",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &network{answer: func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.Host == "evil.example":
					return newResponse(r, http.StatusOK, "", `{"token":"x"}`), nil
				case r.URL.Scheme == "http":
					return newResponse(r, http.StatusUnauthorized, `Bearer realm="https://evil.example/t",service="x"`, ""), nil
				}
				return nil, errors.New("no TLS today")
			}}
			err := getManifest(t, &guard{Options: Options{Registry: registry}, next: n, verified: n}, authn.AuthConfig{Username: "u", Password: "p"})
			if err == nil {
				t.Error("got no error")
			}
			for _, line := range n.allRequests() {
				if line != "https://"+registry {
					t.Errorf("sent: %s", line)
				}
			}
		})
	}
}

// TestGuard_AllowsPlainHTTPOnlyWherePermitted lists the addresses that may be requested
// over plain HTTP, and addresses that may not.
func TestGuard_AllowsPlainHTTPOnlyWherePermitted(t *testing.T) {
	for address, want := range map[string]struct{ byDefault, insecure bool }{
		"http://127.0.0.1:5000/v2/":  {true, true},
		"http://127.9.9.9/v2/":       {true, true},
		"http://[::1]:5000/v2/":      {true, true},
		"http://localhost:5000/v2/":  {true, true},
		"http://x.localhost/v2/":     {false, true},
		"http://10.0.0.7:5000/v2/":   {false, true},
		"http://[fd00::1]:5000/v2/":  {false, true},
		"https://10.0.0.7:5000/v2/":  {true, true},
		"ftp://10.0.0.7/v2/":         {false, true},
		"http://localhost.evil.com/": {false, true},
	} {
		for _, insecure := range []bool{false, true} {
			n := &network{answer: func(r *http.Request) (*http.Response, error) { return newResponse(r, http.StatusOK, "", ""), nil }}
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			g := &guard{Options: Options{Registry: u.Host, Insecure: insecure}, next: n, verified: n}
			res, err := g.RoundTrip(&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}})
			if err == nil {
				res.Body.Close()
			}
			allowed := want.byDefault || insecure && want.insecure
			if (err == nil) != allowed || (len(n.allRequests()) == 1) != allowed || err != nil && !errors.Is(err, ErrPlain) {
				t.Errorf("%s, insecure %v: sent %v, %v", address, insecure, n.allRequests(), err)
			}
		}
	}
}

// TestGuard_SendsCredentialsOnlyToOwnTokenService sends passwords and refresh tokens to the token service of
// the registry alone.
func TestGuard_SendsCredentialsOnlyToOwnTokenService(t *testing.T) {
	named := func(host string) bool { return host == "gitlab.example.com" }
	for name, tt := range map[string]struct {
		registry, realm string
		insecure, plain bool // plain: the registry answers over HTTP
		named           func(string) bool
		allowed         bool
	}{
		"the same host": {registry: "harbor.example.com", realm: "https://harbor.example.com/service/token", allowed: true},
		"another port":  {registry: "registry.example.com:5000", realm: "https://registry.example.com:5001/auth", allowed: true},
		"Docker Hub":    {registry: "index.docker.io", realm: "https://auth.docker.io/token", allowed: true},
		"GitLab":        {registry: "registry.gitlab.com", realm: "https://gitlab.com/jwt/auth", allowed: true},
		"Alibaba Cloud": {
			registry: "registry.cn-hangzhou.aliyuncs.com",
			realm:    "https://dockerauth.cn-hangzhou.aliyuncs.com/auth", allowed: true,
		},
		"DigitalOcean": {
			registry: "registry.digitalocean.com",
			realm:    "https://api.digitalocean.com/v2/registry/auth", allowed: true,
		},
		"Scaleway": {
			registry: "rg.fr-par.scw.cloud",
			realm:    "https://api.scaleway.com/registry-internal/v1/regions/fr-par/tokens", allowed: true,
		},
		"Scaleway's, of a host": {registry: "rg.fr-par.x.scw.cloud", realm: "https://api.scaleway.com/t"},
		"Alibaba Cloud, VPC": {
			registry: "registry-vpc.cn-hangzhou.aliyuncs.com",
			realm:    "https://dockerauth-vpc.cn-hangzhou.aliyuncs.com/auth", allowed: true,
		},
		"Alibaba Cloud, abroad": {
			registry: "registry-intl.ap-southeast-1.aliyuncs.com",
			realm:    "https://dockerauth.ap-southeast-1.aliyuncs.com/auth", allowed: true,
		},
		"Alibaba Cloud EE": {
			registry: "demo-registry.cn-hangzhou.cr.aliyuncs.com",
			realm:    "https://dockerauth-ee.cn-hangzhou.aliyuncs.com/auth", allowed: true,
		},
		"Alibaba Cloud EE, older": {
			registry: "demo-registry.cn-hangzhou.cr.aliyuncs.com",
			realm:    "https://dockerauth.cn-hangzhou.aliyuncs.com/auth", allowed: true,
		},
		"Alibaba Cloud EE, VPC": {
			registry: "demo-registry-vpc.cn-hangzhou.cr.aliyuncs.com",
			realm:    "https://dockerauth-ee-vpc.cn-hangzhou.aliyuncs.com/auth", allowed: true,
		},
		"Alibaba Cloud, Zhangjia": {
			registry: "demo-registry.cn-zhangjiakou.cr.aliyuncs.com",
			realm:    "https://dockerauth-cn-zhangjiakou.aliyuncs.com/auth", allowed: true,
		},
		"of another region": {
			registry: "demo-registry.cn-hangzhou.cr.aliyuncs.com",
			realm:    "https://dockerauth-ee.cn-beijing.aliyuncs.com/auth",
		},
		"another's bucket, EE": {
			registry: "demo-registry.cn-hangzhou.cr.aliyuncs.com",
			realm:    "https://evil.oss-cn-hangzhou.aliyuncs.com/auth",
		},
		"another's bucket": {registry: "registry.cn-hangzhou.aliyuncs.com", realm: "https://evil.oss-cn-hangzhou.aliyuncs.com/auth"},
		"named by the user": {
			registry: "registry.example.com", realm: "https://gitlab.example.com/jwt/auth",
			named: named, allowed: true,
		},
		"another than named":       {registry: "registry.example.com", realm: "https://evil.example/jwt/auth", named: named},
		"another host":             {registry: "registry.example.com", realm: "https://evil.example/t"},
		"a host below it":          {registry: "registry.example.com", realm: "https://x.registry.example.com/t"},
		"Docker Hub's, of another": {registry: "registry.example.com", realm: "https://auth.docker.io/token"},
		"plain HTTP on the same":   {registry: "registry.example.com", realm: "http://registry.example.com/t"},
		"challenge on loopback":    {registry: "127.0.0.1:5000", realm: "http://127.0.0.1:5000/t", plain: true},
		"insecure, the same host":  {registry: "10.0.0.7:5000", realm: "http://10.0.0.7:5000/t", insecure: true, plain: true, allowed: true},
		"insecure, another host":   {registry: "10.0.0.7:5000", realm: "https://evil.example/t", insecure: true, plain: true},
		"insecure, named over plain": {
			registry: "10.0.0.7:5000", realm: "http://gitlab.example.com/t",
			insecure: true, plain: true, named: named,
		},
	} {
		for what, auth := range map[string]authn.AuthConfig{
			"password":      {Username: "u", Password: "p"},
			"refresh token": {IdentityToken: "canary"},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				issuer, err := url.Parse(tt.realm)
				if err != nil {
					t.Fatal(err)
				}
				n := &network{answer: func(r *http.Request) (*http.Response, error) {
					switch {
					case r.URL.Path == issuer.Path:
						return newResponse(r, http.StatusOK, "", `{"token":"issued"}`), nil
					case r.URL.Scheme == "https" && tt.plain:
						return nil, errors.New("no TLS here")
					case r.Header.Get("Authorization") == "Bearer issued":
						return newResponse(r, http.StatusNotFound, "", ""), nil
					}
					return newResponse(r, http.StatusUnauthorized, `Bearer realm="`+tt.realm+`",service="x"`, ""), nil
				}}
				g := &guard{Options: Options{Registry: tt.registry, Insecure: tt.insecure, Named: tt.named}, next: n, verified: n}
				if tt.insecure {
					err = getInsecure(t, g, auth)
				} else {
					err = getManifest(t, g, auth)
				}
				if err == nil {
					t.Error("a missing manifest gives no error")
				}
				got := false
				for _, line := range n.allRequests() {
					got = got || line == issuer.Scheme+"://"+issuer.Host+" with credentials"
				}
				if got != tt.allowed {
					t.Errorf("credentials sent: %v, want %v: %v; %v", got, tt.allowed, n.allRequests(), err)
				}
			})
		}
	}
}

func getInsecure(t *testing.T, g *guard, auth authn.AuthConfig) error {
	t.Helper()
	ref, err := name.ParseReference(g.Registry+"/slipway/bundle:v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	_, err = remote.Get(ref, remote.WithContext(t.Context()), remote.WithTransport(g), remote.WithAuth(authn.FromConfig(auth)))
	return err
}

// TestGuard_VerifiesTokenServiceOfInsecureRegistry: --insecure is about the registry. The host that issues
// its tokens must still show a valid certificate.
func TestGuard_VerifiesTokenServiceOfInsecureRegistry(t *testing.T) {
	var lax, verified network
	ok := func(r *http.Request) (*http.Response, error) { return newResponse(r, http.StatusOK, "", ""), nil }
	lax.answer, verified.answer = ok, ok
	g := &guard{Options: Options{Registry: "docker.io", Insecure: true}, next: &lax, verified: &verified}
	for _, address := range []string{"https://auth.docker.io/token", "https://docker.io/v2/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("u", "p")
		res, err := g.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	if diff := cmp.Diff([]string{"https://auth.docker.io with credentials"}, verified.allRequests()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"https://docker.io with credentials"}, lax.allRequests()); diff != "" {
		t.Error(diff)
	}
}
