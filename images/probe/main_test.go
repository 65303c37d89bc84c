package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func answerWith(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/again")
		w.WriteHeader(code)
	}
}

func TestProbeServer_ReportsWhetherServerResponds(t *testing.T) {
	gone := httptest.NewServer(answerWith(http.StatusOK))
	gone.Close()
	tests := map[string]struct {
		reason string
		code   int
		alive  bool
	}{
		"OK":           {"alive with any certificate", http.StatusOK, true},
		"unauthorised": {"an API server without anonymous access is alive", http.StatusUnauthorized, true},
		"redirect":     {"it counts as a response and is not followed", http.StatusFound, true},
		"unhealthy":    {"an API server reports that it is not live", http.StatusInternalServerError, false},
		"overloaded":   {"an API server reports that it is overloaded", http.StatusServiceUnavailable, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewTLSServer(answerWith(tt.code))
			defer srv.Close()
			if err := probeServer(t.Context(), []string{srv.URL}); (err == nil) != tt.alive {
				t.Errorf("%s: %v", tt.reason, err)
			}
		})
	}
	for name, args := range map[string][]string{
		"no server": {gone.URL}, "no URL": {}, "two": {gone.URL, gone.URL},
		"no scheme": {"localhost"},
	} {
		if err := probeServer(t.Context(), args); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestProbeServer_FailsIfServerStaysSilent: a server that accepts the connection but
// sends nothing is dead.
func TestProbeServer_FailsIfServerStaysSilent(t *testing.T) {
	hold := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer srv.Close()
	defer close(hold)
	began := time.Now()
	if err := probeServer(t.Context(), []string{srv.URL}); err == nil || time.Since(began) > 2*timeout {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
