package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/internal/remote"
)

const mega = 1 << 20

// A world is a manager and hosts that are played, in played time: bytes take
// their time, and nothing else does.
type world struct {
	t       *testing.T
	content *Content
	uplink  int // bytes a second, for all together
	hosts   map[string]*player

	mu     sync.Mutex
	busy   int // copies that the manager sends
	giving map[string]int
	most   int // that one host gave at once
	loans  map[string]string
}

// player is a host.
type player struct {
	w    *world
	name string
	done chan struct{}
	// zone: the host reaches the hosts with the same zone.
	zone string
	// down limits the bytes a second that it reads from the manager; 0 means no
	// limit.
	down int
	// breaks after so many bytes, when it gives; lies gives something else;
	// slow gives so many bytes a second; shut does not lend.
	breaks int
	lies   bool
	slow   int
	shut   bool
	// late is how long it takes to answer that it lends.
	late time.Duration
	// stalls never reads on from the manager.
	stalls bool
	has    map[string]bool
}

func (p *player) Name() string          { return p.name }
func (p *player) Done() <-chan struct{} { return p.done }

func (p *player) Lend(ctx context.Context, l remote.Loan) (remote.Offer, error) {
	if p.late > 0 {
		select {
		case <-time.After(p.late):
		case <-ctx.Done():
			return remote.Offer{}, context.Cause(ctx)
		}
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.shut || !p.has[l.Digest] || len(l.Token) != remote.TokenSize {
		return remote.Offer{}, errors.New("it does not lend")
	}
	p.w.loans[string(l.Token)] = p.name
	return remote.Offer{Address: p.name, Token: l.Token}, nil
}

func newWorld(t *testing.T, n int, adapt func(i int, p *player)) *world {
	w := &world{t: t, uplink: 10 * mega, hosts: map[string]*player{}, giving: map[string]int{}, loans: map[string]string{}}
	w.content = New(w)
	addresses := map[string]string{}
	for i := range n {
		p := &player{w: w, name: fmt.Sprintf("h%03d", i+1), done: make(chan struct{}), has: map[string]bool{}}
		if adapt != nil {
			adapt(i, p)
		}
		w.hosts[p.name] = p
		addresses[p.name] = p.name
	}
	w.content.SetHosts(addresses)
	return w
}

// OpenBlob opens content whose bytes do not matter.
func (w *world) OpenBlob(string, int64) (io.ReadCloser, error) {
	return io.NopCloser(endless{}), nil
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// fetchBlob fetches a blob as a host does, and returns the time that this took.
func (p *player) fetchBlob(ctx context.Context, digest string, size int) (time.Duration, error) {
	start := time.Now()
	for range 10 {
		wish := p.w.content.Want(p, digest, int64(size))
		became, err := p.fetchOnce(ctx, wish, size)
		if became == remote.Whole {
			p.w.mu.Lock()
			p.has[digest] = true
			p.w.mu.Unlock()
		}
		wish.End(became)
		if err != nil || became == remote.Whole {
			return time.Since(start), err
		}
	}
	return 0, errors.New("it was lied to without end")
}

func (p *player) fetchOnce(ctx context.Context, wish remote.Wish, size int) (remote.Outcome, error) {
	lied := false
	for at := 0; ; {
		src, err := wish.Next(ctx, int64(at))
		if err != nil {
			return remote.Unknown, err
		}
		if src.Offer == nil {
			err := p.fromManager(ctx, src.Content, size-at)
			if err == nil && lied {
				return remote.Wrong, nil
			}
			return remote.Whole, err
		}
		n, lie := p.takeOffer(src.Offer, size-at)
		lied = lied || lie && n > 0
		if at += n; at == size {
			if lied {
				return remote.Wrong, nil
			}
			return remote.Whole, nil
		}
	}
}

func (p *player) fromManager(ctx context.Context, content io.ReadCloser, left int) error {
	w := p.w
	w.mu.Lock()
	w.busy++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.busy--
		w.mu.Unlock()
	}()
	if p.stalls {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	buf := make([]byte, 512<<10) // a host grants so much at once
	for left > 0 {
		n, err := content.Read(buf[:min(left, len(buf))])
		if err != nil {
			return err
		}
		left -= n
		w.mu.Lock()
		rate := w.uplink / w.busy
		w.mu.Unlock()
		if p.down > 0 {
			rate = min(rate, p.down)
		}
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
	return nil
}

// takeOffer is a transfer from another host, with its deadlines.
func (p *player) takeOffer(o *remote.Offer, left int) (n int, lie bool) {
	w := p.w
	w.mu.Lock()
	g := w.hosts[w.loans[string(o.Token)]]
	delete(w.loans, string(o.Token))
	w.mu.Unlock()
	if g == nil {
		w.t.Error("an offer without a loan")
		return 0, false
	}
	if g.zone != p.zone {
		time.Sleep(3 * time.Second)
		return 0, false
	}
	w.mu.Lock()
	w.giving[g.name]++
	w.most = max(w.most, w.giving[g.name])
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.giving[g.name]--
		w.mu.Unlock()
	}()
	if n = left; g.breaks > 0 {
		n = min(n, g.breaks)
	}
	rate := 100 * mega / remote.LoansAtOnce
	if g.slow > 0 {
		rate = g.slow
	}
	time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	return n, g.lies
}

// fetchAll lets all hosts fetch blobs of these sizes, one after the other, and returns
// the longest time that this took.
func (w *world) fetchAll(hosts []*player, sizes ...int) (longest time.Duration) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, p := range hosts {
		wg.Go(func() {
			start := time.Now()
			for i, size := range sizes {
				if _, err := p.fetchBlob(w.t.Context(), fmt.Sprintf("blob-%d", i), size); err != nil {
					w.t.Errorf("%s: %v", p.name, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(start))
		})
	}
	wg.Wait()
	return longest
}

func (w *world) listPlayers() (all []*player) {
	for i := range len(w.hosts) {
		all = append(all, w.hosts[fmt.Sprintf("h%03d", i+1)])
	}
	return all
}

// checkIdle wants nothing left that is given or waited for.
func (w *world) checkIdle() {
	w.t.Helper()
	c := w.content
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		if h.giving != 0 {
			w.t.Errorf("%s still gives %d", h.name, h.giving)
		}
	}
	for digest, b := range c.blobs {
		if len(b.waiting)+len(b.sends) > 0 {
			w.t.Errorf("%s: %d wait, %d are sent to", digest, len(b.waiting), len(b.sends))
		}
	}
}

// TestSpread_ReachesManyHosts fetches the same on many hosts at once.
func TestSpread_ReachesManyHosts(t *testing.T) {
	bundle := []int{40 * mega, 30 * mega, 10 * mega, 3 * mega, mega}
	tests := []struct {
		name, reason string
		hosts        int
		adapt        func(i int, p *player)
		sizes        []int
		copies       float64 // that the manager sends at most, of all
		within       time.Duration
	}{
		{"one", "there is nobody else", 1, nil, bundle, 1, 9 * time.Second},
		{"two", "one after the other", 2, nil, bundle, 1, 12 * time.Second},
		{"ten", "the first is ahead of the others", 10, nil, bundle, 1, 15 * time.Second},
		{"fifty", "as ten", 50, nil, bundle, 1, 20 * time.Second},
		{"a thousand", "as fifty", 1000, nil, bundle, 1, 30 * time.Second},
		{"small ones", "they are not worth the way", 10, nil, []int{2_000}, 10, time.Second},
		{
			"firewalls everywhere", "it is as if each were alone, a few seconds later", 10,
			func(i int, p *player) { p.zone = p.name },
			[]int{10 * mega, 10 * mega},
			10, 32 * time.Second,
		},
		{
			"the first behind a firewall", "others find each other", 20,
			func(i int, p *player) { p.zone = map[bool]string{true: "away"}[i == 0] }, bundle, 2, 45 * time.Second,
		},
		{
			"two places", "hosts find those that they reach", 20,
			func(i int, p *player) { p.zone = fmt.Sprint(i % 2) }, bundle, 2, 45 * time.Second,
		},
		{
			"all break off", "what came is gone on from", 4,
			func(i int, p *player) { p.breaks = 5 * mega },
			[]int{10 * mega},
			3, 20 * time.Second,
		},
		{
			"a liar", "others are asked", 10,
			func(i int, p *player) { p.lies = i == 0 },
			[]int{10 * mega},
			3, 20 * time.Second,
		},
		{
			"all lie", "the manager does not", 5,
			func(i int, p *player) { p.lies = true },
			[]int{mega},
			8, 20 * time.Second,
		},
		{
			"nobody lends", "it is as if each were alone", 10,
			func(i int, p *player) { p.shut = true },
			[]int{10 * mega},
			10, 12 * time.Second,
		},
		{
			"a slow first", "a second is sent to", 10,
			func(i int, p *player) { p.down = map[bool]int{true: mega / 10}[i == 0] },
			[]int{10 * mega},
			2, 105 * time.Second,
		},
		{
			"a slow uplink", "what is slow gets on all the same: more copies would only be slower", 10,
			func(_ int, p *player) { p.w.uplink, p.late = mega/4, 10*time.Second },
			[]int{10 * mega, 10 * mega},
			2, 300 * time.Second,
		},
		{
			"a giver that is slow", "the manager helps out", 10,
			func(i int, p *player) { p.slow = map[bool]int{true: mega / 10}[i == 0] },
			[]int{20 * mega},
			3, 210 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tt.hosts, tt.adapt)
				took := w.fetchAll(w.listPlayers(), tt.sizes...)
				total := 0
				for _, n := range tt.sizes {
					total += n
				}
				copies := float64(w.content.BytesSent()) / float64(total)
				if copies > tt.copies || took > tt.within {
					t.Errorf("the manager sent %.2f times all, want at most %.2f; it took %s, want at most %s: %s",
						copies, tt.copies, took, tt.within, tt.reason)
				}
				if w.most > remote.LoansAtOnce {
					t.Errorf("a host gave %d at once, want at most %d", w.most, remote.LoansAtOnce)
				}
				w.checkIdle()
			})
		})
	}
}

