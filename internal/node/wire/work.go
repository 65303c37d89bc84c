package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"slipway.dev/slipway/internal/remote"
)

// The streams of a program, as in progress.Op.
const (
	stdout = 1
	stderr = 2
)

var _ remote.Worker = (*Client)(nil)

// Run implements remote.Worker.
func (c *Client) Run(ctx context.Context, cmd remote.Command, in io.Reader, out, errw io.Writer) (int, error) {
	s, err := c.beginCall(ctx, callRun, request{Command: cmd})
	if err != nil {
		return 0, err
	}
	// When ctx ends, the stream ends, and the helper stops the program.
	stop := context.AfterFunc(ctx, func() { s.resetWith(context.Cause(ctx)) })
	defer func() { stop(); _ = s.Close() }()
	go sendInput(s, in) // ends with in, or at the first write to a closed stream
	for {
		msg, err := readMessage(s)
		if errors.Is(err, io.EOF) {
			err = &ProtocolError{"a call without an answer"}
		}
		if err != nil {
			return 0, orCause(ctx, err)
		}
		var p progress
		var res response
		switch msg.kind {
		case msgProgress:
			err = msg.decodeInto(&p)
			if w := map[int]io.Writer{stdout: out, stderr: errw}[p.Op]; err == nil && w != nil {
				_, err = w.Write(msg.raw)
			}
			if err != nil {
				return 0, err
			}
		case msgResult:
			err = msg.decodeInto(&res)
			return res.Exit, err
		case msgError:
			if err = msg.decodeInto(&res); err == nil {
				err = errors.New(res.Error)
			}
			return 0, err
		default:
			return 0, &ProtocolError{fmt.Sprintf("unexpected message of type %d", msg.kind)}
		}
	}
}

// beginCall opens a stream for a call. It sends no deadline: the stream ends with the
// caller's context.
func (c *Client) beginCall(ctx context.Context, call string, req request) (*stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s, err := c.m.openStream(header{Call: call})
	if err != nil {
		return nil, err
	}
	if err := writeMessage(s, msgRequest, req, nil); err != nil {
		_ = s.Close()
		return nil, orCause(ctx, err)
	}
	return s, nil
}

// sendInput sends input to a program; nil means no input.
func sendInput(s *stream, in io.Reader) {
	buf := make([]byte, maxPayload/2)
	for in != nil {
		n, err := in.Read(buf)
		if n > 0 && writeMessage(s, msgInput, struct{}{}, buf[:n]) != nil {
			return // the program is over
		}
		if err != nil {
			break
		}
	}
	_ = writeMessage(s, msgInput, struct{}{}, nil)
}

// OpenCopy implements remote.Worker.
func (c *Client) OpenCopy(ctx context.Context, cp remote.Copy) (net.Conn, error) {
	s, err := c.beginCall(ctx, callCopy, request{Copy: cp})
	if err != nil {
		return nil, err
	}
	return &copying{stream: s, stop: context.AfterFunc(ctx, func() { s.resetWith(context.Cause(ctx)) })}, nil
}

// copying is a stream that ends with a context.
type copying struct {
	*stream
	stop func() bool
}

// Close ends both directions at once.
func (c *copying) Close() error {
	c.stop()
	return c.stream.Close()
}

// serveWork serves a program's run or a copy. The caller ends it by closing the stream.
func (s *session) serveWork(ctx context.Context, st *stream, call string) {
	req, ok := readRequest(st)
	if !ok {
		return
	}
	ctx, end := st.contextWithin(ctx)
	defer end()
	if call == callRun {
		s.serveRun(ctx, st, req.Command)
		return
	}
	err := s.handler.Copy(ctx, req.Copy, st)
	_ = st.CloseWrite()
	if err != nil {
		// The caller closes the stream after the last message.
		_, _ = io.Copy(io.Discard, st)
	}
}

func (s *session) serveRun(ctx context.Context, st *stream, c remote.Command) {
	in, feed := io.Pipe()
	var input sync.WaitGroup
	input.Go(func() {
		_ = feed.CloseWithError(receiveInput(st, feed))
		// Later data is not needed: the caller closes the stream after the last message.
		_, _ = io.Copy(io.Discard, st)
	})
	defer input.Wait()
	var mu sync.Mutex
	code, err := s.handler.Run(ctx, c, in, outputWriter{st, &mu, stdout}, outputWriter{st, &mu, stderr})
	_ = in.Close() // remaining input is discarded
	if err != nil {
		_ = writeMessage(st, msgError, response{Error: err.Error()}, nil)
	} else {
		_ = writeMessage(st, msgResult, response{Exit: code}, nil)
	}
	_ = st.CloseWrite()
}

// receiveInput passes the input of a program on, up to its end.
func receiveInput(st *stream, to io.Writer) error {
	for {
		msg, err := readMessage(st)
		if err != nil {
			return err
		}
		if len(msg.raw) == 0 {
			return nil
		}
		if _, err := to.Write(msg.raw); err != nil {
			return err
		}
	}
}

// An outputWriter sends the output of a program, one message at a time.
type outputWriter struct {
	st *stream
	mu *sync.Mutex
	op int
}

func (w outputWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := writeMessage(w.st, msgProgress, progress{Op: w.op}, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
