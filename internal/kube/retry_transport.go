package kube

import (
	"context"
	"io"
	"net/http"
	"time"
)

// retryTransport repeats requests without a response, because the operation itself restarts API
// servers. It sends a request that creates an object only once, because it is unknown
// whether the first one had an effect.
//
// An API server that has just started responds before it has loaded the authorization
// rules, and refuses requests that it will allow later. Some report at that time that they
// are ready (github.com/kubernetes/kubernetes/issues/121635). So retryTransport accepts a
// refusal only if it continues for some seconds after the server is ready.
type retryTransport struct {
	next  http.RoundTripper
	limit time.Duration
	every time.Duration
}

// believed is how many times a refusal is checked again, each after every.
const believed = 5

func (p retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, ready := req.Context(), 0 // how often it was ready and refused
	for end := time.Now().Add(p.limit); ; {
		res, err := p.next.RoundTrip(req)
		refused := err == nil && res.StatusCode == http.StatusForbidden
		switch {
		case ctx.Err() != nil, req.Body != nil && req.GetBody == nil, !time.Now().Before(end):
			return res, err
		case refused && ready > believed, err == nil && !refused:
			return res, err
		case err != nil && req.Method == http.MethodPost:
			return res, err
		}
		if refused && p.isServerReady(ctx, req) {
			ready++
		} else {
			ready = 0
		}
		timer := time.NewTimer(p.every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return res, err
		case <-timer.C:
		}
		if refused {
			drainBody(res)
		}
		again := req.Clone(ctx)
		if req.GetBody != nil {
			if again.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		req = again
	}
}

// isServerReady reports whether the API server of a request is ready. A server without /readyz
// counts as ready.
func (p retryTransport) isServerReady(ctx context.Context, of *http.Request) bool {
	u := *of.URL
	u.Path, u.RawQuery = "/readyz", ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return false
	}
	// With the same credentials: the server may reject anonymous requests.
	if right := of.Header.Get("Authorization"); right != "" {
		req.Header.Set("Authorization", right)
	}
	res, err := p.next.RoundTrip(req)
	if err != nil {
		return false
	}
	drainBody(res)
	return res.StatusCode < http.StatusInternalServerError
}

// drainBody frees a connection for the next request.
func drainBody(res *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	_ = res.Body.Close() // nothing was written
}
