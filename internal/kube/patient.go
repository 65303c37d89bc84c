package kube

import (
	"context"
	"io"
	"net/http"
	"time"
)

// patient sends requests again to which there was no answer, while an API server
// is away for a moment: the operation itself restarts it. A request that makes
// something new is sent once, for nobody knows what became of it.
//
// An API server that has just been started answers before it knows who may do
// what, and refuses what it will allow; some say by then that they are ready
// (github.com/kubernetes/kubernetes/issues/121635). A refusal is believed when it
// is still one some seconds after that.
type patient struct {
	next  http.RoundTripper
	limit time.Duration
	every time.Duration
}

// believed is for how many times every a refusal is asked about again.
const believed = 5

func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, ready := req.Context(), 0 // how often it said so, and refused
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
		if refused && p.ready(ctx, req) {
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
			drop(res)
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

// ready asks the API server of a request whether it is. One that has another way
// to say it is not waited for.
func (p patient) ready(ctx context.Context, of *http.Request) bool {
	u := *of.URL
	u.Path, u.RawQuery = "/readyz", ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return false
	}
	// By the same right: it need not answer whom it does not know.
	if right := of.Header.Get("Authorization"); right != "" {
		req.Header.Set("Authorization", right)
	}
	res, err := p.next.RoundTrip(req)
	if err != nil {
		return false
	}
	drop(res)
	return res.StatusCode < http.StatusInternalServerError
}

// drop leaves a connection to the next request.
func drop(res *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	_ = res.Body.Close() // nothing was written
}
