//go:build linux

package executor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/op"
)

// waitOp executes op.Wait.
type waitOp struct{ o op.Wait }

func (x *waitOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	return s.applyWait(ctx, x.o)
}

func (*waitOp) LedgerEntries() ([]subject, bool) {
	return nil, true
}

const (
	probeTimeout = 3 * time.Second
	// programTimeout limits a program, which may have to query others.
	programTimeout = 10 * time.Second
	probeEvery     = 500 * time.Millisecond
)

// probe returns why the condition of a wait is not true yet, or nil.
func (s *session) probe(ctx context.Context, o op.Wait) error {
	limit := probeTimeout
	if len(o.Program) > 0 || o.Container != "" {
		limit = programTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if o.Manifest != "" {
		if err := s.runsAs(o.Manifest); err != nil {
			return err
		}
	}
	if o.SteadySeconds > 0 {
		if err := s.steady(o.Manifest, time.Duration(o.SteadySeconds)*time.Second); err != nil {
			return err
		}
	}
	if o.Since != "" {
		if err := s.hasRun(ctx, o.Since, time.Duration(o.SinceSeconds)*time.Second); err != nil {
			return err
		}
	}
	switch {
	case len(o.Trusts) > 0:
		return s.trusts(ctx, o.TCP, o.Trusts)
	case o.TCP != "":
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.TCP)
		if err != nil {
			return err
		}
		return conn.Close()
	case o.HTTP != "":
		return probeHTTP(ctx, o.HTTP, o.Says)
	case o.Ended != "":
		return s.ended(o.Ended)
	case o.Certificate != "":
		return s.valid(o.Certificate)
	case len(o.Program) > 0:
		return s.run(ctx, command{argv: o.Program, stdout: io.Discard})
	case o.Container != "":
		return s.containerRuns(ctx, o.Container, o.Image)
	case exists(s.path(o.Path)):
		return nil
	}
	return fmt.Errorf("%s does not exist", o.Path)
}

// hasRun returns why a unit has not been running for a time, or nil.
func (s *session) hasRun(ctx context.Context, unit string, least time.Duration) error {
	u, err := s.unit(ctx, unit)
	if err != nil {
		return err
	}
	if u.started == 0 {
		return fmt.Errorf("%s is not running", unit)
	}
	at, err := onClock(u.started)
	if err == nil && time.Since(at) < least {
		err = fmt.Errorf("%s has only just started", unit)
	}
	return err
}

func probeHTTP(ctx context.Context, url, says string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a liveness probe: it sends and trusts nothing
	}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := bounded.ReadAll(res.Body, 200) // else only evidence
	if res.StatusCode == http.StatusOK && (says == "" || err == nil && string(body) == says) {
		return nil
	}
	return fmt.Errorf("%s returned %s: %q", url, res.Status, body)
}

// checkOne rejects a wait with several conditions, or none.
func checkOne(o op.Wait) error {
	one := 0
	for _, v := range []string{o.TCP, o.HTTP, o.Path, o.Ended, o.Certificate, o.Name, o.Container} {
		if v != "" {
			one++
		}
	}
	if len(o.Trusts) > 0 && o.TCP == "" {
		return invalid("the wait does not name who must trust %q", o.Trusts)
	}
	if o.Says != "" && o.HTTP == "" {
		return invalid("the wait does not name who must return %q", o.Says)
	}
	if o.Manifest != "" && o.HTTP == "" && len(o.Program) == 0 {
		return invalid("the wait for the pod of %s does not name a check", o.Manifest)
	}
	if o.Crashes != 0 && (o.Manifest == "" || o.Crashes < 0) {
		return invalid("the wait does not name the container that can exit %d times", o.Crashes)
	}
	if o.SteadySeconds != 0 && (o.Manifest == "" || o.SteadySeconds < 0) {
		return invalid("the wait does not name the program that must run for %d seconds", o.SteadySeconds)
	}
	if (o.Since == "") != (o.SinceSeconds <= 0) || o.Since != "" && o.HTTP == "" && len(o.Program) == 0 {
		return invalid("the wait does not name the check after %d seconds of %q", o.SinceSeconds, o.Since)
	}
	if one != 1 || (o.Name == "") != (len(o.Program) == 0) || (o.Container == "") != (o.Image == "") {
		return invalid("a wait must name exactly one of: tcp %q, http %q, path %q, ended %q, certificate %q, program "+
			"%q, container %q with its image",
			o.TCP, o.HTTP, o.Path, o.Ended, o.Certificate, o.Name, o.Container)
	}
	return nil
}

func (x *waitOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
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
	before := s.latest(o.Manifest)
	var why error
	for {
		err := s.probe(bounded, o)
		if err == nil {
			return nil
		}
		if bounded.Err() == nil || why == nil { // else it only reports that time is up
			why = err
		}
		if s.often(o, before) {
			return s.crashed(o)
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			e := &op.Error{Reason: "Timeout", Message: fmt.Sprintf("%s did not answer within %s: %v", o.Target(), limit, why)}
			if o.Manifest != "" {
				e.Reason, e.Detail = op.ReasonNotServing, s.podWords(o.Manifest)
			}
			return e
		}
	}
}
