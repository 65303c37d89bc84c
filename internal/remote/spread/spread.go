// Package spread decides which host gets content from where, when many want the
// same: the first from the manager, the others from hosts that have it by then.
// So the manager sends everything once or twice, however many hosts there are. A
// host that cannot reach others, or whom others fail, is served by the manager
// as if it were alone.
package spread

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/internal/remote"
)

const (
	// small blobs are sent by the manager: another host would only be later.
	small = 32 << 10
	// atOnce is how many copies of one blob the manager sends at once to hosts
	// that could have them from others; the second only when the first
	// has not come to its end for hedge. One that has not got on for stalled
	// does not count, nor one that was not found whole for so long. On a slow
	// uplink a host is heard of once for half a megabyte: what counts as stalled
	// too early is sent again, which makes everything slower.
	atOnce  = 2
	hedge   = 20 * time.Second
	stalled = 30 * time.Second
	// patience is how long a host waits for busy others while nobody gets the
	// blob whole, besides twice the time that the manager itself took for it.
	patience = 15 * time.Second
	// lookAgain is how often those who wait look for what has not happened.
	lookAgain = time.Second
	// lendTime is for a host to answer that it lends: the question waits behind
	// content that is on its way there, up to a megabyte.
	lendTime = 15 * time.Second
	// A host that failed so many others in a row is asked no more: one of them alone
	// may be wrong, however often it says so. One that others have failed so many
	// times in a row asks no more.
	giverStrikes = 2
	takerStrikes = 3
	// maxBlames is from how many blobs a host may find others wrong: after that
	// it is itself suspected.
	maxBlames = 2
	// When nobody has ever got anything from another, and so many have tried
	// with so many others, hosts do not reach each other at all.
	stuckTakers = 3
	stuckGivers = 2
)

// Content is content for hosts. It implements remote.Spreader; until Among is
// called it sends all by itself.
type Content struct {
	of   remote.Blobs
	sent atomic.Int64

	mu    sync.Mutex
	hosts map[string]*host
	blobs map[string]*blob
	works bool           // some host got something from another
	stuck map[*host]bool // those that could not reach another
}

var _ remote.Spreader = (*Content)(nil)

// New spreads content.
func New(of remote.Blobs) *Content {
	return &Content{of: of, hosts: map[string]*host{}, blobs: map[string]*blob{}, stuck: map[*host]bool{}}
}

// host is one that takes part.
type host struct {
	name    string
	address string // where others reach it; "" gives nothing
	giving  int
	proved  bool           // somebody got something from it
	refused bool           // it does not lend, though it could be asked
	failed  map[*host]bool // those that it was of no use to since it last was to one
	doubts  map[*host]bool // hosts that could not reach it, while none could
	strikes int            // times in a row that others were of no use to it
	blames  int            // times that it found content of others wrong
	missed  map[*host]bool // hosts that it could not reach
	zone    *zone
}

// room is to how many it may give at once: to one, while those who tried could
// not reach it. That others reach it is still to be found out.
func (h *host) room() int {
	switch {
	case h.refused, len(h.failed) >= giverStrikes:
		return 0
	case len(h.doubts) >= giverStrikes && !h.proved:
		return 1
	}
	return remote.LoansAtOnce
}

// blob is what is known of one.
type blob struct {
	holders []holder
	next    int     // where the search for a giver goes on
	waiting []*wish // see queue
	sends   []*wish // those that the manager sends to
	took    time.Duration
	gained  time.Time // when somebody got it last
}

type holder struct {
	host   *host
	lender remote.Lender
}

// gone says that the session is over in which the host could lend.
func (h holder) gone() bool {
	select {
	case <-h.lender.Done():
		return true
	default:
		return false
	}
}

// Among says which hosts there are, by name, and where others reach each.
// Others than these get all from the manager.
func (c *Content) Among(addresses map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, address := range addresses {
		h := &host{name: name, address: address, failed: map[*host]bool{}, doubts: map[*host]bool{}, missed: map[*host]bool{}}
		h.zone = &zone{hosts: []*host{h}, apart: map[*zone]bool{}}
		c.hosts[name] = h
	}
}

