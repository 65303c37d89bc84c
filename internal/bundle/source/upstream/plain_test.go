package upstream

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCheckSites_RefusesPlainHTTP: the checksums come from the same site, so they do not
// protect the files of a plain HTTP site.
func TestCheckSites_RefusesPlainHTTP(t *testing.T) {
	for name, tt := range map[string]struct {
		options Options
		ok      bool
	}{
		"the official sites": {Options{}, true},
		"a mirror":           {Options{Mirror: "cn"}, true},
		"plain":              {Options{Sites: map[string]string{"runc": "http://10.0.0.1/{version}/{file}"}}, false},
		"plain, allowed":     {Options{Sites: map[string]string{"runc": "http://10.0.0.1/{version}/{file}"}, Insecure: true}, true},
		"this machine":       {Options{Sites: map[string]string{"runc": "http://127.0.0.1:8080/{version}/{file}"}}, true},
		"TLS":                {Options{Sites: map[string]string{"runc": "https://10.0.0.1/{version}/{file}"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.options.CheckSites(); (err == nil) != tt.ok {
				t.Error(err)
			}
		})
	}
}

// TestCheckRedirect_RefusesPlainHTTP: a site cannot redirect to plain HTTP.
func TestCheckRedirect_RefusesPlainHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://plain.example.com/file", http.StatusFound)
	}))
	t.Cleanup(s.Close)
	files := New(Options{}, t.TempDir()).files
	_, err := files.readChecksum(t.Context(), s.URL+"/file", s.URL+"/file.sum")
	if err == nil || !strings.Contains(err.Error(), "plain HTTP") {
		t.Error(err)
	}
}
