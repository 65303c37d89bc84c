package kube_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/conformance"
	"slipway.dev/slipway/internal/store/kube"
	"slipway.dev/slipway/internal/testutil/faultproxy"
)

// temporary are the faults that a store overcomes.
var temporary = []faultproxy.Fault{
	faultproxy.Conflict, faultproxy.Busy, faultproxy.Broken, faultproxy.Lost, faultproxy.Executed, faultproxy.Torn,
	faultproxy.Cut, faultproxy.Expired,
}

// newConfig returns the configuration of a store in a new namespace, with a client of the proxy.
func newConfig(t *testing.T, p *faultproxy.Proxy) kube.Config {
	t.Helper()
	dir := t.TempDir()
	return kube.Config{
		Client: p.Config(), Namespace: server.NewNamespace(t), BackupDir: filepath.Join(dir, "backups"), TempDir: dir,
		LeaseTime: 3 * time.Second, Patience: 20 * time.Second,
	}
}

// TestStore_ConformsInSpiteOfFaults runs the whole suite while one of four requests fails.
func TestStore_ConformsInSpiteOfFaults(t *testing.T) {
	const seed = 20261129
	p := faultproxy.New(t, server.Admin)
	var mu sync.Mutex
	chosen := map[faultproxy.Fault]int{}
	random := rand.New(rand.NewPCG(seed, 1))
	p.Inject(func(r *http.Request) faultproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(4) > 0 {
			return faultproxy.Pass
		}
		fits := slices.DeleteFunc(slices.Clone(temporary), func(f faultproxy.Fault) bool { return !f.Fits(r) })
		rarest := slices.MinFunc(fits, func(a, b faultproxy.Fault) int { return cmp.Compare(chosen[a], chosen[b]) })
		chosen[rarest]++
		return rarest
	})
	conformance.Run(t, func(t *testing.T) conformance.Subject { return newSubject(t, newConfig(t, p)) })
	for _, f := range temporary[:6] { // another test cuts watches
		if p.Hits(f) == 0 {
			t.Errorf("fault %s never happened", f)
		}
	}
}

// TestStore_ReportsFullServer requires a diagnostic with a hint at once: a full store does not get
// room by repeated requests.
func TestStore_ReportsFullServer(t *testing.T) {
	p := faultproxy.New(t, server.Admin)
	s := openStore(t, newConfig(t, p))
	o := beginOperation(t, s)
	j, err := s.Journals().Open(t.Context(), o.Name)
	if err != nil {
		t.Fatal(err)
	}
	p.Inject(func(*http.Request) faultproxy.Fault { return faultproxy.Full })
	for _, tc := range []struct {
		name string
		err  func() error
	}{
		{"operation", func() error { return s.Operations().Save(t.Context(), o) }},
		{"journal", func() error { return errors.Join(j.Append(event.Event{Type: event.Note}), j.Sync()) }},
		{"file", func() error { return s.ClusterFiles().Save(t.Context(), "prod", "registry.hashes", []byte("x")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.err()
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != "records-unwritable" || list[0].Hint == "" {
				t.Errorf("error %v, want a diagnostic with a hint", err)
			}
		})
	}
	if n := p.Hits(faultproxy.Full); n != 3 {
		t.Errorf("%d requests were refused, want one for each call", n)
	}
	p.Inject(nil)
	if err := s.Operations().Save(t.Context(), o); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := j.Append(event.Event{Type: event.Note}); err == nil {
		t.Error("a journal continued after a lost event")
	}
	if err := j.Close(); err != nil {
		t.Errorf("Close repeats the error: %v", err)
	}
}

// TestFollowEvents_ContinuesAfterCutWatches cuts watches, and refuses the versions of others.
func TestFollowEvents_ContinuesAfterCutWatches(t *testing.T) {
	p := faultproxy.New(t, server.Admin)
	c := newConfig(t, p)
	s := openStore(t, c)
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{})
	requireNoError(t, err)
	o := beginOperation(t, s)
	requireNoError(t, lock.SetHolder(t.Context(), records.Holder{Operation: o.Name}))
	watches := 0
	p.Inject(func(r *http.Request) faultproxy.Fault { // the follower is the only client with watches
		if !faultproxy.Cut.Fits(r) {
			return faultproxy.Pass
		}
		watches++
		return []faultproxy.Fault{faultproxy.Cut, faultproxy.Expired, faultproxy.Lost}[watches%3]
	})
	const events = 40
	seen := make(chan int64, events+1)
	ended := make(chan error, 1)
	go func() {
		ended <- openStore(t, c).Journals().FollowEvents(t.Context(), o.Name, func(e event.Event) error { seen <- e.Seq; return nil })
	}()
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	for n := range int64(events) {
		requireNoError(t, j.Append(event.Event{Type: event.Note}))
		requireNoError(t, j.Sync())
		if n%8 == 0 {
			for got := range seen { // so that several watches see events
				if got == n+1 {
					break
				}
			}
		}
	}
	requireNoError(t, j.Append(event.Event{Type: event.OperationFinished}))
	requireNoError(t, j.Close())
	requireNoError(t, <-ended)
	close(seen)
	var last int64
	for last = range seen {
	}
	if last != events+1 {
		t.Errorf("the last event was %d, want %d", last, events+1)
	}
	for _, f := range []faultproxy.Fault{faultproxy.Cut, faultproxy.Expired, faultproxy.Lost} {
		if p.Hits(f) == 0 {
			t.Errorf("fault %s never happened", f)
		}
	}
	requireNoError(t, lock.Release())
}
