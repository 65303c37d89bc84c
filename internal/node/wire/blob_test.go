package wire_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
)

// spreader returns its offers for wishes; nil stands for the manager.
type spreader struct {
	content
	offers []*remote.Offer
	wished []wished
	ended  chan remote.Outcome
}

// wished is a call of Next.
type wished struct {
	By, Digest string
	Size, At   int64
}

func (s *spreader) Want(by remote.Lender, digest string, size int64) remote.Wish {
	return &scripted{s, wished{By: by.Name(), Digest: digest, Size: size}}
}

type scripted struct {
	s *spreader
	w wished
}

func (w *scripted) Next(ctx context.Context, offset int64) (remote.Source, error) {
	w.w.At = offset
	w.s.wished = append(w.s.wished, w.w)
	if len(w.s.offers) == 0 {
		<-ctx.Done()
		return remote.Source{}, context.Cause(ctx)
	}
	offer := w.s.offers[0]
	w.s.offers = w.s.offers[1:]
	if offer != nil {
		return remote.Source{Offer: offer, Share: true}, nil
	}
	c, err := w.s.OpenBlob(w.w.Digest, offset)
	return remote.Source{Content: c, Share: true}, err
}

func (w *scripted) End(o remote.Outcome) { w.s.ended <- o }

// newPair is a manager and a helper's way to it.
func newPair(t *testing.T, blobs remote.Blobs, h handler) (c *wire.Client, f wire.Fetcher, end func()) {
	t.Helper()
	got := make(chan wire.Fetcher, 1)
	c, _, served := connectPipe(t, h, blobs, func(f wire.Fetcher) { got <- f })
	return c, <-got, func() { finishSession(t, c, served) }
}

// TestBlob_OffersHostsThenManager sends a helper the offers of hosts, and finally the manager.
func TestBlob_OffersHostsThenManager(t *testing.T) {
	first := &remote.Offer{Address: "192.0.2.1:1", Certificate: []byte("c1"), Token: remote.Token("t1")}
	second := &remote.Offer{Address: "192.0.2.2:1", Certificate: []byte("c2"), Token: remote.Token("t2")}
	blob := op.Blob{Digest: "sha256:x", Size: 8}
	tests := map[string]struct {
		reason string
		offers []*remote.Offer
		fail   []int64 // how far each host that was of no use came
		says   remote.Outcome
		wished []int64
	}{
		"manager":      {"as if there were no others", []*remote.Offer{nil}, nil, remote.Whole, []int64{2}},
		"host":         {"it is told once", []*remote.Offer{first}, nil, remote.Whole, []int64{2}},
		"next host":    {"it goes on where the first left off", []*remote.Offer{first, second}, []int64{5}, remote.Whole, []int64{2, 5}},
		"then manager": {"it has the last word", []*remote.Offer{first, second, nil}, []int64{2, 5}, remote.Whole, []int64{2, 2, 5}},
		"wrong":        {"the manager hears of it", []*remote.Offer{first}, nil, remote.Wrong, []int64{2}},
		"given up":     {"who says nothing is gone", []*remote.Offer{first}, nil, remote.Unknown, []int64{2}},
		"backwards":    {"nobody loses what he has: that is no helper", []*remote.Offer{first, second}, []int64{1}, remote.Unknown, []int64{2}},
		"too far":      {"nobody has more than there is", []*remote.Offer{first, second}, []int64{9}, remote.Unknown, []int64{2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &spreader{content: content{"sha256:x": []byte("0123456789")[:8]}, offers: tt.offers, ended: make(chan remote.Outcome, 1)}
			_, f, end := newPair(t, s, handler{})
			defer end()
			d, err := f.FetchBlob(t.Context(), blob, 2)
			at := int64(2)
			for i := 0; err == nil && i < len(tt.fail); i++ {
				if diff := cmp.Diff(tt.offers[i], d.Offer()); diff != "" {
					t.Errorf("offer %d:\n%s", i+1, diff)
				}
				at = tt.fail[i]
				err = d.Next(t.Context(), at)
			}
			if refused := at < 2 || at > 8; refused != (err != nil) {
				t.Fatalf("%v: %s", err, tt.reason)
			}
			if err == nil && d.Offer() == nil {
				rest, err := io.ReadAll(io.LimitReader(d, 8-at))
				if err != nil || string(rest) != "01234567"[at:] {
					t.Errorf("the manager sends %q, %v", rest, err)
				}
			}
			if err == nil && !d.Share() {
				t.Error("the helper is not asked to hold the content")
			}
			if err == nil && tt.says != remote.Unknown {
				if err := d.End(tt.says); err != nil {
					t.Error(err)
				}
			}
			_ = d.Close()
			if got := <-s.ended; got != tt.says {
				t.Errorf("the manager hears %q, want %q: %s", got, tt.says, tt.reason)
			}
			var want []wished
			for _, at := range tt.wished {
				want = append(want, wished{"h1", "sha256:x", 8, at})
			}
			if diff := cmp.Diff(want, s.wished); diff != "" {
				t.Errorf("wishes: %s\n%s", tt.reason, diff)
			}
		})
	}
}

