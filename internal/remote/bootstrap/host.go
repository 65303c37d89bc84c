package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
)

// A Connector connects to the helper of a host. Errors are *remote.Error, or the error of
// ctx.
type Connector func(ctx context.Context) (*wire.Client, error)

// maxLosses limits how often one call can lose its connection: a request that kills the
// helper must not be repeated for ever. A connection that lasted for longLived does not
// count.
const (
	maxLosses = 5
	longLived = time.Minute
)

// Host is a remote.Host that reconnects.
type Host struct {
	name    string
	connect Connector
	opts    remote.Options

	// turn is held while the following fields are read or replaced.
	turn   chan struct{}
	client *wire.Client
	closed bool
	isLost bool // Notify was called for a lost connection

	done  chan struct{} // closed by Close
	leave sync.Once
}

var (
	_ remote.Host   = (*Host)(nil)
	_ remote.Locker = (*Host)(nil)
	_ remote.Worker = (*Host)(nil)
)

// Open connects to a host for the first time and returns it as a remote.Host and
// remote.Locker.
func Open(ctx context.Context, name string, connect Connector, opts remote.Options) (*Host, error) {
	client, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	return &Host{
		name: name, connect: connect, opts: opts.WithDefaults(), client: client,
		turn: make(chan struct{}, 1), done: make(chan struct{}),
	}, nil
}

// Name returns the name of the host.
func (h *Host) Name() string { return h.name }

// Check implements remote.Host.
func (h *Host) Check(ctx context.Context, ops op.List) ([]op.Result, error) {
	var out []op.Result
	err := h.callHelper(ctx, func(c *wire.Client, _ bool) (err error) {
		out, err = c.Check(ctx, ops)
		return err
	})
	return out, err
}

// Apply implements remote.Host. After a lost connection, the batch starts again at its
// first operation. Each operation is checked before it is applied, so a completed
// operation is unchanged, and Slipway attaches to a step that continued on the host.
func (h *Host) Apply(ctx context.Context, b remote.Batch, sink func(remote.Progress)) ([]op.Result, error) {
	var out []op.Result
	err := h.callHelper(ctx, func(c *wire.Client, _ bool) (err error) {
		out, err = c.Apply(ctx, b, sink)
		return err
	})
	return out, err
}

// DialContext implements remote.Host. If the session is lost, its open connections are
// lost as well.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var out net.Conn
	err := h.callHelper(ctx, func(c *wire.Client, _ bool) (err error) {
		out, err = c.DialContext(ctx, network, address)
		return err
	})
	return out, err
}

// ReadLock implements remote.Locker, and so do the next three methods.
func (h *Host) ReadLock(ctx context.Context) (remote.LockState, error) {
	var out remote.LockState
	err := h.callHelper(ctx, func(c *wire.Client, _ bool) (err error) {
		out, err = c.ReadLock(ctx)
		return err
	})
	return out, err
}

// TakeLock recognizes a lock that it has already taken if the answer was lost.
func (h *Host) TakeLock(ctx context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	var out remote.LockState
	var taken bool
	kept := l
	kept.Over = ""
	err := h.callHelper(ctx, func(c *wire.Client, again bool) (err error) {
		out, taken, err = c.TakeLock(ctx, l, breaking)
		taken = taken || again && err == nil && out.Held && out.Holder == kept
		return err
	})
	return out, taken, err
}

func (h *Host) Beat(ctx context.Context, l remote.Lock) (bool, error) {
	var ok bool
	err := h.callHelper(ctx, func(c *wire.Client, _ bool) (err error) {
		ok, err = c.Beat(ctx, l)
		return err
	})
	return ok, err
}

func (h *Host) ReleaseLock(ctx context.Context, l remote.Lock) error {
	return h.callHelper(ctx, func(c *wire.Client, _ bool) error { return c.ReleaseLock(ctx, l) })
}

// Run implements remote.Worker. It is not repeated, because the program may have run.
func (h *Host) Run(ctx context.Context, c remote.Command, in io.Reader, out, errw io.Writer) (int, error) {
	client, err := h.currentClient(ctx)
	if err != nil {
		return 0, err
	}
	code, err := client.Run(ctx, c, in, out, errw)
	return code, h.describeLostConnection(ctx, err)
}

// OpenCopy implements remote.Worker. If the session is lost, its open copies are lost as
// well.
func (h *Host) OpenCopy(ctx context.Context, c remote.Copy) (net.Conn, error) {
	var out net.Conn
	err := h.callHelper(ctx, func(cl *wire.Client, _ bool) (err error) {
		out, err = cl.OpenCopy(ctx, c)
		return err
	})
	return out, err
}

