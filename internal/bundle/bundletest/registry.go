package bundletest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"slipway.dev/slipway/internal/bundle"
)

// A Registry is one on loopback, over TLS and with credentials.
type Registry struct {
	Host string
	// At is how it is spoken to; both files are the test's own.
	At bundle.Registry
	// Uploads and Fetches count blobs.
	Uploads, Fetches atomic.Int64

	mu sync.Mutex
	// listed has the referrers in the last response about a manifest. crowd has the
	// referrers that are listed before all others.
	listed, crowd []json.RawMessage
}

// CrowdSignatures puts n copies of the last listed signatures before all others.
func (r *Registry) CrowdSignatures(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crowd = slices.Repeat(r.listed, n)
}

// serveReferrers returns the manifests that refer to a manifest.
func (r *Registry) serveReferrers(w http.ResponseWriter, req *http.Request, handler http.Handler) {
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, req)
	var index map[string]json.RawMessage
	var list []json.RawMessage
	if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &index) != nil || json.Unmarshal(index["manifests"], &list) != nil {
		http.Error(w, rec.Body.String(), rec.Code)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = list
	index["manifests"], _ = json.Marshal(slices.Concat(r.crowd, list)) // it was JSON
	raw, _ := json.Marshal(index)
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	_, _ = w.Write(raw)
}

const user, password = "carrier", "s3cret-of-the-registry"

// NewRegistry serves an empty registry until the test ends. referrers reports whether it
// has the referrers API; otherwise clients keep referrers under a tag.
func NewRegistry(t testing.TB, referrers bool) *Registry {
	t.Helper()
	handler := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)), registry.WithReferrersSupport(referrers))
	r := new(Registry)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if u, p, _ := req.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		switch blob := strings.Contains(req.URL.Path, "/blobs/"); {
		case blob && req.Method == http.MethodPut:
			r.Uploads.Add(1)
		case blob && req.Method == http.MethodGet:
			r.Fetches.Add(1)
		}
		if referrers && strings.Contains(req.URL.Path, "/referrers/") {
			r.serveReferrers(w, req, handler)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	r.Host = srv.Listener.Addr().String()
	r.At = bundle.Registry{Credentials: filepath.Join(dir, "config.json"), CA: filepath.Join(dir, "ca.crt")}
	for path, content := range map[string]string{
		r.At.Credentials: fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, r.Host, user, password),
		r.At.CA:          string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}
