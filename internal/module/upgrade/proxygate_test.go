package upgrade

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/node/op"
)

const slicePath = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/slipway-kube-proxy-w1"

// A proxiedAPI is an API server that stores one EndpointSlice, and a kube-proxy that
// receives each change of it a few reads later.
type proxiedAPI struct {
	t testing.TB

	mu      sync.Mutex
	there   bool
	changes []string
	// received is how many changes kube-proxy counts, applied how many of them are in its
	// rules.
	received, applied int
	looks             int
	advance           func(*proxiedAPI) // what kube-proxy does before a read
}

func (a *proxiedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	switch key := r.Method + " " + r.URL.Path; {
	case key == "GET /apis/discovery.k8s.io/v1":
		body = []byte(`{"kind":"APIResourceList","apiVersion":"v1",` +
			`"resources":[{"name":"endpointslices","kind":"EndpointSlice","namespaced":true,"verbs":["get"]}]}`)
	case key == "PATCH "+slicePath:
		a.there, a.changes = true, append(a.changes, "create")
	case r.URL.Path == slicePath && !a.there:
		w.WriteHeader(http.StatusNotFound)
		body = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case key == "DELETE "+slicePath:
		a.there, a.changes = false, append(a.changes, "delete")
		body = []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	default:
		a.t.Errorf("unexpected request %s", key)
	}
	_, _ = w.Write(body)
}

func (a *proxiedAPI) read(context.Context) (c op.ProxyCounters, missing string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	a.advance(a)
	if a.received < 0 {
		return c, "kube-proxy does not serve metrics", nil
	}
	return op.ProxyCounters{Received: float64(a.received), Pending: float64(a.received - a.applied)}, "", nil
}

// clientOf returns a client of an API.
func clientOf(t *testing.T, api http.Handler) *kube.Client {
	t.Helper()
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c, err := kube.New(fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: t}}]
`, server.URL, base64.StdEncoding.EncodeToString(ca)), nil, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestProxyGate_WaitsUntilProxyApplies(t *testing.T) {
	w1 := gateSlice(v1alpha1.Host{Name: "w1", Address: "192.0.2.12"})
	atOnce := func(a *proxiedAPI) { a.received = len(a.changes); a.applied = a.received }
	slow := func(a *proxiedAPI) { // receives at one read, applies at the next
		a.applied = a.received
		a.received = len(a.changes)
	}
	for _, c := range []struct {
		name    string
		there   bool // the slice of an interrupted attempt
		advance func(*proxiedAPI)
		stops   int    // the read after which the wait ends; 0: never
		changes string // of the slice, in order
		want    string // part of the error, "" for none
	}{
		{name: "applied at once", advance: atOnce, changes: "create delete"},
		{name: "an interrupted attempt left its slice", there: true, advance: atOnce, changes: "delete create delete"},
		{name: "applied later than received", advance: slow, changes: "create delete"},
		{
			name: "metrics come late", changes: "create delete",
			advance: func(a *proxiedAPI) {
				if atOnce(a); a.looks < 3 {
					a.received = -1
				}
			},
		},
		{
			name: "kube-proxy restarts between the changes", changes: "create delete",
			advance: func(a *proxiedAPI) {
				switch a.looks {
				case 1:
					a.received, a.applied = 500, 500
				case 2:
					a.received, a.applied = 0, 0
				default:
					atOnce(a)
				}
			},
		},
		{
			name: "never received", advance: func(*proxiedAPI) {}, stops: 3, changes: "create delete",
			want: "kube-proxy has not received the change",
		},
		{
			name: "received and never applied", advance: func(a *proxiedAPI) { a.received = len(a.changes) }, stops: 3, changes: "create delete",
			want: "kube-proxy has not applied the change",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &proxiedAPI{t: t, there: c.there, advance: c.advance}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			err := proxyApplies(ctx, clientOf(t, a), w1, func(ctx context.Context) (op.ProxyCounters, string, error) {
				defer func() {
					if a.looks == c.stops {
						stop()
					}
				}()
				return a.read(ctx)
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			var known *kube.Error
			if err != nil && (!errors.As(err, &known) || known.Reason != kube.ReasonTimeout) {
				t.Errorf("error %v is not one of time", err)
			}
			if got := strings.Join(a.changes, " "); got != c.changes {
				t.Errorf("changes %q, want %q", got, c.changes)
			}
			if a.there {
				t.Errorf("%s is still there", path.Base(slicePath))
			}
		})
	}
}

func TestGateSlice_HasIPVersionOfCluster(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.12": "IPv4", "2001:db8::12": "IPv6"} {
		if got := gateSlice(v1alpha1.Host{Name: "w1", Address: address}).Object["addressType"]; got != want {
			t.Errorf("address type of %s is %v, want %s", address, got, want)
		}
	}
}