// Sent is how many bytes the manager has sent.
func (c *Content) Sent() int64 { return c.sent.Load() }

// OpenBlob opens content at the manager.
func (c *Content) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	return c.of.OpenBlob(digest, offset)
}

// Want is that of remote.Spreader.
func (c *Content) Want(by remote.Lender, digest string, size int64) remote.Wish {
	w := &wish{c: c, lender: by, digest: digest, turn: make(chan holder, 1), tried: map[*host]bool{}}
	has := size > small && c.has(digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	w.by = c.hosts[by.Name()]
	if w.by == nil || len(c.hosts) < 2 || !has {
		return w
	}
	if c.blobs[digest] == nil {
		c.blobs[digest] = &blob{}
	}
	w.blob = c.blobs[digest]
	return w
}

// has reports whether the manager has a blob: what a host asks for without cause is not
// remembered.
func (c *Content) has(digest string) bool {
	c.mu.Lock()
	known := c.blobs[digest] != nil
	c.mu.Unlock()
	if known {
		return true
	}
	r, err := c.of.OpenBlob(digest, 0)
	return err == nil && r.Close() == nil
}

// place finds where a wish gets its content now, if anywhere. c.mu is held.
func (c *Content) place(w *wish) bool {
	if w.blob == nil || c.alone(w.by) {
		return c.send(w)
	}
	now, b := time.Now(), w.blob
	usable := false
	for i := range b.holders {
		at := (b.next + i) % len(b.holders)
		g := b.holders[at]
		if g.gone() || g.host.room() == 0 || g.host == w.by || w.tried[g.host] || !w.by.mayReach(g.host) {
			continue
		}
		usable = true
		if g.host.giving < g.host.room() {
			g.host.giving++
			b.next = at + 1
			w.turn <- g
			return true
		}
	}
	moving, oldest := w.coming(now)
	since := w.since
	if b.gained.After(since) {
		since = b.gained
	}
	switch {
	case moving == 0 && !usable:
		return c.send(w)
	case moving < atOnce && !usable && now.Sub(oldest) >= hedge:
		return c.send(w)
	case moving < atOnce && usable && now.Sub(since) >= patience+2*b.took:
		return c.send(w)
	}
	return false
}

// alone says that a host gets all from the manager.
func (c *Content) alone(h *host) bool {
	if h.strikes >= takerStrikes || h.blames >= maxBlames {
		return true
	}
	if c.works || len(c.stuck) < stuckTakers {
		return false
	}
	givers := 0
	for _, g := range c.hosts {
		if g.refused || len(g.failed) >= giverStrikes || len(g.doubts) >= giverStrikes {
			givers++
		}
	}
	return givers >= stuckGivers
}

// send has the manager send.
func (c *Content) send(w *wish) bool {
	w.began = time.Now()
	w.moved.Store(w.began.UnixNano())
	if w.blob != nil {
		w.blob.sends = append(w.blob.sends, w)
	}
	w.turn <- holder{}
	return true
}

// coming is how many copies get on that the manager sends to hosts from which w
// could have it then, and since when the first of them.
func (w *wish) coming(now time.Time) (n int, oldest time.Time) {
	for _, o := range w.blob.sends {
		if now.Sub(time.Unix(0, o.moved.Load())) >= stalled || !w.by.mayReach(o.by) {
			continue
		}
		if n++; oldest.IsZero() || o.began.Before(oldest) {
			oldest = o.began
		}
	}
	return n, oldest
}

// serve looks for those who wait for a blob, after something has changed.
// c.mu is held.
func (c *Content) serve(b *blob) {
	b.holders = slices.DeleteFunc(b.holders, holder.gone)
	free := 0
	for _, g := range b.holders {
		free += max(0, g.host.room()-g.host.giving)
	}
	for i := 0; i < len(b.waiting); {
		if c.place(b.waiting[i]) {
			b.waiting = slices.Delete(b.waiting, i, i+1)
			free--
			continue
		}
		if i++; free <= 0 {
			return // those behind it would find no more
		}
	}
}

// serveAll is after a change that concerns several blobs.
func (c *Content) serveAll() {
	for _, b := range c.blobs {
		if len(b.waiting) > 0 {
			c.serve(b)
		}
	}
}
