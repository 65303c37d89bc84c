package bundle

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

type hears func(*http.Request) (*http.Response, error)

func (h hears) RoundTrip(r *http.Request) (*http.Response, error) { return h(r) }

// TestCredentialsNeverInTheClear: whoever listens on the way could read them.
func TestCredentialsNeverInTheClear(t *testing.T) {
	for url, refused := range map[string]bool{
		"http://10.0.0.7:5000/v2/": true, "https://10.0.0.7:5000/v2/": false, "http://127.0.0.1:5000/v2/": false,
		"http://localhost/v2/": false, "http://registry.local/v2/": true,
	} {
		for _, with := range []bool{true, false} {
			sent := false
			g := guarded{hears(func(*http.Request) (*http.Response, error) {
				sent = true
				return httptest.NewRecorder().Result(), nil
			})}
			r := httptest.NewRequest(http.MethodGet, url, nil)
			if with {
				r.Header.Set("Authorization", "Basic eDp5")
			}
			resp, err := g.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			if want := !(refused && with); sent != want || (err == nil) != want {
				t.Errorf("%s, credentials %v: sent %v, %v", url, with, sent, err)
			}
		}
	}
}
