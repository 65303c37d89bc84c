//go:build linux

package helper

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// usual has sizes in the proportions of a bundle's blobs, but much smaller: a few blobs
// are most of the bytes. Tests of package p2p cover more and larger blobs.
var usual = []int{500_000, 200_000, 4_000, 500}

func TestFetch_SecondHostReadsFromFirst(t *testing.T) {
	f := newField(t, 2, false, nil)
	ops, total := f.shelf.fillWith(5<<20, 2_000)
	f.fetchBlobs(f.hosts[0], ops)
	f.wantSent(total, total)
	f.fetchBlobs(f.hosts[1], ops)
	f.wantSent(total+2_000, total+2_000) // a small one comes from the manager
	f.fetchAll(f.hosts, ops)
	f.wantSent(total+2_000, total+2_000) // all have all
}

// TestFetch_ManyHostsAtOnce lets all hosts request the same blobs at the same moment.
func TestFetch_ManyHostsAtOnce(t *testing.T) {
	for _, n := range []int{1, 2, 10, 50} {
		t.Run(fmt.Sprintf("%d hosts", n), func(t *testing.T) {
			f := newField(t, n, false, nil)
			ops, total := f.shelf.fillWith(usual...)
			f.fetchAll(f.hosts, ops)
			f.wantSent(total, 2*total)
		})
	}
}

// TestFetch_SingleHostKeepsNothing: a single host serves no other host, and keeps no
// content for others.
func TestFetch_SingleHostKeepsNothing(t *testing.T) {
	f := newField(t, 1, false, nil)
	ops, _ := f.shelf.fillWith(100_000)
	f.fetchBlobs(f.hosts[0], ops)
	o, err := f.hosts[0].lenderOf().Lend(t.Context(),
		remote.Loan{Digest: ops[0].(op.FetchBlob).Digest, Address: "127.0.0.1", Token: make(remote.Token, remote.TokenSize)})
	if err != nil || o.Address != "" {
		t.Errorf("a blob is held for nobody: %v, %v", o, err)
	}
}

// lendThroughProxy has a host's loans lead through a proxy that sees to what it gives.
func lendThroughProxy(t *testing.T, serve func(taker net.Conn, giver string)) func(*fieldHost) {
	return func(h *fieldHost) {
		if h.name != "h1" {
			return
		}
		h.bend = func(_ *fieldHost, _ remote.Loan, o remote.Offer) (remote.Offer, error) {
			listen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				return o, err
			}
			giver := o.Address
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					conn, err := listen.Accept()
					if err != nil {
						return
					}
					wg.Go(func() {
						defer conn.Close()
						serve(conn, giver)
					})
				}
			})
			t.Cleanup(func() {
				_ = listen.Close()
				wg.Wait()
			})
			o.Address = listen.Addr().String()
			return o, nil
		}
	}
}

// passBytes passes up to n bytes of what the giver says, does what is to be done then,
// and waits for the taker to hang up.
func passBytes(t *testing.T, taker net.Conn, giver string, n int64, then func()) {
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", giver)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(conn, taker)
		_ = conn.Close()
	})
	_, _ = io.CopyN(taker, conn, n)
	then()
	wg.Wait()
}