// describeLostConnection describes a lost connection; other errors are returned unchanged.
func (h *Host) describeLostConnection(ctx context.Context, err error) error {
	var lost *wire.LostError
	switch {
	case !errors.As(err, &lost):
		return h.describeMismatch(err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return h.lostError(err)
}

// Close stops the helper and closes the connection.
func (h *Host) Close() error {
	h.leave.Do(func() { close(h.done) })
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.closed {
		return nil
	}
	h.closed = true
	return h.client.Close()
}

// isClosing reports whether Close was called.
func (h *Host) isClosing() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// callHelper makes one call, on a new connection if the current one is lost. again reports
// whether an earlier attempt may have been executed.
func (h *Host) callHelper(ctx context.Context, do func(c *wire.Client, again bool) error) error {
	again := false
	for losses := 0; ; {
		client, err := h.currentClient(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		err = do(client, again)
		var lost *wire.LostError
		if !errors.As(err, &lost) {
			return h.describeMismatch(err)
		}
		again = true
		if h.isClosing() {
			return &remote.Error{Host: h.name, Reason: remote.ConnectionLost, Cause: "the connection was closed", Err: net.ErrClosed}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h.opts.Log.Debug("connection to a host lost", "host", h.name, "error", err)
		if losses++; time.Since(start) > longLived {
			losses = 0
		}
		if losses >= maxLosses || h.opts.Reconnect < 0 {
			return h.lostError(err)
		}
	}
}

// describeMismatch describes a violation of the protocol; other errors are returned unchanged.
func (h *Host) describeMismatch(err error) error {
	var breach *wire.ProtocolError
	if !errors.As(err, &breach) {
		return err
	}
	return &remote.Error{Host: h.name, Reason: remote.HelperFailed, Cause: breach.Error(), Remedy: "report this as a bug in slipway", Err: err}
}

func (h *Host) lostError(err error) *remote.Error {
	return &remote.Error{
		Host: h.name, Reason: remote.ConnectionLost, Cause: "the connection was lost: " + rootMessage(err),
		Remedy: "check the network and the host, and resume the operation", Err: err,
	}
}

// rootMessage returns the innermost message.
func rootMessage(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// currentClient returns a connection that is not known to be lost. If there is none, it dials
// for a limited time.
func (h *Host) currentClient(ctx context.Context) (*wire.Client, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if h.isClosing() {
		return nil, &remote.Error{Host: h.name, Reason: remote.ConnectionLost, Cause: "the connection was closed", Err: net.ErrClosed}
	}
	select {
	case <-h.client.Done():
	default:
		return h.client, nil
	}
	// Close the goroutines and the SSH connection of the lost session.
	_ = h.client.Close()
	client, err := h.redial(ctx)
	if err != nil {
		return nil, err
	}
	h.client = client
	return client, nil
}

// redial dials with growing pauses until it succeeds, the time is over, or it fails with
// an error that waiting does not fix.
func (h *Host) redial(ctx context.Context) (*wire.Client, error) {
	if h.opts.Reconnect < 0 {
		return nil, h.lostError(net.ErrClosed)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	defer func() { cancel(nil); <-watched }()
	go func() {
		defer close(watched)
		select {
		case <-h.done:
			cancel(net.ErrClosed)
		case <-ctx.Done():
		}
	}()
	give, over := context.WithTimeout(ctx, h.opts.Reconnect)
	defer over()
	if !h.isLost {
		h.isLost = true
		h.opts.Notify(h.name, "the connection was lost; Slipway connects again")
	}
	pause := 500 * time.Millisecond
	for refused := 0; ; {
		client, err := h.connect(give)
		if err == nil {
			h.isLost = false
			h.opts.Notify(h.name, "connected again")
			return client, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if isPermanent(err, &refused) {
			return nil, err
		}
		h.opts.Log.Debug("cannot reconnect to the host yet", "host", h.name, "error", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-give.Done():
			t.Stop()
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			lost := h.lostError(err)
			lost.Cause = fmt.Sprintf("the connection was lost, and the host did not respond again within %s: %s", h.opts.Reconnect, rootMessage(err))
			return nil, lost
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// isPermanent reports whether an error of a connection is permanent. A host that boots may
// reject logins for a while.
func isPermanent(err error, refused *int) bool {
	var e *remote.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Reason {
	case remote.HostKeyChanged, remote.HostKeyUnknown, remote.KeyUnreadable, remote.SecretUnreadable, remote.WrongArch:
		return true
	case remote.AuthFailed, remote.SudoFailed:
		*refused++
		return *refused >= maxLosses
	}
	return false
}
