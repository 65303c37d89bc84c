package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// ErrGone is the cause of a context that ended because the manager went away:
// interruptible work ends, uninterruptible work continues without the helper.
var ErrGone = errors.New("the connection to the manager is closed")

// ErrCancelled is the cause of a context that the manager cancelled: the manager waits
// for the answer.
var ErrCancelled = errors.New("cancelled by the manager")

// leaveGrace is how long the work of a session can take to end after it.
const leaveGrace = 10 * time.Second

// A Handler executes the requests of the manager.
type Handler interface {
	// Check and Apply work as in remote.Host. Apply is called for one batch at a time.
	Check(ctx context.Context, ops op.List) []op.Result
	Apply(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result
	remote.Locker
	// Run works as in remote.Worker.
	Run(ctx context.Context, c remote.Command, in io.Reader, out, errw io.Writer) (int, error)
	// Copy runs a copy in the protocol of package node/transfer, which also reports its
	// errors.
	Copy(ctx context.Context, c remote.Copy, conn io.ReadWriter) error
	// Lend works as in remote.Lender; only the port and the certificate of the offer are
	// used. EndLoans ends all loans, at once and permanently.
	Lend(ctx context.Context, l remote.Loan) (remote.Offer, error)
	EndLoans()
}

// A Server is the helper's side.
type Server struct {
	// Handler returns the handler of a session, with its source of blobs.
	Handler func(Fetcher) Handler
}

// Serve serves one manager over rw until it says goodbye (nil), the connection ends, or
// ctx ends. Running work is then cancelled and gets some seconds to end. Serve takes
// ownership of rw, whose Close must end a blocked Read and Write.
func (srv Server) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	if err := shakeHands(ctx, rw, rw); err != nil {
		return fmt.Errorf("shaking hands with the manager: %w", err)
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(ErrGone)
	s := &session{batches: make(chan struct{}, 1)}
	ready := make(chan struct{})
	s.m = newMux(rw, rw, 2, func(st *stream, raw []byte) {
		<-ready
		s.serveCall(work, st, raw)
	})
	s.handler = srv.Handler(fetcher{s.m})
	close(ready)
	select {
	case <-ctx.Done():
		s.m.closeSession()
	case <-s.m.done:
	}
	cancel(ErrGone)
	s.handler.EndLoans()
	s.waitForWork()
	var lost *LostError
	if err := s.m.lostError(); errors.As(err, &lost) && !errors.Is(err, errGoodbye) {
		return err
	}
	return context.Cause(ctx)
}

type session struct {
	m       *mux
	handler Handler
	batches chan struct{}
}

// waitForWork waits for the session's work, which was cancelled.
func (s *session) waitForWork() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.m.wg.Wait()
	}()
	t := time.NewTimer(leaveGrace)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	}
}

func parseHeader(raw []byte) (header, error) {
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, &ProtocolError{"malformed header of a stream"}
	}
	return h, nil
}

// serveCall executes one call and sends its result.
func (s *session) serveCall(ctx context.Context, st *stream, raw []byte) {
	defer func() { _ = st.Close() }()
	h, err := parseHeader(raw)
	if err != nil {
		s.m.failSession(err)
		return
	}
	if h.TimeoutMillis > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(h.TimeoutMillis)*time.Millisecond)
		defer cancel()
	}
	switch h.Call {
	case callDial:
		serveDial(ctx, st, h)
		return
	case callRun, callCopy:
		s.serveWork(ctx, st, h.Call)
		return
	}
	req, ok := readRequest(st)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		cancel(watchCaller(st))
	}()
	res, err := s.executeCall(ctx, h.Call, req, st)
	if err != nil {
		err = writeMessage(st, msgError, response{Error: err.Error()}, nil)
	} else {
		err = s.sendResult(st, res)
	}
	if err == nil {
		_ = st.CloseWrite()
		<-watched // until the caller has read the answer and closed the stream
		return
	}
	st.endWith(err)
	<-watched
}

// readRequest reads the request of a call. An invalid request gets an error as its
// answer.
func readRequest(st *stream) (req request, ok bool) {
	msg, err := readMessage(st)
	if err != nil {
		return req, false // the caller is gone
	}
	if err := msg.decodeInto(&req); err != nil || msg.kind != msgRequest {
		_ = writeMessage(st, msgError, response{Error: fmt.Sprintf("not a request: %v", err)}, nil)
		return req, false
	}
	return req, true
}

// sendResult sends the result, or why it cannot be sent.
func (s *session) sendResult(st *stream, res response) error {
	err := writeMessage(st, msgResult, res, nil)
	var lost *LostError
	if err == nil || errors.As(err, &lost) {
		return err
	}
	return writeMessage(st, msgError, response{Error: err.Error()}, nil)
}

// watchCaller reads data of the caller during a call and returns why the call must end.
func watchCaller(st *stream) error {
	msg, err := readMessage(st)
	if err == nil && msg.kind == msgCancel {
		// After this comes the end of the stream.
		return ErrCancelled
	}
	return ErrGone
}

// executeCall executes one call.
func (s *session) executeCall(ctx context.Context, call string, req request, st *stream) (response, error) {
	switch call {
	case callCheck:
		return response{Results: s.handler.Check(ctx, req.Ops)}, nil
	case callApply:
		select {
		case s.batches <- struct{}{}:
			defer func() { <-s.batches }()
		case <-ctx.Done():
			return response{}, context.Cause(ctx)
		}
		return response{Results: s.handler.Apply(ctx, req.Batch, newEmitter(st))}, nil
	case callReadLock:
		state, err := s.handler.ReadLock(ctx)
		return response{State: state}, err
	case callTakeLock:
		state, ok, err := s.handler.TakeLock(ctx, req.Lock, req.Breaking)
		return response{State: state, OK: ok}, err
	case callBeat:
		ok, err := s.handler.Beat(ctx, req.Lock)
		return response{OK: ok}, err
	case callRelease:
		return response{OK: true}, s.handler.ReleaseLock(ctx, req.Lock)
	case callLend:
		offer, err := s.handler.Lend(ctx, req.Loan)
		return response{Offer: &offer}, err
	}
	return response{}, fmt.Errorf("unknown call %q", call)
}

// newEmitter sends progress; it can be called concurrently.
func newEmitter(st *stream) func(remote.Progress) {
	var mu sync.Mutex
	return func(p remote.Progress) {
		mu.Lock()
		defer mu.Unlock()
		// Nothing reads it: the call's context has ended, too.
		_ = writeMessage(st, msgProgress, progress{Op: p.Op, Done: p.Done, Total: p.Total}, p.Output)
	}
}

// serveDial opens a connection from this host and joins it to the stream. The deadline in
// ctx applies only to the dial.
func serveDial(ctx context.Context, st *stream, h header) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, h.Network, h.Address)
	if err != nil {
		_ = writeMessage(st, msgError, response{Error: err.Error()}, nil)
		_ = st.CloseWrite()
		_, _ = io.Copy(io.Discard, st)
		return
	}
	defer func() { _ = conn.Close() }()
	if err := writeMessage(st, msgResult, response{OK: true}, nil); err != nil {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		if _, err := io.CopyBuffer(struct{ io.Writer }{st}, conn, make([]byte, maxPayload)); err != nil {
			st.resetWith(err)
			return
		}
		_ = st.CloseWrite()
	}()
	if _, err := io.Copy(conn, struct{ io.Reader }{st}); err != nil {
		_ = conn.Close()
	} else if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	<-back
}
