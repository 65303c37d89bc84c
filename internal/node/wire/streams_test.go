package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
)

// content is a remote.Blobs.
type content map[string][]byte

func (c content) OpenBlob(digest string, offset int64) (io.ReadCloser, error) {
	b, ok := c[digest]
	if !ok {
		return nil, fmt.Errorf("no blob %s", digest)
	}
	return io.NopCloser(bytes.NewReader(b[offset:])), nil
}

func applyBlobs(ctx context.Context, f wire.Fetcher, b remote.Batch, emit func(remote.Progress)) []op.Result {
	out := resultsOf(b.Ops, op.Changed)
	for i, o := range b.Ops {
		blob := o.(op.FetchBlob)
		r, err := f.FetchBlob(ctx, op.Blob{Digest: blob.Digest}, blob.Size)
		if err == nil {
			out[i].Output, err = io.ReadAll(r)
			_ = r.Close()
			emit(remote.Progress{Op: i, Done: int64(len(out[i].Output))})
		}
		if err != nil {
			out[i].Status, out[i].Error = op.Failed, &op.Error{Message: err.Error()}
		}
	}
	return out
}

func TestBlobs_ArriveComplete(t *testing.T) {
	big := bytes.Repeat([]byte("slipway!"), 1<<20)
	h := handler{}
	c, _, served := connectPipe(t, h, content{"sha256:big": big})
	defer finishSession(t, c, served)
	fetch := func(digest string, offset int64) op.Op {
		// The offset stands in Size here: the fake helper reads it so.
		return op.FetchBlob{Blob: op.Blob{Digest: digest, Size: offset}}
	}
	got, err := c.Apply(t.Context(),
		remote.Batch{Ops: op.List{fetch("sha256:big", 0), fetch("sha256:big", int64(len(big))-3), fetch("sha256:none", 0)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[0].Output, big) {
		t.Error("the blob arrives differently")
	}
	if string(got[1].Output) != "ay!" {
		t.Errorf("from its offset the blob is %q", got[1].Output)
	}
	if got[2].Error == nil || !strings.Contains(got[2].Error.Message, "no blob sha256:none") {
		t.Errorf("a blob that is not there: %v", got[2].Error)
	}
}

func TestSlowReader_DelaysNothing(t *testing.T) {
	// An unread blob fills only its window: other calls continue, and the manager does
	// not read ahead without limit.
	source := &counting{}
	opened := make(chan io.ReadCloser, 1)
	h := handler{
		check: func(_ context.Context, ops op.List) []op.Result { return resultsOf(ops, op.Unchanged) },
	}
	var fetch wire.Fetcher
	ready := make(chan struct{})
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- wire.Server{Handler: func(f wire.Fetcher) wire.Handler {
			fetch = f
			close(ready)
			return h
		}}.Serve(context.WithoutCancel(t.Context()), b)
	}()
	c, err := wire.NewClient(t.Context(), "h1", a, nil, source)
	if err != nil {
		t.Fatal(err)
	}
	<-ready
	r, err := fetch.FetchBlob(t.Context(), op.Blob{Digest: "sha256:endless"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	opened <- r
	for range 200 {
		if _, err := c.Check(t.Context(), op.List{op.SwapOff{}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := source.bytesRead(); n > 2<<20 {
		t.Errorf("%d bytes were read ahead of a reader that does not read", n)
	}
	if _, err := io.CopyN(io.Discard, r, 10<<20); err != nil {
		t.Errorf("reading on: %v", err)
	}
	_ = r.Close()
	finishSession(t, c, served)
	source.mu.Lock()
	defer source.mu.Unlock()
	if !source.closed {
		t.Error("the manager keeps a blob open that nobody wants any more")
	}
}

// counting is an endless blob.
type counting struct {
	mu     sync.Mutex
	n      int64
	closed bool
}

func (c *counting) OpenBlob(string, int64) (io.ReadCloser, error) { return c, nil }
func (c *counting) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(len(p))
	return len(p), nil
}

func (c *counting) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *counting) bytesRead() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func TestDial_ReturnsAConnection(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	c, _, served := connectPipe(t, handler{}, nil)
	defer finishSession(t, c, served)
	conn, err := c.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("echo"), 1<<20)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(sent), err)
	}
	_ = conn.Close()

	conn, err = c.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var network net.Error
	if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("after its deadline a read is %v", err)
	}
	_ = conn.Close()
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("a closed connection can be written to")
	}

	_ = l.Close()
	if _, err := c.DialContext(t.Context(), "tcp", l.Addr().String()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("where nothing listens: %v", err)
	}
}