// TestSpread_IgnoresAStalledHost: a host that reads nothing from the manager does not delay others.
func TestSpread_IgnoresAStalledHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, func(i int, p *player) { p.stalls = i == 0 })
		all := w.listPlayers()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = all[0].fetchBlob(ctx, "blob-0", 10*mega) })
		synctest.Wait()
		if took := w.fetchAll(all[1:], 10*mega); took > hedge+5*time.Second {
			t.Errorf("the others took %s", took)
		}
		cancel()
		wg.Wait()
		w.checkIdle()
	})
}

// TestSpread_DropsCancelledRequests: hosts that gave up their requests do not delay others.
func TestSpread_DropsCancelledRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, nil)
		all := w.listPlayers()
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		var wg sync.WaitGroup
		for _, p := range all[:8] {
			wg.Go(func() {
				if _, err := p.fetchBlob(ctx, "blob-0", 100*mega); !errors.Is(err, enough) && err != nil {
					t.Errorf("%s: %v", p.name, err)
				}
			})
		}
		time.Sleep(2 * time.Second)
		cancel(enough)
		wg.Wait()
		w.checkIdle()
		w.fetchAll(all[8:], 100*mega)
		w.checkIdle()
	})
}

// TestSpread_SurvivesATakerThatEnds: a receiver that ends during its request has no effect on the
// lending host.
func TestSpread_SurvivesATakerThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, func(_ int, p *player) { p.late = time.Second })
		all := w.listPlayers()
		w.fetchAll(all[:1], mega)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err := all[1].fetchBlob(ctx, "blob-0", mega); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
		w.checkIdle()
		w.fetchAll(all[2:], mega)
		if got := w.content.BytesSent(); got != mega {
			t.Errorf("the manager sent %d bytes, want one copy", got)
		}
	})
}

