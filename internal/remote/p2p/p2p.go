// Package p2p decides from where each host gets content that many hosts want: the
// first host gets it from the manager, the others from hosts that have it. So the manager
// sends everything once or twice, whatever the number of hosts. A host that cannot reach
// others, or gets nothing from others, gets all content from the manager.
package p2p

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/internal/remote"
)

const (
	// small blobs are sent by the manager: another host would be slower.
	small = 32 << 10
	// atOnce limits how many copies of one blob the manager sends at the same time to
	// hosts that could get them from others. The second copy starts only if the first has
	// not finished within hedge. A copy without progress for stalled does not count, nor
	// does a copy that has not been verified within that time. On a slow uplink, a host
	// reports only once for each half megabyte: a copy that counts as stalled too early
	// is sent again, which makes everything slower.
	atOnce  = 2
	hedge   = 20 * time.Second
	stalled = 30 * time.Second
	// patience limits how long a host waits for busy hosts while no host gets the
	// complete blob, in addition to twice the time that the manager itself needed for it.
	patience = 15 * time.Second
	// lookAgain is the interval at which waiting hosts check for missing progress.
	lookAgain = time.Second
	// lendTime is the time for a host to answer that it lends: the request can wait
	// behind content for the host, up to a megabyte.
	lendTime = 15 * time.Second
	// giverStrikes: a host that failed this many other hosts in a row is no longer used;
	// one host alone may be wrong, however often it reports a failure. takerStrikes: a
	// host that this many hosts in a row have failed no longer uses others.
	giverStrikes = 2
	takerStrikes = 3
	// maxBlames is the number of blobs for which a host can report wrong content from
	// others; after that, the host itself is suspected.
	maxBlames = 2
	// If no host has ever got anything from another one, and this many hosts have tried
	// with this many others, hosts cannot reach each other at all.
	stuckTakers = 3
	stuckGivers = 2
)

// Content is content for hosts. It implements remote.Spreader; before a call of SetHosts,
// the manager sends everything.
type Content struct {
	of   remote.Blobs
	sent atomic.Int64

	mu    sync.Mutex
	hosts map[string]*host
	blobs map[string]*blob
	works bool           // a host got something from another one
	stuck map[*host]bool // hosts that could not reach another one
}

var _ remote.Spreader = (*Content)(nil)

// New returns a Content for these blobs.
func New(of remote.Blobs) *Content {
	return &Content{of: of, hosts: map[string]*host{}, blobs: map[string]*blob{}, stuck: map[*host]bool{}}
}

// host is a participating host.
type host struct {
	name    string
	address string // address for other hosts; "" means that it does not lend
	giving  int
	proved  bool           // another host got something from it
	refused bool           // it refused to lend
	failed  map[*host]bool // hosts for which it did not work since it last worked for one
	doubts  map[*host]bool // hosts that could not reach it, while no host could
	strikes int            // number of times in a row that others did not work for it
	blames  int            // number of times that it reported wrong content of others
	missed  map[*host]bool // hosts that it could not reach
	zone    *zone
}

// freeSlots returns to how many hosts it can lend at the same time: to one, as long as hosts
// that tried could not reach it and no host has reached it yet.
func (h *host) freeSlots() int {
	switch {
	case h.refused, len(h.failed) >= giverStrikes:
		return 0
	case len(h.doubts) >= giverStrikes && !h.proved:
		return 1
	}
	return remote.LoansAtOnce
}

// blob is the state of one blob.
type blob struct {
	holders []holder
	next    int     // where the search for a giver continues
	waiting []*wish // see queue
	sends   []*wish // requests to which the manager sends
	took    time.Duration
	gained  time.Time // last time that a host got the blob
}

type holder struct {
	host   *host
	lender remote.Lender
}

// isGone reports whether the session of the lending host is over.
func (h holder) isGone() bool {
	select {
	case <-h.lender.Done():
		return true
	default:
		return false
	}
}

