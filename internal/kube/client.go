// Package kube is a small client for one cluster: server-side apply, nodes, rollouts and
// health. It works through a host's node helper if the manager cannot reach the API.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// FieldManager is the name under which Slipway owns fields of objects.
const FieldManager = "slipway"

// A DialFunc opens a connection to the API.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options configure a client. The zero value works.
type Options struct {
	// Address is dialled instead of the host and port of the kubeconfig's
	// URL, such as "127.0.0.1:6443". The server's certificate is still
	// verified for the name in that URL.
	Address string
	// Patience is how long repeatable requests are repeated while the API server does
	// not respond.
	Patience time.Duration
	// Trust are CAs, in PEM form, that are trusted in addition to the CAs of the kubeconfig.
	Trust []byte
}

// A Client is a client for one cluster. It has a method for each subject, which returns a
// smaller client: client.Nodes().Drain(…). All methods may be called concurrently.
type Client struct{ *connection }

// APIServer returns the client for the API server itself: metrics, webhooks, aggregated APIs.
func (c *Client) APIServer() APIServer { return APIServer{c.connection} }

// BootstrapTokens returns the client for the tokens with which nodes join.
func (c *Client) BootstrapTokens() BootstrapTokens { return BootstrapTokens{c.connection} }

// Budgets returns the client for PodDisruptionBudgets.
func (c *Client) Budgets() Budgets { return Budgets{c.connection} }

// CertificateRequests returns the client for certificate signing requests.
func (c *Client) CertificateRequests() CertificateRequests {
	return CertificateRequests{c.connection}
}

// ConfigMaps returns the client for ConfigMaps.
func (c *Client) ConfigMaps() ConfigMaps { return ConfigMaps{c.connection} }

// Machines returns the client for machines that may not be nodes again.
func (c *Client) Machines() Machines { return Machines{c.connection} }

// Nodes returns the client for nodes: labels, taints, readiness, capacity, drain.
func (c *Client) Nodes() Nodes { return Nodes{c.connection} }

// Objects returns the client for objects of any kind: apply, compare, wait, delete.
func (c *Client) Objects() Objects { return Objects{c.connection} }

// Pods returns the client for pods: images, placement on nodes.
func (c *Client) Pods() Pods { return Pods{c.connection} }

// Trust returns the client for the places that hold CAs and service account tokens.
func (c *Client) Trust() Trust { return Trust{c.connection} }

// Workloads returns the client for Deployments, StatefulSets and DaemonSets: rollout, restart.
func (c *Client) Workloads() Workloads { return Workloads{c.connection} }

// New returns a client for an admin kubeconfig. dial opens its connections; nil dials from
// this machine. New refuses a kubeconfig that runs programs, names files or a proxy, or does
// not verify the server, because it may come from an untrusted source. The client does not
// connect before the first call.
func New(kubeconfig []byte, dial DialFunc, o Options) (*Client, error) {
	cfg, err := restConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	if len(o.Trust) > 0 {
		cfg.CAData = slices.Concat(cfg.CAData, []byte("\n"), o.Trust)
	}
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if o.Address != "" {
			address = o.Address
		}
		return dial(ctx, network, address)
	}
	if o.Patience > 0 {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return retryTransport{next: next, limit: o.Patience, every: time.Second}
		})
	}
	server, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: server %q: %w", cfg.Host, err)
	}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	rc, err := rest.UnversionedRESTClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return &Client{&connection{
		http:     hc,
		rest:     rc,
		dynamic:  dyn,
		kinds:    &kindCache{known: map[schema.GroupVersionKind]metav1.APIResource{}},
		server:   server,
		first:    10 * time.Millisecond,
		interval: 500 * time.Millisecond,
	}}, nil
}

// Close drops idle connections. The client can be used again after it.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// restConfig reads a self-contained kubeconfig.
func restConfig(kubeconfig []byte) (*rest.Config, error) {
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	name := raw.CurrentContext
	kctx, ok := raw.Contexts[name]
	if !ok {
		return nil, fmt.Errorf("it has no current context")
	}
	cluster, user := raw.Clusters[kctx.Cluster], raw.AuthInfos[kctx.AuthInfo]
	if cluster == nil || user == nil {
		return nil, fmt.Errorf("context %q names a cluster or a user that is not in it", name)
	}
	if err := checkSelfContained(cluster, user); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = FieldManager
	// The caller's dial opens the connection; proxies in the environment are ignored.
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	// No client-side rate limit: the server's priority and fairness is enough.
	cfg.QPS = -1
	cfg.WarningHandler = rest.NoWarnings{} // it would write to stderr
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return cfg, nil
}

func checkSelfContained(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	switch {
	case !strings.HasPrefix(strings.ToLower(cluster.Server), "https://"):
		return errors.New("its server is not an https:// URL")
	case cluster.ProxyURL != "":
		return errors.New("proxy-url is set; Slipway connects directly")
	case cluster.InsecureSkipTLSVerify:
		return errors.New("insecure-skip-tls-verify is set; the server must be verified")
	case user.Exec != nil || user.AuthProvider != nil:
		return errors.New("its user runs a program to log in; use a kubeconfig that contains a certificate or a token")
	case cluster.CertificateAuthority != "" || user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
		return errors.New("it names files; use a kubeconfig that contains the certificates (kubectl config view --flatten)")
	}
	return nil
}

// CheckReady returns an error if the API server is not ready (/readyz).
func (c *Client) CheckReady(ctx context.Context) error {
	if _, err := c.rest.Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return fmt.Errorf("checking whether the API server is ready: %w", c.describeError(err))
	}
	return nil
}

// Resources with dedicated methods.
var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// GetRaw returns the API server's JSON response for a path, such as /api/v1/events.
func (c *Client) GetRaw(ctx context.Context, path string) ([]byte, error) {
	out, err := c.rest.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, c.describeError(err))
	}
	return out, nil
}

// WaitUntil calls look repeatedly until it returns "" or an error that is not temporary. When
// ctx ends, the error contains what was missing last.
func (c *Client) WaitUntil(ctx context.Context, look func(context.Context) (missing string, err error)) error {
	return c.waitUntil(ctx, look)
}
