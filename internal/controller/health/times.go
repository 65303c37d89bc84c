package health

import (
	"math/rand/v2"
	"time"
)

// Times are the periods and limits of probes.
type Times struct {
	// Period is the time between two probes of an API, and HostsPeriod between two probes of hosts. Both vary
	// by a fifth.
	Period, HostsPeriod time.Duration
	// API and Hosts limit a probe. Hosts is for as many hosts as are queried at the same time.
	API, Hosts time.Duration
	// Unanswered is the time without an answer after which it is unknown whether a cluster is ready.
	Unanswered time.Duration
	// Slow is the period after some failures, and Slowest the period after failures for SlowestAfter.
	Slow, Slowest, SlowestAfter time.Duration
	// Refresh is the time between two writes of a status that does not change.
	Refresh time.Duration
}

// maxFailures is the number of failures after which a cluster is probed less often.
const maxFailures = 3

// setDefaults sets zero fields.
func (t *Times) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Period, 30 * time.Second},
		{&t.HostsPeriod, 5 * time.Minute},
		{&t.API, 5 * time.Second},
		{&t.Hosts, 10 * time.Second},
		{&t.Unanswered, 40 * time.Second},
		{&t.Slow, time.Minute},
		{&t.Slowest, 10 * time.Minute},
		{&t.SlowestAfter, time.Hour},
		{&t.Refresh, 5 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

// A breaker makes probes rare while they fail.
type breaker struct {
	failures int
	since    time.Time // of the first failure
}

// add adds the result of a probe, and returns the time until the next one.
func (b *breaker) add(ok bool, period time.Duration, t *Times, now time.Time) time.Duration {
	if ok {
		*b = breaker{}
		return vary(period)
	}
	if b.failures == 0 {
		b.since = now
	}
	b.failures++
	switch {
	case b.failures < maxFailures:
		return vary(period)
	case now.Sub(b.since) < t.SlowestAfter:
		return vary(max(period, t.Slow))
	}
	return vary(max(period, t.Slowest))
}

// vary returns a time that differs from d by at most a fifth.
func vary(d time.Duration) time.Duration { return d - d/5 + randomUntil(2*d/5) }

// randomUntil returns a random time below d.
func randomUntil(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d) //nolint:gosec // it spreads load
}