// SetHosts sets the participating hosts by name, with their addresses for other hosts. All
// other hosts get everything from the manager.
func (c *Content) SetHosts(addresses map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, address := range addresses {
		h := &host{name: name, address: address, failed: map[*host]bool{}, doubts: map[*host]bool{}, missed: map[*host]bool{}}
		h.zone = &zone{hosts: []*host{h}, apart: map[*zone]bool{}}
		c.hosts[name] = h
	}
}

// BytesSent returns how many bytes the manager has sent.
func (c *Content) BytesSent() int64 { return c.sent.Load() }

// OpenBlob opens content of the manager.
func (c *Content) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	return c.of.OpenBlob(digest, offset)
}

// Want implements remote.Spreader.
func (c *Content) Want(by remote.Lender, digest string, size int64) remote.Wish {
	w := &wish{c: c, lender: by, digest: digest, turn: make(chan holder, 1), tried: map[*host]bool{}}
	has := size > small && c.hasBlob(digest)
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

// hasBlob reports whether the manager has a blob: an unknown blob is not recorded.
func (c *Content) hasBlob(digest string) bool {
	c.mu.Lock()
	known := c.blobs[digest] != nil
	c.mu.Unlock()
	if known {
		return true
	}
	r, err := c.of.OpenBlob(digest, 0)
	return err == nil && r.Close() == nil
}

// selectSource selects the current source for a request, if there is one. c.mu must be held.
func (c *Content) selectSource(w *wish) bool {
	if w.blob == nil || c.isAlone(w.by) {
		return c.sendFromManager(w)
	}
	now, b := time.Now(), w.blob
	usable := false
	for i := range b.holders {
		at := (b.next + i) % len(b.holders)
		g := b.holders[at]
		if g.isGone() || g.host.freeSlots() == 0 || g.host == w.by || w.tried[g.host] || !w.by.mayReach(g.host) {
			continue
		}
		usable = true
		if g.host.giving < g.host.freeSlots() {
			g.host.giving++
			b.next = at + 1
			w.turn <- g
			return true
		}
	}
	moving, oldest := w.countComing(now)
	since := w.since
	if b.gained.After(since) {
		since = b.gained
	}
	switch {
	case moving == 0 && !usable:
		return c.sendFromManager(w)
	case moving < atOnce && !usable && now.Sub(oldest) >= hedge:
		return c.sendFromManager(w)
	case moving < atOnce && usable && now.Sub(since) >= patience+2*b.took:
		return c.sendFromManager(w)
	}
	return false
}

// isAlone reports whether a host gets everything from the manager.
func (c *Content) isAlone(h *host) bool {
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

// sendFromManager makes the manager send.
func (c *Content) sendFromManager(w *wish) bool {
	w.began = time.Now()
	w.moved.Store(w.began.UnixNano())
	if w.blob != nil {
		w.blob.sends = append(w.blob.sends, w)
	}
	w.turn <- holder{}
	return true
}

// countComing returns how many copies with progress the manager is sending to hosts from which
// w could then get the blob, and the start time of the first of them.
func (w *wish) countComing(now time.Time) (n int, oldest time.Time) {
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

// serveWaiting checks the requests that wait for a blob after a change. c.mu must be held.
func (c *Content) serveWaiting(b *blob) {
	b.holders = slices.DeleteFunc(b.holders, holder.isGone)
	free := 0
	for _, g := range b.holders {
		free += max(0, g.host.freeSlots()-g.host.giving)
	}
	for i := 0; i < len(b.waiting); {
		if c.selectSource(b.waiting[i]) {
			b.waiting = slices.Delete(b.waiting, i, i+1)
			free--
			continue
		}
		if i++; free <= 0 {
			return // the requests behind it would not find more
		}
	}
}

// serveAll checks all blobs, after a change that concerns several of them.
func (c *Content) serveAll() {
	for _, b := range c.blobs {
		if len(b.waiting) > 0 {
			c.serveWaiting(b)
		}
	}
}
