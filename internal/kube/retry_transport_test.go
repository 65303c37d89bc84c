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

// downTransport is a server that does not answer before a time has passed.
type downTransport struct {
	back  time.Time
	asked int
	body  string
}

func (a *downTransport) RoundTrip(req *http.Request) (*http.Response, error) {
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

func TestRetryTransport_RepeatsSafeRequestsUntilServerResponds(t *testing.T) {
	for _, tc := range []struct {
		name, reason, method string
		away                 time.Duration
		asked                int
		fails                bool
	}{
		{"responds", "nothing is sent twice", http.MethodGet, 0, 1, false},
		{"down for a moment", "the request is repeated until the server responds", http.MethodPatch, 3 * time.Second, 4, false},
		{"down for long", "the time is limited", http.MethodGet, time.Hour, 11, true},
		{"a creation", "the object may have been created", http.MethodPost, time.Second, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &downTransport{back: time.Now().Add(tc.away)}
				req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://api.invalid/", bytes.NewReader([]byte("all of it")))
				if err != nil {
					t.Fatal(err)
				}
				res, err := retryTransport{next: server, limit: 10 * time.Second, every: time.Second}.RoundTrip(req)
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

// startingTransport is a server that refuses everything until it is ready.
type startingTransport struct {
	ready time.Time
	asked int
	never bool // the client has no permission
	// late is the time for which it still refuses requests after it reports that it is
	// ready.
	late time.Duration
}

func (w *startingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ready := !time.Now().Before(w.ready)
	code := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[!w.never && !time.Now().Before(w.ready.Add(w.late))]
	if req.URL.Path == "/readyz" {
		code = map[bool]int{true: http.StatusOK, false: http.StatusInternalServerError}[ready]
	} else {
		w.asked++
	}
	return &http.Response{StatusCode: code, Body: http.NoBody}, nil
}

func TestRetryTransport_RepeatsRefusedRequestsUntilServerIsReady(t *testing.T) {
	for _, tc := range []struct {
		name, reason, method string
		server               startingTransport
		in                   time.Duration // it is ready
		asked, code          int
	}{
		{"ready", "the response is accepted", http.MethodGet, startingTransport{}, 0, 1, http.StatusOK},
		{"not ready yet", "it has not loaded the authorization rules", http.MethodGet, startingTransport{}, 2 * time.Second, 3, http.StatusOK},
		{"a creation", "a refused object was not created", http.MethodPost, startingTransport{}, 2 * time.Second, 3, http.StatusOK},
		{
			"ready too early", "it loads the rules a little later", http.MethodGet,
			startingTransport{late: 3 * time.Second},
			time.Second, 5, http.StatusOK,
		},
		{
			"ready and refused", "the refusal is accepted after some seconds", http.MethodGet,
			startingTransport{never: true},
			0, 7, http.StatusForbidden,
		},
		{"never ready", "the time is limited", http.MethodGet, startingTransport{}, time.Hour, 11, http.StatusForbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := tc.server
				server.ready = time.Now().Add(tc.in)
				req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://api.invalid/api", bytes.NewReader([]byte("all")))
				if err != nil {
					t.Fatal(err)
				}
				res, err := retryTransport{next: &server, limit: 10 * time.Second, every: time.Second}.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if res.StatusCode != tc.code || server.asked != tc.asked {
					t.Errorf("%d after %d requests, want %d after %d: %s", res.StatusCode, server.asked, tc.code, tc.asked, tc.reason)
				}
			})
		})
	}
}
