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
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/remote"
)

// lingering is a connection whose end takes a second.
type lingering struct {
	remote.Host // nil: any other method ends the test
	err         error
}

func (l lingering) Close() error {
	<-time.After(time.Second)
	return l.err
}

// TestCloseAll: what one host takes to end is not taken as often as there are
// hosts.
func TestCloseAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		hosts := []*engine.Host{{}, {Conn: lingering{err: broken}}} // the first was never reached
		for len(hosts) <= 3*hostconn.MaxParallel {
			hosts = append(hosts, &engine.Host{Conn: lingering{}})
		}
		start := time.Now()
		if err := closeAll(hosts); !errors.Is(err, broken) {
			t.Errorf("got %v, want what closing one came to", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("%d hosts took %s to close, %d at a time", len(hosts)-1, took, hostconn.MaxParallel)
		}
	})
}

// lends is a host that lends whatever it is asked for.
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

// TestHostsShare: one host gets content from the manager, the next from the
// first, at the address by which hosts reach each other.
func TestHostsShare(t *testing.T) {
	w := newWorld(t, "cp1", "w1")
	svc := w.service()
	var content atomic.Value
	svc.Connect = func(ctx context.Context, h v1alpha1.Host, o remote.Options) (remote.Host, error) {
		content.Store(o.Blobs)
		return w.connect(ctx, h, o)
	}
	p := w.prepared(svc.Prepare(t.Context(), Request{Kind: operation.Create, Cluster: w.cluster()}, nil)).(*prepared)
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
		t.Errorf("the first host is told %+v, want content to share", src)
	} else if err := src.Content.Close(); err != nil {
		t.Error(err)
	}
	if src := next(&lends{name: "w1"}); src.Offer == nil || first.loan.Address != w.machines["cp1"].address {
		t.Errorf("the second is told %+v, want an offer of the first, which lends at %q", src, first.loan.Address)
	}
}
