//go:build linux

package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

const (
	probeTimeout = 3 * time.Second
	// programTimeout bounds a program, which may have to ask others.
	programTimeout = 10 * time.Second
	probeEvery     = 500 * time.Millisecond
)

// probe answers why what is waited for does not answer yet, or nil.
func (s *session) probe(ctx context.Context, o op.Wait) error {
	limit := probeTimeout
	if len(o.Program) > 0 {
		limit = programTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch {
	case o.TCP != "":
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.TCP)
		if err != nil {
			return err
		}
		return conn.Close()
	case o.HTTP != "":
		if o.Manifest != "" {
			if err := s.runsAs(o.Manifest); err != nil {
				return err
			}
		}
		return probeHTTP(ctx, o.HTTP)
	case o.Ended != "":
		return s.ended(o.Ended)
	case len(o.Program) > 0:
		return s.run(ctx, command{argv: o.Program, stdout: io.Discard})
	case exists(s.path(o.Path)):
		return nil
	}
	return fmt.Errorf("%s is not there", o.Path)
}

func probeHTTP(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a liveness probe: nothing is sent, nothing is believed
	}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 200)) // evidence only
	return fmt.Errorf("%s answers %s: %q", url, res.Status, body)
}

// checkOne refuses to wait for several things, or nothing.
func checkOne(o op.Wait) error {
	one := 0
	for _, v := range []string{o.TCP, o.HTTP, o.Path, o.Ended, o.Name} {
		if v != "" {
			one++
		}
	}
	if o.Manifest != "" && o.HTTP == "" {
		return invalid("the pod of %s has to answer to something", o.Manifest)
	}
	if one != 1 || (o.Name == "") != (len(o.Program) == 0) {
		return invalid("to wait for one thing, name one: tcp %q, http %q, path %q, ended %q, program %q", o.TCP, o.HTTP, o.Path, o.Ended, o.Name)
	}
	return nil
}

func (s *session) checkWait(ctx context.Context, o op.Wait) (verdict, error) {
	if err := checkOne(o); err != nil {
		return verdict{}, err
	}
	if err := s.probe(ctx, o); err != nil {
		return verdict{change: "wait"}, ctx.Err()
	}
	return verdict{}, nil
}

func (s *session) applyWait(ctx context.Context, o op.Wait) error {
	limit := time.Duration(o.TimeoutSeconds) * time.Second
	if limit <= 0 {
		limit = defaultTimeout
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		err := s.probe(bounded, o)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			reason := "Timeout"
			if o.Manifest != "" {
				reason = op.ReasonNotServing
			}
			return &op.Error{Reason: reason, Message: fmt.Sprintf("%s did not answer within %s: %v", o.Target(), limit, err)}
		}
	}
}
