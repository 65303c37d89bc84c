package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// checkGrace is how long a cancelled call, except a batch, can take to answer before its
// stream is closed.
const checkGrace = 10 * time.Second

// A Client is the manager's side of a session: a remote.Host that does not reconnect. Its
// errors wrap *LostError if the connection is lost.
type Client struct {
	name  string
	blobs remote.Blobs
	m     *mux
	// batches allows one batch at a time.
	batches chan struct{}
}

var (
	_ remote.Host   = (*Client)(nil)
	_ remote.Locker = (*Client)(nil)
)

// NewClient does the handshake over rw and starts a session with the helper of the host
// with this name. It takes ownership of rw, also after an error. r reads from rw,
// possibly buffered; nil means rw itself. blobs can be nil.
func NewClient(ctx context.Context, name string, rw io.ReadWriteCloser, r io.Reader, blobs remote.Blobs) (*Client, error) {
	if r == nil {
		r = rw
	}
	if err := shakeHands(ctx, rw, r); err != nil {
		return nil, fmt.Errorf("shaking hands with the helper: %w", err)
	}
	c := &Client{name: name, blobs: blobs, batches: make(chan struct{}, 1)}
	life := context.WithoutCancel(ctx) // a stream lasts as long as the session
	c.m = newMux(rw, r, 1, func(s *stream, raw []byte) { c.serveBlob(life, s, raw) })
	return c, nil
}

// shakeHands sends and receives a hello. On an error it closes rw.
func shakeHands(ctx context.Context, rw io.ReadWriteCloser, r io.Reader) error {
	stop := context.AfterFunc(ctx, func() { _ = rw.Close() })
	sent := make(chan error, 1)
	go func() { sent <- writeHello(rw) }()
	err := readHello(r)
	if err != nil {
		_ = rw.Close() // unblocks the writer
	}
	if serr := <-sent; err == nil {
		err = serr
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	_ = rw.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// Done is closed at the end of the session.
func (c *Client) Done() <-chan struct{} { return c.m.done }

// Name returns the name of the host.
func (c *Client) Name() string { return c.name }

// Check implements remote.Host.
func (c *Client) Check(ctx context.Context, ops op.List) ([]op.Result, error) {
	res, err := c.callHelper(ctx, callCheck, request{Ops: ops}, nil)
	return res.Results, err
}

// Apply implements remote.Host. When ctx ends, it cancels the batch on the helper and
// waits for its answer, because an uninterruptible step is not cancelled.
func (c *Client) Apply(ctx context.Context, b remote.Batch, sink func(remote.Progress)) ([]op.Result, error) {
	select {
	case c.batches <- struct{}{}:
		defer func() { <-c.batches }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.m.done:
		return nil, c.m.lostError()
	}
	if sink == nil {
		sink = func(remote.Progress) {}
	}
	res, err := c.callHelper(ctx, callApply, request{Batch: b}, sink)
	return res.Results, err
}

// ReadLock implements remote.Locker, and so do the next three methods.
func (c *Client) ReadLock(ctx context.Context) (remote.LockState, error) {
	res, err := c.callHelper(ctx, callReadLock, request{}, nil)
	return res.State, err
}

func (c *Client) TakeLock(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	res, err := c.callHelper(ctx, callTakeLock, request{Lock: l, Breaking: breaking}, nil)
	return res.State, res.OK, err
}

func (c *Client) Beat(ctx context.Context, l remote.Lock) (bool, error) {
	res, err := c.callHelper(ctx, callBeat, request{Lock: l}, nil)
	return res.OK, err
}

func (c *Client) ReleaseLock(ctx context.Context, l remote.Lock) error {
	_, err := c.callHelper(ctx, callRelease, request{Lock: l}, nil)
	return err
}

// Close ends the session, which stops the work of the helper, and closes the connection.
func (c *Client) Close() error {
	c.m.closeSession()
	c.m.wg.Wait()
	return nil
}

// callHelper makes one call. sink, if not nil, receives progress; Slipway waits for the end of
// such a call even after ctx has ended.
func (c *Client) callHelper(ctx context.Context, name string, req request, sink func(remote.Progress)) (response, error) {
	if err := ctx.Err(); err != nil {
		return response{}, context.Cause(ctx)
	}
	h := header{Call: name}.withDeadlineOf(ctx)
	s, err := c.m.openStream(h)
	if err != nil {
		return response{}, err
	}
	defer c.cancelWith(ctx, s, sink == nil)()
	if err := writeMessage(s, msgRequest, req, nil); err != nil {
		return response{}, orCause(ctx, err)
	}
	res, err := readResponse(s, sink)
	switch {
	case err != nil:
		return response{}, orCause(ctx, err)
	case ctx.Err() != nil && isUnfinished(res.Results):
		return res, context.Cause(ctx)
	}
	return res, nil
}

// orCause prefers the cause of ctx to the error of the call; a lost connection is
// returned as such.
func orCause(ctx context.Context, err error) error {
	var lost *LostError
	if ctx.Err() != nil && !errors.As(err, &lost) {
		return context.Cause(ctx)
	}
	return err
}

func isUnfinished(rs []op.Result) bool {
	return len(rs) == 0 || rs[len(rs)-1].Status == op.Failed
}

// cancelWith informs the helper when ctx ends. With bounded, it does not wait for a
// helper that does not answer soon after.
func (c *Client) cancelWith(ctx context.Context, s *stream, bounded bool) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		if err := writeMessage(s, msgCancel, struct{}{}, nil); err != nil || !bounded {
			return
		}
		t := time.NewTimer(checkGrace)
		defer t.Stop()
		select {
		case <-over:
		case <-t.C:
			s.resetWith(context.Cause(ctx))
		}
	}()
	return func() {
		close(over)
		// The call is over: this informs the helper, and unblocks a cancel that waits for
		// space in the window.
		_ = s.Close()
		<-ended
	}
}

// readResponse reads progress until the result.
func readResponse(s *stream, sink func(remote.Progress)) (response, error) {
	for {
		msg, err := readMessage(s)
		if errors.Is(err, io.EOF) {
			err = &ProtocolError{"a call without an answer"}
		}
		if err != nil {
			return response{}, err
		}
		switch msg.kind {
		case msgProgress:
			var p progress
			if err := msg.decodeInto(&p); err != nil {
				return response{}, err
			}
			if sink != nil {
				sink(remote.Progress{Op: p.Op, Done: p.Done, Total: p.Total, Output: msg.raw})
			}
		case msgResult:
			var res response
			err := msg.decodeInto(&res)
			return res, err
		case msgError:
			var res response
			if err := msg.decodeInto(&res); err != nil {
				return response{}, err
			}
			return response{}, errors.New(res.Error)
		default:
			return response{}, &ProtocolError{fmt.Sprintf("unexpected message of type %d", msg.kind)}
		}
	}
}

// DialContext implements remote.Host.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	h := header{Call: callDial, Network: network, Address: address}.withDeadlineOf(ctx)
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	s, err := c.m.openStream(h)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.resetWith(context.Cause(ctx)) })
	_, err = readResponse(s, nil)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("dialling %s from %s: %w", address, c.name, orCause(ctx, err))
	}
	return s, nil
}
