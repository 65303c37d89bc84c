// Package faultproxy passes requests to an API server, and makes some of them fail as a real server
// or network does, for tests of clients.
package faultproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/bounded"
)

// A Fault is a failure of a request.
type Fault int

// The faults. A fault that does not fit a request passes it on.
const (
	Pass Fault = iota
	// Conflict refuses a write with 409, as if another client had changed the object.
	Conflict
	// Busy refuses a request with 429 and asks to repeat it at once.
	Busy
	// Broken refuses a request with 500.
	Broken
	// Full refuses a write with 507.
	Full
	// Lost closes the connection without a request to the server.
	Lost
	// Executed executes a request, and closes the connection without an answer.
	Executed
	// Torn executes a request, and closes the connection in the middle of the answer.
	Torn
	// Cut ends a watch after its next event.
	Cut
	// Expired refuses a watch, because its version is too old.
	Expired
)

// String returns the name of a fault.
func (f Fault) String() string {
	return [...]string{"Pass", "Conflict", "Busy", "Broken", "Full", "Lost", "Executed", "Torn", "Cut", "Expired"}[f]
}

// A Proxy passes requests to an API server.
type Proxy struct {
	server *httptest.Server
	target *rest.Config

	mu     sync.Mutex
	choose func(*http.Request) Fault
	hits   map[Fault]int
}

// New starts a proxy that ends with the test. It passes all requests on until Inject is called.
func New(t testing.TB, target *rest.Config) *Proxy {
	t.Helper()
	transport, err := rest.TransportFor(target)
	if err != nil {
		t.Fatal(err)
	}
	to, _, err := rest.DefaultServerUrlFor(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, hits: map[Fault]int{}}
	p.server = httptest.NewServer(p.newHandler(to, transport))
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// Inject sets the function that chooses the fault of each request. It can be called concurrently.
func (p *Proxy) Inject(choose func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.choose = choose
}

// Hits returns how often each fault has happened.
func (p *Proxy) Hits(f Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits[f]
}

// Config returns the configuration of a client that uses the proxy with the rights of the target's
// client.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: p.server.URL, QPS: -1, ContentConfig: p.target.ContentConfig}
}

// next returns the fault of a request, Pass if it does not fit.
func (p *Proxy) next(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := Pass
	if p.choose != nil {
		f = p.choose(r)
	}
	if f == Pass || !f.Fits(r) {
		return Pass
	}
	p.hits[f]++
	return f
}

// Fits reports whether a fault can happen to a request.
func (f Fault) Fits(r *http.Request) bool {
	switch f {
	case Conflict:
		return r.Method == http.MethodPut || r.Method == http.MethodPatch
	case Full, Executed:
		return r.Method != http.MethodGet && r.Method != http.MethodHead
	case Torn:
		return !isWatch(r)
	case Cut, Expired:
		return isWatch(r)
	}
	return true
}

func isWatch(r *http.Request) bool {
	value := r.URL.Query().Get("watch")
	return value == "true" || value == "1"
}

// errExecuted makes the proxy close the connection after the server has answered.
var errExecuted = errors.New("the answer is lost")

func (p *Proxy) newHandler(to *url.URL, transport http.RoundTripper) http.Handler {
	pass := func(change func(*http.Response) error) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport:      transport,
			FlushInterval:  -1,
			ModifyResponse: change,
			ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { closeConnection() },
		}
	}
	plain := pass(nil)
	executed := pass(func(*http.Response) error { return errExecuted })
	cut := pass(func(r *http.Response) error {
		r.Body = &firstLine{ReadCloser: r.Body}
		return nil
	})
	torn := pass(func(r *http.Response) error {
		text, err := bounded.ReadAll(r.Body, bounded.Page)
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text[:len(text)/2]), failingReader{})) // the proxy closes the connection
		return err
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p.next(r) {
		case Conflict:
			refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		case Busy:
			w.Header().Set("Retry-After", "0")
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
		case Broken:
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "an internal error")
		case Full:
			refuse(w, http.StatusInsufficientStorage, metav1.StatusReasonUnknown, "etcdserver: mvcc: database space exceeded")
		case Expired:
			refuse(w, http.StatusGone, metav1.StatusReasonExpired, "the version is too old")
		case Lost:
			closeConnection()
		case Executed:
			executed.ServeHTTP(w, r)
		case Torn:
			torn.ServeHTTP(w, r)
		case Cut:
			cut.ServeHTTP(w, r)
		default:
			plain.ServeHTTP(w, r)
		}
	})
}

// closeConnection closes the connection of a request from its handler.
func closeConnection() { panic(http.ErrAbortHandler) } //nolint:forbidigo // net/http has no other way

// refuse responds with a status of the API.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// failingReader fails.
type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// firstLine ends after one line.
type firstLine struct {
	io.ReadCloser
	ended bool
}

func (f *firstLine) Read(b []byte) (int, error) {
	if f.ended {
		return 0, io.EOF
	}
	n, err := f.ReadCloser.Read(b)
	if i := bytes.IndexByte(b[:n], '\n'); i >= 0 {
		f.ended = true
		return i + 1, nil
	}
	return n, err
}
