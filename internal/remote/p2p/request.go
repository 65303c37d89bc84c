package p2p

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/internal/remote"
)

// wish is the request of a host for a blob.
type wish struct {
	c      *Content
	by     *host // nil does not participate
	lender remote.Lender
	digest string
	blob   *blob // nil: only the manager sends it
	at     int64 // progress of the host at the last answer
	since  time.Time
	began  time.Time   // start of sending by the manager
	turn   chan holder // receives one answer: a giver, or none for the manager
	giver  holder      // the current giver
	used   []*host     // hosts whose content is part of the received content
	tried  map[*host]bool

	moved atomic.Int64 // time of the last send by the manager, in ns since 1970
}

// Next implements remote.Wish.
func (w *wish) Next(ctx context.Context, offset int64) (remote.Source, error) {
	w.c.mu.Lock()
	w.recordFailure(offset)
	w.at = offset
	w.c.mu.Unlock()
	for ctx.Err() == nil {
		g, err := w.awaitGiver(ctx)
		if err != nil {
			return remote.Source{}, err
		}
		if g.host == nil {
			return w.openManagerSource(offset)
		}
		if offer := w.borrowFrom(ctx, g); offer != nil {
			return remote.Source{Offer: offer, Share: true}, nil
		}
	}
	return remote.Source{}, context.Cause(ctx)
}

// borrowFrom asks a host to lend to a host with a new token; it returns nil if the host
// refuses.
func (w *wish) borrowFrom(ctx context.Context, g holder) *remote.Offer {
	bounded, cancel := context.WithTimeout(ctx, lendTime)
	defer cancel()
	token := make(remote.Token, remote.TokenSize)
	_, _ = rand.Read(token) // never fails: crypto/rand guarantees it
	offer, err := g.lender.Lend(bounded, remote.Loan{Digest: w.digest, Address: g.host.address, Token: token})
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.giver = g
	switch {
	case err == nil && offer.Address != "":
		return &offer
	case ctx.Err() != nil: // not a fault of the giver
		w.releaseLoan()
		return nil
	case err != nil && !g.isGone():
		g.host.refused = true
		w.c.stuck[w.by] = true
	}
	w.blob.holders = slices.DeleteFunc(w.blob.holders, func(h holder) bool { return h == g })
	w.tried[g.host] = true
	w.releaseLoan()
	return nil
}

// awaitGiver waits for a giver; none means the manager.
func (w *wish) awaitGiver(ctx context.Context) (holder, error) {
	c := w.c
	c.mu.Lock()
	w.since = time.Now()
	if !c.selectSource(w) {
		w.enqueueWish()
	}
	c.mu.Unlock()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case g := <-w.turn:
			return g, nil
		case <-tick.C:
			c.mu.Lock()
			if w.isWaiting() && c.selectSource(w) {
				w.stopWaiting()
			}
			c.mu.Unlock()
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			w.stopWaiting()
			select {
			case w.giver = <-w.turn:
				w.releaseLoan()
			default:
			}
			return holder{}, context.Cause(ctx)
		}
	}
}

// enqueueWish puts w into the queue, behind requests with the same number of failed hosts.
// Hosts that could not reach the same hosts can probably reach each other, so the first
// of them gets the content for the others. c.mu must be held.
func (w *wish) enqueueWish() {
	b := w.blob
	at := len(b.waiting)
	for at > 0 && len(b.waiting[at-1].by.missed) < len(w.by.missed) {
		at--
	}
	b.waiting = slices.Insert(b.waiting, at, w)
}

// isWaiting reports whether it has no answer yet. c.mu must be held, also for the next
// function.
func (w *wish) isWaiting() bool { return w.blob != nil && slices.Contains(w.blob.waiting, w) }

func (w *wish) stopWaiting() {
	if w.blob != nil {
		w.blob.waiting = slices.DeleteFunc(w.blob.waiting, func(o *wish) bool { return o == w })
	}
}

// openManagerSource makes the manager send.
func (w *wish) openManagerSource(offset int64) (remote.Source, error) {
	content, err := w.c.of.OpenBlob(w.digest, offset)
	if err != nil {
		return remote.Source{}, err
	}
	return remote.Source{Content: &counted{content, w}, Share: w.blob != nil}, nil
}

// counted is content that the manager sends.
type counted struct {
	io.ReadCloser
	w *wish
}

func (r *counted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.w.c.sent.Add(int64(n))
	r.w.moved.Store(time.Now().UnixNano())
	return n, err
}

// releaseLoan ends the loan of the current giver. c.mu must be held.
func (w *wish) releaseLoan() {
	if w.giver.host == nil {
		return
	}
	w.giver.host.giving--
	w.giver = holder{}
	w.c.serveAll()
}

// recordFailure records that a giver did not work from offset on. c.mu must be held.
func (w *wish) recordFailure(offset int64) {
	g := w.giver.host
	if g == nil {
		return
	}
	w.tried[g] = true
	w.by.strikes++
	if offset > w.at {
		w.used = append(w.used, g)
		g.failed[w.by] = true
		w.c.joinZones(w.by, g)
	} else {
		w.by.recordUnreachable(g)
		w.c.stuck[w.by] = true
		g.doubts[w.by] = true
	}
	w.releaseLoan()
}

// End implements remote.Wish.
func (w *wish) End(became remote.Outcome) {
	if w.blob == nil {
		return
	}
	c, b := w.c, w.blob
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := slices.Contains(b.sends, w)
	b.sends = slices.DeleteFunc(b.sends, func(o *wish) bool { return o == w })
	g := w.giver.host
	switch became {
	case remote.Whole:
		now := time.Now()
		if sent && b.took == 0 {
			b.took = now.Sub(w.began)
		}
		if g != nil {
			g.refused, w.by.strikes = false, 0
			clear(g.failed)
			c.joinZones(w.by, g)
		}
		b.gained = now
		b.holders = slices.DeleteFunc(b.holders, func(h holder) bool { return h.host == w.by }) // of an earlier session
		if w.by.address != "" {
			b.holders = append(b.holders, holder{w.by, w.lender})
		}
	case remote.Wrong:
		w.excludeContributors()
	}
	w.releaseLoan()
	c.serveWaiting(b)
}

// excludeContributors excludes the hosts whose content is part of the received content as sources of
// the blob.
func (w *wish) excludeContributors() {
	if g := w.giver.host; g != nil {
		w.used = append(w.used, g)
	}
	if len(w.used) == 0 {
		return // it came from the manager
	}
	w.by.blames++
	for _, g := range w.used {
		g.failed[w.by] = true
		w.blob.holders = slices.DeleteFunc(w.blob.holders, func(h holder) bool { return h.host == g })
	}
}
