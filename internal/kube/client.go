// Package kube is a small client for one cluster: objects applied on the
// server's side, nodes, rollouts, health. It is made to work through a host's
// node helper, where the manager cannot reach the API itself.
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// A DialFunc opens a connection; the API is reached through it.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options of a client. The zero value works.
type Options struct {
	// Address is dialled instead of the host and port of the kubeconfig's
	// URL, such as "127.0.0.1:6443". The server's certificate is still
	// verified for the name in that URL.
	Address string
	// Patience is how long requests that can be sent twice are sent again while
	// nobody answers.
	Patience time.Duration
	// Trust are authorities, in PEM form, that servers are believed by besides those
	// of the kubeconfig.
	Trust []byte
}

// A Client speaks to one cluster. Its methods may be called concurrently.
type Client struct {
	http    *http.Client
	rest    rest.Interface
	dynamic dynamic.Interface
	kinds   *kinds
	server  *url.URL
	// first is the time between the first two looks of a wait; it doubles from
	// look to look, up to interval.
	first, interval time.Duration
}

// New makes a client of an admin kubeconfig. Connections are opened by dial;
// nil dials from here. A kubeconfig that runs programs, names files or a proxy, or
// does not verify the server is refused: it may come from elsewhere.
// Nothing is sent before the first call.
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
			return patient{next: next, limit: o.Patience, every: time.Second}
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
		return nil, fmt.Errorf("making a client: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Client{
		http:     hc,
		rest:     rc,
		dynamic:  dyn,
		kinds:    &kinds{known: map[schema.GroupVersionKind]metav1.APIResource{}},
		server:   server,
		first:    10 * time.Millisecond,
		interval: 500 * time.Millisecond,
	}, nil
}

// Close drops idle connections. The client can be used again after it.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// restConfig reads a kubeconfig that carries all it needs in itself.
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
	if err := selfContained(cluster, user); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = FieldManager
	// The connection is made by the caller's dial, whatever proxy this
	// process has in its environment.
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	// No queue of our own: the server's priority and fairness is enough.
	cfg.QPS = -1
	cfg.WarningHandler = rest.NoWarnings{} // it would write to stderr
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return cfg, nil
}

func selfContained(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	switch {
	case !strings.HasPrefix(strings.ToLower(cluster.Server), "https://"):
		return errors.New("its server is not an https:// URL")
	case cluster.ProxyURL != "":
		return errors.New("proxy-url is set; Slipway connects directly")
	case cluster.InsecureSkipTLSVerify:
		return errors.New("insecure-skip-tls-verify is set; the server must be verified")
	case user.Exec != nil || user.AuthProvider != nil:
		return errors.New("its user runs a program to log in; one with a certificate or a token in it is needed")
	case cluster.CertificateAuthority != "" || user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
		return errors.New("it names files; one with the certificates in it is needed (kubectl config view --flatten)")
	}
	return nil
}

// Healthy asks the API server whether it is ready to serve (/readyz).
func (c *Client) Healthy(ctx context.Context) error {
	if _, err := c.rest.Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return fmt.Errorf("asking the API server whether it is ready: %w", c.words(err))
	}
	return nil
}

// The kinds that have methods of their own.
var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// ConfigMap answers one; missing, it answers nil without an error.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	u, err := c.dynamic.Resource(configMaps).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading config map %s/%s: %w", namespace, name, c.words(err))
	}
	cm := &corev1.ConfigMap{}
	if err := fromUnstructured(u, cm); err != nil {
		return nil, fmt.Errorf("reading config map %s/%s: %w", namespace, name, err)
	}
	return cm, nil
}

func fromUnstructured(u *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// Raw answers what the API server says at a path, such as /api/v1/events, as
// JSON.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	out, err := c.rest.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, c.words(err))
	}
	return out, nil
}
