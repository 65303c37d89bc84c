package bundletest

import (
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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
}

const user, password = "carrier", "s3cret-of-the-registry"

// NewRegistry serves an empty registry until the test ends. referrers says
// whether it knows what refers to a manifest; else that is kept under a tag.
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
