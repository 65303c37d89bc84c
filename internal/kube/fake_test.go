package kube

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A call is one request the fake API server expects, and its answer.
type call struct {
	request string // "GET /api/v1/nodes", with the query if it matters
	body    string // what the request's body must hold
	status  int    // 0 is 200
	answer  string
}

// A fakeAPI answers calls in order and fails the test on any other.
type fakeAPI struct {
	t      *testing.T
	server *httptest.Server
	mu     sync.Mutex
	calls  []call
	dialed []string
}

func newFakeAPI(t *testing.T, calls ...call) *fakeAPI {
	f := &fakeAPI{t: t, calls: calls}
	f.server = httptest.NewUnstartedServer(f)
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0) // some tests expect the client to refuse the server
	f.server.StartTLS()
	t.Cleanup(func() {
		f.server.Close()
		for _, c := range f.calls {
			t.Errorf("never requested: %s", c.request)
		}
	})
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	got := r.Method + " " + r.URL.RequestURI()
	w.Header().Set("Content-Type", "application/json")
	if len(f.calls) == 0 {
		f.t.Errorf("unexpected request %s %s", got, body)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	next := f.calls[0]
	f.calls = f.calls[1:]
	if got != next.request {
		f.t.Errorf("request is %s, want %s", got, next.request)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if !strings.Contains(string(body), next.body) {
		f.t.Errorf("%s: body is %s, want it to hold %s", got, body, next.body)
	}
	status := next.status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	answer := next.answer
	if status >= 400 && answer == "" {
		answer = statusAnswer(status, "")
	}
	_, _ = io.WriteString(w, answer)
}

func statusAnswer(code int, message string) string {
	reasons := map[int]string{
		401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid",
		503: "ServiceUnavailable", 500: "InternalError",
	}
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`,
		message, reasons[code], code)
}

// newClient is one whose kubeconfig has a name that nothing here resolves: it
// works only if the connection is made to the address of the options.
func (f *fakeAPI) newClient() *Client {
	f.t.Helper()
	c, err := New(f.adminKubeconfig("https://example.com:6443"), f.dialServer, Options{Address: f.server.Listener.Addr().String()})
	if err != nil {
		f.t.Fatal(err)
	}
	c.first, c.interval = time.Millisecond, time.Millisecond
	f.t.Cleanup(c.Close)
	return c
}

func (f *fakeAPI) dialServer(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dialed = append(f.dialed, address)
	f.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (f *fakeAPI) adminKubeconfig(server string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	return kubeconfigWith(fmt.Sprintf("server: %s, certificate-authority-data: %s", server,
		base64.StdEncoding.EncodeToString(ca)), "token: abc")
}

func kubeconfigWith(cluster, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
`, cluster, user)
}
