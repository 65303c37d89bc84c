package kube

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// away is a server that does not answer before a time has passed.
type away struct {
	back  time.Time
	asked int
	body  string
}

func (a *away) RoundTrip(req *http.Request) (*http.Response, error) {
	a.asked++
	if req.Body != nil {
		raw, _ := io.ReadAll(req.Body)
		a.body = string(raw)
	}
	if time.Now().Before(a.back) {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestPatient(t *testing.T) {
	for _, tc := range []struct {
		name, reason, method string
		away                 time.Duration
		asked                int
		fails                bool
	}{
		{"it answers", "nothing is sent twice", http.MethodGet, 0, 1, false},
		{"away for a moment", "it is asked until it is back", http.MethodPatch, 3 * time.Second, 4, false},
		{"away for long", "there is an end", http.MethodGet, time.Hour, 11, true},
		{"something new", "it may have been made", http.MethodPost, time.Second, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &away{back: time.Now().Add(tc.away)}
				req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://api.invalid/", bytes.NewReader([]byte("all of it")))
				if err != nil {
					t.Fatal(err)
				}
				res, err := patient{next: server, limit: 10 * time.Second, every: time.Second}.RoundTrip(req)
				if res != nil {
					defer res.Body.Close()
				}
				if (err != nil) != tc.fails || server.asked != tc.asked || server.body != "all of it" {
					t.Errorf("%v after %d requests, the last with %q; want %d: %s", err, server.asked, server.body, tc.asked, tc.reason)
				}
			})
		})
	}
}
