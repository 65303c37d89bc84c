package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// An API server that fails without deregistering remains registered for up to 25 seconds,
// until its lease in etcd ends and another API server notices. The prober removes a
// server that does not respond earlier than that.
const (
	// probeEvery is the interval between probes of each API server.
	probeEvery = 2 * time.Second
	// probeTime limits the time for a response.
	probeTime = 2 * time.Second
	// silences is the number of failed probes in a row after which a server is removed. A
	// server that this instance has not seen before is removed after one failed probe.
	silences = 2
)

// A prober records which API servers do not respond.
type prober struct {
	mu     sync.Mutex
	silent map[string]int // server → number of failed probes in a row
}

// probeAll probes all servers concurrently. It reports whether a server has become silent
// or is no longer silent.
func (p *prober) probeAll(ctx context.Context, ask func(ctx context.Context, server string) error, servers []string) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	answers := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { answers[i] = ask(ctx, s) })
	}
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.silent
	p.silent = map[string]int{}
	for i, s := range servers {
		was, known := before[s]
		now := 0
		switch {
		case answers[i] == nil:
		case known:
			now = was + 1
		default:
			now = silences
		}
		p.silent[s] = now
		changed = changed || (now >= silences) != (was >= silences)
	}
	return changed
}

// isAnswering reports whether a server does not count as silent.
func (p *prober) isAnswering(server string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent[server] < silences
}

// readyzProbe returns a function that requests /readyz from an API server. Each status
// below 500 counts as a response, also a refusal of the request.
func readyzProbe(trust *tls.Config) func(context.Context, string) error {
	// Each probe uses a new connection, because an open one may lead to a dead machine.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	return func(ctx context.Context, server string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode >= http.StatusInternalServerError {
			return fmt.Errorf("%s: %s", server, res.Status)
		}
		return nil
	}
}