// TestWish_EndsWithContextOrConnection with the helper's context, and with the connection.
func TestWish_EndsWithContextOrConnection(t *testing.T) {
	s := &spreader{ended: make(chan remote.Outcome, 1)}
	c, f, _ := newPair(t, s, handler{})
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
	if _, err := f.FetchBlob(ctx, op.Blob{Digest: "sha256:x", Size: 8}, 0); !errors.Is(err, enough) {
		t.Errorf("%v, want why the context ended", err)
	}
	if got := <-s.ended; got != remote.Unknown {
		t.Errorf("the manager hears %q", got)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = c.Close() })
	if _, err := f.FetchBlob(t.Context(), op.Blob{Digest: "sha256:x", Size: 8}, 0); err == nil {
		t.Error("a wish outlives the connection")
	}
	<-s.ended
}

// TestLend_ReturnsTheOffer asks a helper to lend.
func TestLend_ReturnsTheOffer(t *testing.T) {
	loan := remote.Loan{Digest: "sha256:x", Address: "192.0.2.1", Token: remote.Token("a token")}
	var got remote.Loan
	answer := remote.Offer{Address: "203.0.113.9:7", Certificate: []byte("c")} // it may not send others elsewhere
	var fails error
	h := handler{lend: func(_ context.Context, l remote.Loan) (remote.Offer, error) {
		got = l
		return answer, fails
	}}
	h.ended = make(chan struct{})
	c, _, served := connectPipe(t, h, nil)
	offer, err := c.Lend(t.Context(), loan)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(loan, got); diff != "" {
		t.Errorf("the loan:\n%s", diff)
	}
	if diff := cmp.Diff(remote.Offer{Address: "192.0.2.1:7", Certificate: []byte("c"), Token: loan.Token}, offer); diff != "" {
		t.Errorf("the offer:\n%s", diff)
	}
	answer = remote.Offer{}
	if offer, err := c.Lend(t.Context(), loan); err != nil || offer.Address != "" {
		t.Errorf("%v, %v, want the offer of a host that holds nothing", offer, err)
	}
	fails = errors.New("it is not here")
	if _, err := c.Lend(t.Context(), loan); err == nil || !strings.Contains(err.Error(), "it is not here") {
		t.Errorf("%v, want what the host says", err)
	}
	finishSession(t, c, served)
	<-h.ended
	var lost *wire.LostError
	if _, err := c.Lend(t.Context(), loan); !errors.As(err, &lost) {
		t.Errorf("%v, want a connection that is lost", err)
	}
}

// TestLend_EndsWithItsContext ends with its context, although the host does not.
func TestLend_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler{lend: func(ctx context.Context, _ remote.Loan) (remote.Offer, error) {
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			return remote.Offer{}, ctx.Err()
		}}
		c, _, served := connectPipe(t, h, nil)
		defer finishSession(t, c, served)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := c.Lend(ctx, remote.Loan{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
			t.Errorf("%v after %s, want the end of the context", err, time.Since(start))
		}
	})
}
