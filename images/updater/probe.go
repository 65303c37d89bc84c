package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// An API server that died without a word is announced until its lease in etcd
// has ended and another API server has noticed, up to 25 seconds in all: one that
// does not answer is left out before that.
const (
	// probeEvery is how often each API server is asked.
	probeEvery = 2 * time.Second
	// probeTime bounds how long it may take to answer.
	probeTime = 2 * time.Second
	// silences is how often in a row it has not answered when it is left out.
	// One that this instance has never heard of is left out at once.
	silences = 2
)

// A prober knows which API servers do not answer.
type prober struct {
	mu     sync.Mutex
	silent map[string]int // server → how often in a row it has not answered
}

// probeAll asks all servers, at once, and says whether one of them counts as silent
// that did not before, or no longer does.
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

// isAnswering says that nothing is known against a server.
func (p *prober) isAnswering(server string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent[server] < silences
}

// readyzProbe asks an API server whether it is ready. To be told that one may not ask
// is an answer.
func readyzProbe(trust *tls.Config) func(context.Context, string) error {
	// Each time by a new connection: what is open may lead to a dead machine.
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
