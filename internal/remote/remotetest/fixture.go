package remotetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"slipway.dev/slipway/internal/node/embedded"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
)

// FakeHelper packs a file that is not a program, for simulated hosts.
func FakeHelper(t testing.TB) func(arch string) (embedded.Helper, error) {
	t.Helper()
	return PackedHelper(t, []byte("not a program"))
}

// PackedHelper packs a program for every architecture.
func PackedHelper(t testing.TB, program []byte) func(arch string) (embedded.Helper, error) {
	t.Helper()
	packed, err := embedded.Pack(program)
	if err != nil {
		t.Fatal(err)
	}
	return func(arch string) (embedded.Helper, error) {
		return embedded.ParseHelper(arch, io.NewSectionReader(bytes.NewReader(packed), 0, int64(len(packed))))
	}
}

// ConnectPipe returns a host with this name that handler serves over the real protocol, without
// SSH. It ends with the test.
func ConnectPipe(t testing.TB, name string, handler func(wire.Fetcher) wire.Handler, blobs remote.Blobs) *wire.Client {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { served <- wire.Server{Handler: handler}.Serve(ctx, theirs) }()
	c, err := wire.NewClient(t.Context(), name, ours, nil, blobs)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serving %s: %v", name, err)
		}
	})
	return c
}

// Handler is a wire.Handler built from functions; a call without a function is reported
// as an error of the test.
type Handler struct {
	OnCheck func(ctx context.Context, ops op.List) []op.Result
	OnApply func(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result
	OnLock  func(call string, l remote.Lock, breaking bool) (remote.LockState, bool, error)
}

var _ wire.Handler = Handler{}

// Check calls OnCheck.
func (h Handler) Check(ctx context.Context, ops op.List) []op.Result {
	if h.OnCheck == nil {
		return unexpectedResults(ops)
	}
	return h.OnCheck(ctx, ops)
}

// Apply calls OnApply.
func (h Handler) Apply(ctx context.Context, b remote.Batch, emit func(remote.Progress)) []op.Result {
	if h.OnApply == nil {
		return unexpectedResults(b.Ops)
	}
	return h.OnApply(ctx, b, emit)
}

func unexpectedResults(ops op.List) []op.Result {
	out := make([]op.Result, len(ops))
	for i, o := range ops {
		out[i] = op.Result{
			Kind: o.Kind(), Target: o.Target(), Status: op.Failed,
			Error: &op.Error{Reason: "Unexpected", Message: "the test did not expect this call"},
		}
	}
	return out
}

func (h Handler) callLock(call string, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	if h.OnLock == nil {
		return remote.LockState{}, false, fmt.Errorf("the test did not expect a call of %s", call)
	}
	return h.OnLock(call, l, breaking)
}

// Run and Copy are not expected.
func (h Handler) Run(context.Context, remote.Command, io.Reader, io.Writer, io.Writer) (int, error) {
	return 0, errors.New("the test did not expect a program")
}

func (h Handler) Copy(context.Context, remote.Copy, io.ReadWriter) error {
	return errors.New("the test did not expect a copy")
}

// Lend is not expected.
func (h Handler) Lend(context.Context, remote.Loan) (remote.Offer, error) {
	return remote.Offer{}, errors.New("the test did not expect a loan")
}

// EndLoans does nothing.
func (h Handler) EndLoans() {}

// ReadLock calls OnLock with "read", and so on.
func (h Handler) ReadLock(context.Context) (remote.LockState, error) {
	st, _, err := h.callLock("read", remote.Lock{}, false)
	return st, err
}

// TakeLock calls OnLock with "take".
func (h Handler) TakeLock(_ context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	return h.callLock("take", l, breaking)
}

// Beat calls OnLock with "beat".
func (h Handler) Beat(_ context.Context, l remote.Lock) (bool, error) {
	_, ok, err := h.callLock("beat", l, false)
	return ok, err
}

// ReleaseLock calls OnLock with "release".
func (h Handler) ReleaseLock(_ context.Context, l remote.Lock) error {
	_, _, err := h.callLock("release", l, false)
	return err
}
