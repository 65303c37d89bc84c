package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
)

// handler is the helper's side, made of functions.
type handler struct {
	fetch wire.Fetcher
	check func(context.Context, op.List) []op.Result
	apply func(context.Context, remote.Batch, func(remote.Progress)) []op.Result
	lock  remote.Locker
	run   func(ctx context.Context, c remote.Command, in io.Reader, out, errw io.Writer) (int, error)
	copy  func(ctx context.Context, c remote.Copy, conn io.ReadWriter) error
	lend  func(ctx context.Context, l remote.Loan) (remote.Offer, error)
	ended chan struct{} // closed when loans end, if not nil
}

func (h handler) Lend(ctx context.Context, l remote.Loan) (remote.Offer, error) {
	return h.lend(ctx, l)
}

func (h handler) EndLoans() {
	if h.ended != nil {
		close(h.ended)
	}
}

func (h handler) Run(ctx context.Context, c remote.Command, in io.Reader, out, errw io.Writer) (int, error) {
	return h.run(ctx, c, in, out, errw)
}

func (h handler) Copy(ctx context.Context, c remote.Copy, conn io.ReadWriter) error {
	return h.copy(ctx, c, conn)
}

func (h handler) Check(ctx context.Context, ops op.List) []op.Result { return h.check(ctx, ops) }
func (h handler) Apply(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result {
	return h.apply(ctx, b, emit)
}

func (h handler) ReadLock(ctx context.Context) (remote.LockState, error) { return h.lock.ReadLock(ctx) }

func (h handler) TakeLock(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	return h.lock.TakeLock(ctx, l, breaking)
}

func (h handler) Beat(ctx context.Context, l remote.Lock) (bool, error) { return h.lock.Beat(ctx, l) }

func (h handler) ReleaseLock(ctx context.Context, l remote.Lock) error {
	return h.lock.ReleaseLock(ctx, l)
}

func resultsOf(ops op.List, s op.Status) []op.Result {
	out := make([]op.Result, len(ops))
	for i, o := range ops {
		out[i] = op.Result{Kind: o.Kind(), Target: o.Target(), Status: s}
	}
	return out
}

// connectPipe joins a client and a server; served has what Serve returned.
func connectPipe(t *testing.T, h handler, blobs remote.Blobs, hear ...func(wire.Fetcher)) (c *wire.Client,
	theirs net.Conn, served chan error,
) {
	t.Helper()
	a, b := net.Pipe()
	served = make(chan error, 1)
	go func() {
		served <- wire.Server{Handler: func(f wire.Fetcher) wire.Handler {
			h := h
			h.fetch = f
			for _, hear := range hear {
				hear(f)
			}
			if h.apply == nil {
				h.apply = func(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result {
					return applyBlobs(ctx, f, b, emit)
				}
			}
			return h
		}}.Serve(context.WithoutCancel(t.Context()), b)
	}()
	c, err := wire.NewClient(t.Context(), "h1", a, nil, blobs)
	if err != nil {
		t.Fatal(err)
	}
	return c, b, served
}

func finishSession(t *testing.T, c *wire.Client, served chan error) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("the server ended with %v after a goodbye", err)
	}
}

