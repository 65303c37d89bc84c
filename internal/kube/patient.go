package kube

import (
	"net/http"
	"time"
)

// patient sends requests again to which there was no answer, while an API server
// is away for a moment: the operation itself restarts it. A request that makes
// something new is sent once, for nobody knows what became of it.
type patient struct {
	next  http.RoundTripper
	limit time.Duration
	every time.Duration
}

func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	for end := time.Now().Add(p.limit); ; {
		res, err := p.next.RoundTrip(req)
		if err == nil || ctx.Err() != nil || req.Method == http.MethodPost || req.Body != nil && req.GetBody == nil || !time.Now().Before(end) {
			return res, err
		}
		timer := time.NewTimer(p.every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return res, err
		case <-timer.C:
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