// TestFetch_WorksAroundBadGivers has a second host get everything although the first is of no
// use, without waiting long.
func TestFetch_WorksAroundBadGivers(t *testing.T) {
	big := []int{3 << 20}
	tests := map[string]struct {
		reason      string
		adapt       func(*fieldHost)
		least, most int64 // what the manager sends beyond one copy
		within      time.Duration
	}{
		"dies": {
			"what came is gone on from",
			lendThroughProxy(t, func(taker net.Conn, giver string) { passBytes(t, taker, giver, 1<<20, func() { _ = taker.Close() }) }),
			2 << 20, 3<<20 - 500_000, 10 * time.Second,
		},
		"closed": {"a port that nobody listens at says so", func(h *fieldHost) {
			h.bend = func(_ *fieldHost, _ remote.Loan, o remote.Offer) (remote.Offer, error) {
				o.Address = "127.0.0.1:1"
				return o, nil
			}
		}, 3 << 20, 3 << 20, 10 * time.Second},
		"silent": {
			"a host that sends nothing is waited for a few seconds",
			lendThroughProxy(t, func(taker net.Conn, _ string) { _, _ = io.Copy(io.Discard, taker) }), 3 << 20, 3 << 20, 25 * time.Second,
		},
		"another": {"who has another certificate is told no secret", func(h *fieldHost) {
			h.bend = func(_ *fieldHost, _ remote.Loan, o remote.Offer) (remote.Offer, error) {
				o.Certificate = make([]byte, 32)
				return o, nil
			}
		}, 3 << 20, 3 << 20, 10 * time.Second},
		"other token": {"what the host has not been told opens nothing", func(h *fieldHost) {
			h.bend = func(h *fieldHost, l remote.Loan, o remote.Offer) (remote.Offer, error) {
				conn, err := tls.Dial("tcp", o.Address, &tls.Config{InsecureSkipVerify: true})
				if err != nil {
					return o, err
				}
				defer conn.Close()
				_, err = conn.Write(append(l.Token, make([]byte, 8)...)) // another host was faster
				_, rerr := io.ReadFull(conn, make([]byte, 1))
				return o, errors.Join(err, rerr)
			}
		}, 3 << 20, 3 << 20, 10 * time.Second},
		"does not lend": {"another is looked for", func(h *fieldHost) {
			h.bend = func(*fieldHost, remote.Loan, remote.Offer) (remote.Offer, error) {
				return remote.Offer{}, errors.New("no")
			}
		}, 3 << 20, 3 << 20, 10 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newField(t, 2, false, tt.adapt)
			ops, total := f.shelf.fillWith(big...)
			f.fetchBlobs(f.hosts[0], ops)
			start := time.Now()
			f.fetchBlobs(f.hosts[1], ops)
			if took := time.Since(start); took > tt.within {
				t.Errorf("it took %s, want less than %s: %s", took, tt.within, tt.reason)
			}
			f.wantSent(total+tt.least, total+tt.most)
		})
	}
}

// TestFetch_DiscardsWrongContent: content that is not what it should be is thrown away, and had from
// elsewhere.
func TestFetch_DiscardsWrongContent(t *testing.T) {
	f := newField(t, 3, false, nil)
	ops, total := f.shelf.fillWith(1 << 20)
	f.fetchBlobs(f.hosts[0], ops)
	digest := ops[0].(op.FetchBlob).Digest
	file, err := os.OpenFile(f.hosts[0].blobPath(digest), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt([]byte("something else"), 500_000)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.fetchBlobs(f.hosts[1], ops)
	f.wantSent(2*total, 2*total)
	f.fetchBlobs(f.hosts[2], ops) // from the second
	f.wantSent(2*total, 2*total)
}

// TestFetch_StopsWithoutManager: a host that loses the manager closes its transfer from the other
// host.
func TestFetch_StopsWithoutManager(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	f := newField(t, 2, false, lendThroughProxy(t, func(taker net.Conn, giver string) {
		passBytes(t, taker, giver, 1<<20, func() { close(begun) })
		close(ended)
	}))
	ops, _ := f.shelf.fillWith(3 << 20)
	f.fetchBlobs(f.hosts[0], ops)
	failed := make(chan error, 1)
	go func() { failed <- f.applyOps(f.hosts[1], ops) }()
	<-begun
	f.hosts[1].server.CutConnections()
	if err := <-failed; err == nil {
		t.Error("a host that is cut off has all")
	}
	select {
	case <-ended:
	case <-time.After(4 * time.Second): // before the transfer's own time is over
		t.Error("a transfer outlives the session")
	}
}

// TestFetch_ResumesPartialContent: a transfer that was interrupted is resumed, from any source.
func TestFetch_ResumesPartialContent(t *testing.T) {
	f := newField(t, 2, false, nil)
	ops, total := f.shelf.fillWith(2 << 20)
	f.fetchBlobs(f.hosts[0], ops)
	digest := ops[0].(op.FetchBlob).Digest
	part := f.hosts[1].blobPath(digest) + ".part"
	f.fetchBlobs(f.hosts[1], op.List{f.shelf.addBlob([]byte("makes the directory"))})
	if err := os.WriteFile(part, f.shelf.blobs[digest][:1<<20], 0o600); err != nil {
		t.Fatal(err)
	}
	f.fetchBlobs(f.hosts[1], ops)
	f.wantSent(total, total+19)
}