// TestSpread_DropsHostsWithoutSession: a host whose session is over lends nothing; in its next session it
// lends again.
func TestSpread_DropsHostsWithoutSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, nil)
		all := w.listPlayers()
		w.fetchAll(all[:1], mega)
		close(all[0].done)
		w.fetchAll(all[1:2], mega)
		if got := w.content.BytesSent(); got != 2*mega {
			t.Errorf("the manager sent %d bytes, want two copies", got)
		}
		w.fetchAll(all[2:], mega)
		if got := w.content.BytesSent(); got != 2*mega {
			t.Errorf("the manager sent %d bytes, want two copies", got)
		}
	})
}

// known is a manager's content that has one blob alone.
type known string

func (k known) OpenBlob(digest string, _ int64) (io.ReadCloser, error) {
	if digest != string(k) {
		return nil, errors.New("there is none")
	}
	return io.NopCloser(endless{}), nil
}

// TestWant_ForgetsUnknownBlobs: what a host asks for that the manager has not is not remembered.
func TestWant_ForgetsUnknownBlobs(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.content.of = known("real")
	p := w.listPlayers()[0]
	for i := range 1000 {
		p.w.content.Want(p, fmt.Sprint("made up ", i), mega).End(remote.Unknown)
	}
	p.w.content.Want(p, "real", mega).End(remote.Unknown)
	if n := len(w.content.blobs); n != 1 {
		t.Errorf("%d blobs are remembered, want the one that there is", n)
	}
}

// TestSpread_ResistsFalseReports: a host that reports failures of others does not make other hosts
// avoid them.
func TestSpread_ResistsFalseReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, nil)
		giver, liar := w.content.hosts["h001"], w.content.hosts["h002"]
		w.fetchAll(w.listPlayers()[:1], mega, mega, mega, mega) // h001 has them
		for i := range 2 * giverStrikes {
			wish := w.content.Want(w.hosts[liar.name], fmt.Sprintf("blob-%d", i), mega)
			for at := int64(0); at < 2; at++ {
				if _, err := wish.Next(t.Context(), at); err != nil {
					t.Fatal(err)
				}
			}
			wish.End(remote.Wrong)
			liar.strikes, liar.blames = 0, 0 // it knows how to be asked again
		}
		if giver.freeSlots() != remote.LoansAtOnce {
			t.Errorf("%s may give to %d", giver.name, giver.freeSlots())
		}
	})
}
