package movecmd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// serveAPI serves an API with Clusters and the namespace team, and returns a kubeconfig.
func serveAPI(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/slipway.dev/v1alpha1/namespaces/team/clusters":
			fmt.Fprint(w, `{"apiVersion": "slipway.dev/v1alpha1", "kind": "ClusterList", "metadata": {}, "items": []}`)
		case "/api/v1/namespaces/team":
			fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}`)
		default:
			t.Errorf("unexpected request: %s %s", r.Method, r.URL)
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
		users: [{name: a, user: {}}], clusters: [{name: a, cluster: {server: "` + s.URL + `"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
