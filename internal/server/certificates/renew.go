package certificates

import (
	"context"
	"time"
)

const (
	// longestWait is the longest time between two checks of the wall clock. A timer does not
	// advance while the machine is suspended, and does not follow a clock that is set.
	longestWait = time.Minute
	// shortestWait is the shortest time between two checks, unless a lifetime is very short.
	shortestWait = time.Second
	// retryWait is the time after which a failed renewal is tried again.
	retryWait = time.Minute
	// waitPart is the part of the shortest lifetime that limits all waits.
	waitPart = 60
)

// Run renews certificates at two thirds of their lifetimes, until ctx ends. If a renewal
// fails, for example because the disk is full, the files are kept, the error is logged, and
// the renewal is tried again. API servers read changed files again.
func (c *Certificates) Run(ctx context.Context) error {
	failed := false
	for {
		timer := time.NewTimer(c.nextWait(failed))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		err := c.renewDue()
		if failed = err != nil; failed {
			c.logFailure(err)
		}
	}
}

func (c *Certificates) logFailure(err error) {
	c.options.Log.Error("Cannot renew certificates", "error", err, "retryAfter", c.nextWait(true))
}

// nextWait returns the time until the next check of the clock.
func (c *Certificates) nextWait(failed bool) time.Duration {
	limit := c.options.Lifetimes.shortest() / waitPart
	if failed {
		return min(retryWait, limit)
	}
	return min(max(c.NextRenewal().Sub(c.options.Now()), shortestWait), limit, longestWait)
}
