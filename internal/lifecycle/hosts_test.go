package lifecycle

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/remote"
)

// A lingering is a connection that takes a second to close.
type lingering struct {
	remote.Host // nil: any other method ends the test
	err         error
}

func (l lingering) Close() error {
	<-time.After(time.Second)
	return l.err
}

// TestCloseAll_ClosesHostsInParallel: hosts are closed in parallel.
func TestCloseAll_ClosesHostsInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		hosts := []*engine.Host{{}, {Conn: lingering{err: broken}}} // there is no connection to the first
		for len(hosts) <= 3*hostconn.MaxParallel {
			hosts = append(hosts, &engine.Host{Conn: lingering{}})
		}
		start := time.Now()
		if err := closeAll(hosts); !errors.Is(err, broken) {
			t.Errorf("got %v, want the error of closing a host", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("%d hosts took %s to close, %d at a time", len(hosts)-1, took, hostconn.MaxParallel)
		}
	})
}

// A lends is a host that lends all content.
type lends struct {
	name string
	loan remote.Loan
}

func (l *lends) Name() string          { return l.name }
func (l *lends) Done() <-chan struct{} { return nil }

func (l *lends) Lend(_ context.Context, loan remote.Loan) (remote.Offer, error) {
	l.loan = loan
	return remote.Offer{Address: loan.Address + ":7"}, nil
}

// TestBundleContent_IsSharedByFirstHost: the first host gets content from the manager. The second one gets it
// from the first, at the address that hosts use.
func TestBundleContent_IsSharedByFirstHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	svc := w.service()
	var content atomic.Value
	svc.Connect = func(ctx context.Context, h v1alpha1.Host, o remote.Options) (remote.Host, error) {
		content.Store(o.Blobs)
		return w.Connect(ctx, h, o)
	}
	p := w.prepared(svc.Prepare(t.Context(), creating(w.Manifest()), nil)).(*prepared)
	bundle, err := p.bundle.Have(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := bundle.Component("etcd", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	next := func(by *lends) remote.Source {
		wish := content.Load().(remote.Spreader).Want(by, etcd.Digest, 1<<20)
		src, err := wish.Next(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		wish.End(remote.Whole)
		return src
	}
	first := &lends{name: "cp1"}
	if src := next(first); src.Content == nil || !src.Share {
		t.Errorf("the first host gets %+v, want content to share", src)
	} else if err := src.Content.Close(); err != nil {
		t.Error(err)
	}
	if src := next(&lends{name: "w1"}); src.Offer == nil || first.loan.Address != w.Hosts["cp1"].Address {
		t.Errorf("the second host gets %+v, want an offer of the first, which lends at %q", src, first.loan.Address)
	}
}
