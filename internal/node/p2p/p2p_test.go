package p2p

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/remote"
)

// newGiver holds content under the name "x".
func newGiver(t *testing.T, content []byte) *Lender {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	l := &Lender{}
	t.Cleanup(l.Close)
	if err := l.HoldFile("x", path); err != nil {
		t.Fatal(err)
	}
	// Held content needs its name no more.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return l
}

func lendContent(t *testing.T, l *Lender) remote.Offer {
	t.Helper()
	token := make(remote.Token, remote.TokenSize)
	_, _ = rand.Read(token)
	o, err := l.Lend(t.Context(), remote.Loan{Digest: "x", Address: "127.0.0.1", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	o.Token = token
	return o
}

// delivery is a manager that names hosts, and then sends.
type delivery struct {
	offers    []*remote.Offer // nil: the manager sends
	io.Reader                 // what it sends
	content   []byte
	asked     []int64
	lost      error // instead of an answer
}

func (d *delivery) Offer() *remote.Offer { return d.offers[0] }

func (d *delivery) Next(_ context.Context, offset int64) error {
	d.asked = append(d.asked, offset)
	d.offers = d.offers[1:]
	d.Reader = bytes.NewReader(d.content[offset:])
	return d.lost
}

var content = bytes.Repeat([]byte("slipway "), 100_000)

func TestReceive_UsesHostsThenManager(t *testing.T) {
	g := newGiver(t, content)
	lost := errors.New("the manager is gone")
	const size = 800_000
	gone := remote.Offer{Address: "127.0.0.1:1", Certificate: make([]byte, 32), Token: make(remote.Token, remote.TokenSize)}
	tests := map[string]struct {
		reason string
		offers []*remote.Offer
		offset int64
		lost   error
		shared bool
		asked  []int64
	}{
		"manager":      {"it needs no host", []*remote.Offer{nil}, 0, nil, false, nil},
		"host":         {"all comes from there", []*remote.Offer{new(lendContent(t, g))}, 0, nil, true, nil},
		"rest":         {"what is here is not sent again", []*remote.Offer{new(lendContent(t, g))}, 799_000, nil, true, nil},
		"another host": {"the next is asked", []*remote.Offer{&gone, new(lendContent(t, g))}, 5, nil, true, []int64{5}},
		"none":         {"the manager has the last word", []*remote.Offer{&gone, &gone, nil}, 5, nil, false, []int64{5, 5}},
		"no more":      {"a manager that is gone ends it", []*remote.Offer{&gone}, 0, lost, false, []int64{0}},
		"too far":      {"no host has more than there is", []*remote.Offer{new(lendContent(t, g)), nil}, 800_000 - 1, nil, true, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := &delivery{offers: tt.offers, content: content, lost: tt.lost, Reader: bytes.NewReader(content[tt.offset:])}
			var got bytes.Buffer
			shared, err := ReceiveContent(t.Context(), d, size, tt.offset, &got)
			if !errors.Is(err, tt.lost) || shared != tt.shared {
				t.Errorf("shared %t, %v; want %t, %v: %s", shared, err, tt.shared, tt.lost, tt.reason)
			}
			if tt.lost == nil && !bytes.Equal(got.Bytes(), content[tt.offset:]) {
				t.Errorf("%d bytes that are something else: %s", got.Len(), tt.reason)
			}
			if diff := cmp.Diff(tt.asked, d.asked); diff != "" {
				t.Errorf("asked again: %s\n%s", tt.reason, diff)
			}
		})
	}
}

// full is a disk that takes no more.
type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestReceive_EndsAtItsOwnErrors(t *testing.T) {
	d := &delivery{offers: []*remote.Offer{new(lendContent(t, newGiver(t, content)))}}
	if _, err := ReceiveContent(t.Context(), d, int64(len(content)), 0, full{}); !errors.Is(err, errFull) {
		t.Errorf("%v, want what the disk says", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	d = &delivery{offers: []*remote.Offer{new(lendContent(t, newGiver(t, content)))}}
	w := writer(func(p []byte) (int, error) { cancel(enough); return len(p), nil })
	if _, err := ReceiveContent(ctx, d, 1<<30, 0, w); !errors.Is(err, enough) || len(d.asked) > 0 {
		t.Errorf("%v, asked again %v, want why the context ended", err, d.asked)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestTokens_AreValidOnce: a token is good once, for a while, and no other is.
func TestTokens_AreValidOnce(t *testing.T) {
	g := newGiver(t, content)
	take := func(o remote.Offer) error {
		return useOffer(t.Context(), o, &sink{w: io.Discard}, int64(len(content)))
	}
	o := lendContent(t, g)
	other := o
	other.Certificate = bytes.Repeat([]byte{1}, 32)
	if err := take(other); err == nil || !strings.Contains(err.Error(), "not the host that the manager named") {
		t.Errorf("a host with another certificate: %v", err)
	}
	other = o
	other.Token = make(remote.Token, remote.TokenSize)
	if err := take(other); err == nil || !strings.Contains(err.Error(), "rejects") {
		t.Errorf("another token: %v", err)
	}
	if err := take(o); err != nil {
		t.Errorf("the token, which nobody has seen yet: %v", err)
	}
	if err := take(o); err == nil || !strings.Contains(err.Error(), "rejects") {
		t.Errorf("a token for the second time: %v", err)
	}
	old := lendContent(t, g)
	g.mu.Lock()
	for key, l := range g.loans {
		l.ends = time.Now().Add(-time.Second)
		g.loans[key] = l
	}
	g.mu.Unlock()
	if err := take(old); err == nil || !strings.Contains(err.Error(), "rejects") {
		t.Errorf("a token that is too old: %v", err)
	}
	late := lendContent(t, g)
	g.LetGo()
	if err := take(late); err == nil || !strings.Contains(err.Error(), "rejects") {
		t.Errorf("content that was let go: %v", err)
	}
	for _, tt := range []struct {
		name  string
		g     *Lender
		loan  remote.Loan
		fails bool
	}{
		{"let go", g, remote.Loan{Digest: "x", Address: "127.0.0.1", Token: late.Token}, false},
		{"never held", newGiver(t, content), remote.Loan{Digest: "y", Address: "127.0.0.1", Token: late.Token}, false},
		{"without a token", newGiver(t, content), remote.Loan{Digest: "x", Address: "127.0.0.1"}, true},
		{"at another's address", newGiver(t, content), remote.Loan{Digest: "x", Address: "192.0.2.1", Token: late.Token}, true},
		{"at all addresses", newGiver(t, content), remote.Loan{Digest: "x", Address: "0.0.0.0", Token: late.Token}, true},
		{"at no address", newGiver(t, content), remote.Loan{Digest: "x", Token: late.Token}, true},
		{"at a name", newGiver(t, content), remote.Loan{Digest: "x", Address: "localhost", Token: late.Token}, true},
	} {
		if o, err := tt.g.Lend(t.Context(), tt.loan); (err != nil) != tt.fails || o.Address != "" {
			t.Errorf("%s: %v, %v", tt.name, o, err)
		}
	}
}

// beginTransfer accepts an offer, reads no content, and returns the answer of the host.
func beginTransfer(t *testing.T, o remote.Offer) byte {
	t.Helper()
	conn, err := tls.Dial("tcp", o.Address, expectCertificate(o.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(append(append([]byte(nil), o.Token...), make([]byte, 8)...)); err != nil {
		t.Fatal(err)
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		t.Fatal(err)
	}
	return answer[0]
}

// TestLender_LimitsTransfers has one more come than are served at once, none of whom reads.
func TestLender_LimitsTransfers(t *testing.T) {
	g := newGiver(t, make([]byte, 64<<20)) // more than sockets hold
	var offers []remote.Offer
	for range remote.LoansAtOnce + 1 {
		offers = append(offers, lendContent(t, g))
	}
	for _, o := range offers[:remote.LoansAtOnce] {
		if got := beginTransfer(t, o); got != accepted {
			t.Fatalf("the host answers %d to one of the first", got)
		}
	}
	if got := beginTransfer(t, offers[remote.LoansAtOnce]); got != refused {
		t.Errorf("the host answers %d to one too many", got)
	}
}

// TestLender_LimitsStrangers: connections without a token do not keep others out for long, and
// their number is limited.
func TestLender_LimitsStrangers(t *testing.T) {
	g := newGiver(t, content)
	o := lendContent(t, g)
	for range 2 * maxConns {
		conn, err := net.Dial("tcp", o.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	end := time.Now().Add(10 * time.Second)
	for {
		err := useOffer(t.Context(), o, &sink{w: io.Discard}, int64(len(content)))
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("strangers keep others out: %v", err)
		}
		<-time.After(100 * time.Millisecond)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.conns); n > maxConns {
		t.Errorf("%d connections, want at most %d", n, maxConns)
	}
}

// TestClose_EndsAllTransfers ends everything at once.
func TestClose_EndsAllTransfers(t *testing.T) {
	g := newGiver(t, make([]byte, 64<<20))
	o := lendContent(t, g)
	broke := make(chan error, 1)
	started, closed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		w := writer(func(p []byte) (int, error) {
			once.Do(func() { close(started); <-closed })
			return len(p), nil
		})
		broke <- useOffer(t.Context(), o, &sink{w: w}, 64<<20)
	}()
	<-started
	g.Close()
	close(closed)
	if err := <-broke; err == nil {
		t.Error("a transfer goes on")
	}
	if conn, err := net.Dial("tcp", o.Address); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
	if err := g.HoldFile("x", os.DevNull); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it still holds: %v", err)
	}
	if _, err := g.Lend(t.Context(), remote.Loan{Digest: "x"}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it still lends: %v", err)
	}
}

// TestHold_LastsWhileContentIsRead: content is held as long as a host reads it, however slowly.
func TestHold_LastsWhileContentIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGiver(t, content)
		holds := func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.held["x"] != nil
		}
		ours, theirs := net.Pipe()
		defer theirs.Close()
		w := &pacedWriter{conn: ours, held: g.held["x"]}
		go func() {
			defer ours.Close()
			for range 2 * holdTime / paceTime {
				if _, err := w.Write(make([]byte, pace)); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		buf := make([]byte, pace)
		for {
			<-time.After(paceTime)
			if _, err := io.ReadFull(theirs, buf); err != nil {
				break
			}
			if !holds() {
				t.Fatal("content is let go that is being taken")
			}
		}
		<-time.After(holdTime)
		if synctest.Wait(); holds() {
			t.Error("content is held that nobody wants")
		}
	})
}

func TestToken_PrintsNothing(t *testing.T) {
	o := remote.Offer{Token: remote.Token("secret")}
	l := remote.Loan{Token: remote.Token("secret")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		said := fmt.Sprintf(verb+verb+verb, o, l, o.Token)
		for _, secret := range []string{"secret", "736563", "115 101"} {
			if strings.Contains(said, secret) {
				t.Errorf("%s prints the token: %s", verb, said)
			}
		}
	}
}
