package addonsource

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestLoad_RefusesUnpinnedPlainHTTP: content that an attacker on the network path could
// replace is refused before any request.
func TestLoad_RefusesUnpinnedPlainHTTP(t *testing.T) {
	const elsewhere = "http://plain.example.com"
	index := "entries: {web: [{version: 1.2.3, urls: ['" + elsewhere + "/web.tgz'], digest: DIGEST}]}"
	answers := map[string]string{
		"/no-digest/index.yaml": strings.ReplaceAll(index, "DIGEST", `""`),
		"/digest/index.yaml":    strings.ReplaceAll(index, "DIGEST", strings.Repeat("0", 64)),
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := answers[r.URL.Path]; ok {
			_, _ = w.Write([]byte(text))
			return
		}
		http.Redirect(w, r, elsewhere+"/x", http.StatusFound)
	}))
	t.Cleanup(s.Close)
	chart := func(repository, digest string) v1alpha1.Addon {
		return v1alpha1.Addon{Name: "web", Chart: &v1alpha1.Chart{Repository: repository, Name: "web", Version: "1.2.3", Digest: digest}}
	}
	pin := "sha256:" + strings.Repeat("0", 64)
	for name, tt := range map[string]struct {
		addon v1alpha1.Addon
		asked bool // plain.example.com
	}{
		"manifest":                         {addon: v1alpha1.Addon{Name: "a", Manifests: []string{elsewhere + "/a.yaml"}}},
		"manifest, redirected":             {addon: v1alpha1.Addon{Name: "a", Manifests: []string{s.URL + "/a.yaml"}}},
		"manifest, pinned":                 {v1alpha1.Addon{Name: "a", Manifests: []string{elsewhere + "/a.yaml@" + pin}}, true},
		"repository":                       {addon: chart(elsewhere, "")},
		"repository, redirected":           {addon: chart(s.URL, "")},
		"repository, pinned":               {chart(elsewhere, pin), true},
		"archive elsewhere":                {addon: chart(s.URL+"/no-digest", "")},
		"archive elsewhere, with a digest": {chart(s.URL+"/digest", ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			client := *s.Client()
			tls := client.Transport
			client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host != "plain.example.com" {
					return tls.RoundTrip(r)
				}
				asked = true
				return &http.Response{StatusCode: http.StatusNotFound, Status: "404 Not Found", Body: http.NoBody, Request: r}, nil
			})
			_, _, err := Loader{Cache: t.TempDir(), Kubernetes: "v1.37.1", HTTP: &client}.Load(t.Context(), []v1alpha1.Addon{tt.addon})
			if err == nil || strings.Contains(err.Error(), errPlain.Error()) == tt.asked || asked != tt.asked {
				t.Errorf("requests: %v; %v", asked, err)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