func TestCheckAndApply_ReturnResults(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000) // 1.6 MB: more than any window
	batch := remote.Batch{Operation: "o1", Step: "s1", Cluster: "c", Fence: 3, Ops: op.List{op.File{Path: "/f", Content: big}, op.SwapOff{}}}
	h := handler{
		check: func(_ context.Context, ops op.List) []op.Result { return resultsOf(ops, op.Changed) },
		apply: func(_ context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result {
			if !reflect.DeepEqual(batch, b) { // too big to find a difference
				t.Error("the batch arrives differently")
			}
			emit(remote.Progress{Op: 1, Output: big})
			emit(remote.Progress{Op: 1, Done: 3, Total: 9})
			out := resultsOf(b.Ops, op.Changed)
			out[0].Output = big
			return out
		},
	}
	c, _, served := connectPipe(t, h, nil)
	defer finishSession(t, c, served)
	got, err := c.Check(t.Context(), op.List{op.SwapOff{}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(resultsOf(op.List{op.SwapOff{}}, op.Changed), got); diff != "" {
		t.Error(diff)
	}
	var told []remote.Progress
	got, err = c.Apply(t.Context(), batch, func(p remote.Progress) { told = append(told, p) })
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || !bytes.Equal(got[0].Output, big) {
		t.Error("the results arrive differently")
	}
	want := []remote.Progress{{Op: 1, Output: big}, {Op: 1, Output: []byte{}, Done: 3, Total: 9}}
	if !reflect.DeepEqual(want, told) {
		t.Error("the progress arrives differently")
	}
}

func TestCheck_RunsDuringABatch(t *testing.T) {
	// Batches run one after another, also of two clients of one helper's
	// session; checks do not wait for them.
	var mu sync.Mutex
	running := 0
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	h := handler{
		check: func(_ context.Context, ops op.List) []op.Result { return resultsOf(ops, op.Unchanged) },
		apply: func(_ context.Context, b remote.Batch, _ func(remote.Progress)) []op.Result {
			mu.Lock()
			running++
			if running > 1 {
				t.Error("two batches run at once")
			}
			mu.Unlock()
			entered <- struct{}{}
			<-leave
			mu.Lock()
			running--
			mu.Unlock()
			return resultsOf(b.Ops, op.Changed)
		},
	}
	c, _, served := connectPipe(t, h, nil)
	defer finishSession(t, c, served)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := c.Apply(t.Context(), remote.Batch{Ops: op.List{op.SwapOff{}}}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	for range 20 {
		if _, err := c.Check(t.Context(), op.List{op.SwapOff{}}); err != nil {
			t.Error(err)
		}
	}
	close(leave)
	wg.Wait()
}

func TestCancel_WaitsForTheBatch(t *testing.T) {
	// The client cancels a batch on the host and waits for its answer: a step must not
	// stop halfway.
	started := make(chan struct{})
	h := handler{apply: func(ctx context.Context, b remote.Batch, _ func(remote.Progress)) []op.Result {
		close(started)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), wire.ErrCancelled) {
			t.Errorf("the batch ended because of %v", context.Cause(ctx))
		}
		out := resultsOf(b.Ops, op.Changed)
		out[1] = op.Result{Status: op.Failed, Error: &op.Error{Reason: "Interrupted"}}
		return out
	}}
	c, _, served := connectPipe(t, h, nil)
	defer finishSession(t, c, served)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	got, err := c.Apply(ctx, remote.Batch{Ops: op.List{op.SwapOff{}, op.RestoreHost{}}}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	if len(got) != 2 || got[0].Status != op.Changed {
		t.Errorf("what was done before is lost: %v", got)
	}
}

func TestDeadline_ReachesTheHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler{check: func(ctx context.Context, ops op.List) []op.Result {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the helper does not know how long the manager waits")
			}
			<-ctx.Done()
			return resultsOf(ops, op.Failed)
		}}
		c, _, served := connectPipe(t, h, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Check(ctx, op.List{op.SwapOff{}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call ended with %v", err)
		}
		finishSession(t, c, served)
	})
}

func TestCheck_ReturnsWhenTheHelperHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := handler{check: func(_ context.Context, ops op.List) []op.Result {
			<-release
			return resultsOf(ops, op.Failed)
		}}
		c, _, served := connectPipe(t, h, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Check(ctx, op.List{op.SwapOff{}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call ended with %v", err)
		}
		close(release)
		finishSession(t, c, served)
	})
}

func TestCall_ReportsLostConnection(t *testing.T) {
	started := make(chan struct{})
	ended := make(chan error, 1)
	h := handler{apply: func(ctx context.Context, b remote.Batch, _ func(remote.Progress)) []op.Result {
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return resultsOf(b.Ops, op.Failed)
	}}
	c, theirs, served := connectPipe(t, h, nil)
	go func() { <-started; _ = theirs.Close() }()
	_, err := c.Apply(t.Context(), remote.Batch{Ops: op.List{op.SwapOff{}}}, nil)
	var lost *wire.LostError
	if !errors.As(err, &lost) {
		t.Errorf("a lost connection is %v", err)
	}
	if err := <-ended; !errors.Is(err, wire.ErrGone) {
		t.Errorf("the helper's work ended because of %v", err)
	}
	if err := <-served; err == nil {
		t.Error("the server takes a lost connection for a goodbye")
	}
	if _, err := c.Check(t.Context(), nil); !errors.As(err, &lost) {
		t.Errorf("a call after that is %v", err)
	}
	_ = c.Close()
}

// deaf is a connection that ends for its writer first, the way an SSH channel
// does: with io.EOF.
type deaf struct {
	net.Conn
	gone atomic.Bool
}

func (d *deaf) Write(p []byte) (int, error) {
	if d.gone.Load() {
		return 0, io.EOF
	}
	return d.Conn.Write(p)
}

func TestWrite_ReportsLostConnection(t *testing.T) {
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- wire.Server{Handler: func(wire.Fetcher) wire.Handler { return handler{} }}.Serve(context.WithoutCancel(t.Context()), b)
	}()
	conn := &deaf{Conn: a}
	c, err := wire.NewClient(t.Context(), "h1", conn, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.gone.Store(true)
	var lost *wire.LostError
	if _, err := c.Check(t.Context(), nil); !errors.As(err, &lost) || errors.Is(err, io.EOF) {
		t.Errorf("a connection that takes no more is %v: the end of a stream, and no lost connection", err)
	}
	<-served
	_ = c.Close()
}

func TestHalfOpen_IsDetectedByBothSides(t *testing.T) {
	// The network fails without an error: both sides detect it.
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		near, far := net.Pipe()
		hole := make(chan struct{})
		pumpUntil(hole, b, far)
		pumpUntil(hole, far, b)
		served := make(chan error, 1)
		gone := make(chan error, 1)
		go func() {
			served <- wire.Server{Handler: func(wire.Fetcher) wire.Handler {
				return handler{apply: func(ctx context.Context, b remote.Batch, _ func(remote.Progress)) []op.Result {
					<-ctx.Done()
					gone <- context.Cause(ctx)
					return resultsOf(b.Ops, op.Failed)
				}}
			}}.Serve(t.Context(), near)
		}()
		c, err := wire.NewClient(t.Context(), "h1", a, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		go func() {
			time.Sleep(10 * time.Minute) // a quiet session is kept
			close(hole)
		}()
		_, err = c.Apply(t.Context(), remote.Batch{Ops: op.List{op.SwapOff{}}}, nil)
		var lost *wire.LostError
		if !errors.As(err, &lost) {
			t.Errorf("a silent peer is %v", err)
		}
		if took := time.Since(start) - 10*time.Minute; took < 0 || took > 45*time.Second {
			t.Errorf("a silent peer is noticed after %s", took)
		}
		if err := <-gone; !errors.Is(err, wire.ErrGone) {
			t.Errorf("the helper's work ended because of %v", err)
		}
		<-served
		_ = c.Close()
		_, _ = b.Close(), far.Close()
	})
}

// pumpUntil copies until the hole opens; from then on it swallows.
func pumpUntil(hole chan struct{}, to io.Writer, from io.Reader) {
	go func() {
		buf := make([]byte, 100<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			select {
			case <-hole:
			default:
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
		}
	}()
}

func TestHandshake_RejectsOtherPrograms(t *testing.T) {
	tests := map[string]struct{ reason, says, want string }{
		"garbage":       {"a shell's error is not a helper", "sh: 1: slipway-node: not found\n", "protocol error"},
		"nothing":       {"a helper that ends at once", "", "EOF"},
		"other version": {"another protocol is refused", "\x00\x00\x00\x10\x01\x00\x00\x00\x00{\"protocol\":999}", "protocol version 999"},
		"no hello":      {"something else first", "\x00\x00\x00\x00\x07\x00\x00\x00\x00", "did not send its hello"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, b) }()
			go func() {
				_, _ = io.WriteString(b, tt.says)
				_ = b.Close()
			}()
			_, err := wire.NewClient(t.Context(), "h1", a, nil, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", tt.reason, err)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer b.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := wire.NewClient(ctx, "h1", a, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a helper that says nothing: %v", err)
			}
		})
	})
}

func TestLocks_PassThrough(t *testing.T) {
	want := remote.Lock{Operation: "o", Manager: "m", Fence: 4, By: "b", Process: "p", Server: "s", Over: "q"}
	fake := &locks{state: remote.LockState{Held: true, Holder: want, Highest: 4, Units: []string{"u"}}}
	c, _, served := connectPipe(t, handler{lock: fake}, nil)
	defer finishSession(t, c, served)
	if st, err := c.ReadLock(t.Context()); err != nil || !cmp.Equal(st, fake.state) {
		t.Errorf("ReadLock: %v, %v", st, err)
	}
	if st, ok, err := c.TakeLock(t.Context(), want, true); err != nil || !ok || !cmp.Equal(st, fake.state) {
		t.Errorf("TakeLock: %v, %v, %v", st, ok, err)
	}
	if ok, err := c.Beat(t.Context(), want); err != nil || !ok {
		t.Errorf("Beat: %v, %v", ok, err)
	}
	if err := c.ReleaseLock(t.Context(), want); err == nil || err.Error() != "read-only file system" {
		t.Errorf("ReleaseLock: %v", err)
	}
	if diff := cmp.Diff([]string{"take {o m 4 b p s q} true", "beat {o m 4 b p s q}", "release {o m 4 b p s q}"}, fake.calls); diff != "" {
		t.Error(diff)
	}
}

type locks struct {
	state remote.LockState
	calls []string
}

func (l *locks) ReadLock(context.Context) (remote.LockState, error) { return l.state, nil }
func (l *locks) TakeLock(_ context.Context, lock remote.Lock, breaking bool) (remote.LockState, bool, error) {
	l.calls = append(l.calls, fmt.Sprint("take ", lock, " ", breaking))
	return l.state, true, nil
}

func (l *locks) Beat(_ context.Context, lock remote.Lock) (bool, error) {
	l.calls = append(l.calls, fmt.Sprint("beat ", lock))
	return true, nil
}

func (l *locks) ReleaseLock(_ context.Context, lock remote.Lock) error {
	l.calls = append(l.calls, fmt.Sprint("release ", lock))
	return errors.New("read-only file system")
}
