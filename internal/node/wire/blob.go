package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// A Fetcher gets content from the manager, or the name of a host that has it.
type Fetcher interface {
	// FetchBlob requests the content from offset on and waits for the answer, which must
	// be closed.
	FetchBlob(ctx context.Context, b op.Blob, offset int64) (*Delivery, error)
}

// fetcher is the manager as a source of blobs.
type fetcher struct{ m *mux }

// FetchBlob implements Fetcher.
func (f fetcher) FetchBlob(ctx context.Context, b op.Blob, offset int64) (*Delivery, error) {
	s, err := f.m.openStream(header{Call: callBlob, Digest: b.Digest, Size: b.Size, Offset: offset})
	if err != nil {
		return nil, err
	}
	d := &Delivery{s: s, stop: context.AfterFunc(ctx, func() { s.resetWith(context.Cause(ctx)) })}
	if err := d.readAnswer(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// A Delivery is content for the helper. It ends with the context of its request.
type Delivery struct {
	s    *stream
	stop func() bool
	now  response
}

// readAnswer reads the manager's answer.
func (d *Delivery) readAnswer(ctx context.Context) (err error) {
	d.now, err = readResponse(d.s, nil)
	return orCause(ctx, err)
}

// Offer names the host with the content; nil means the manager.
func (d *Delivery) Offer() *remote.Offer { return d.now.Offer }

// Share reports whether the manager wants the content to be kept for other hosts, and a
// report of the result.
func (d *Delivery) Share() bool { return d.now.Share }

// Read reads the data that the manager sends. Reading to io.EOF returns all of it; an end
// of the connection is an error.
func (d *Delivery) Read(p []byte) (int, error) { return d.s.Read(p) }

// Next reports that the offer worked up to offset, and waits for another answer.
func (d *Delivery) Next(ctx context.Context, offset int64) error {
	if err := writeMessage(d.s, msgOutcome, outcome{remote.Next, offset}, nil); err != nil {
		return orCause(ctx, err)
	}
	return d.readAnswer(ctx)
}

// End reports the result for the content to the manager.
func (d *Delivery) End(o remote.Outcome) error {
	if err := writeMessage(d.s, msgOutcome, outcome{Outcome: o}, nil); err != nil {
		return err
	}
	return d.s.CloseWrite() // otherwise Close would overtake it
}

// Close ends the delivery.
func (d *Delivery) Close() error {
	d.stop()
	return d.s.Close()
}

// serveBlob handles a helper's request for content.
func (c *Client) serveBlob(ctx context.Context, s *stream, raw []byte) {
	defer func() { _ = s.Close() }()
	h, err := parseHeader(raw)
	if err != nil || h.Call != callBlob {
		s.resetWith(&ProtocolError{fmt.Sprintf("the helper cannot call %q", h.Call)})
		return
	}
	ctx, end := s.contextWithin(ctx)
	defer end()
	wish := c.handleWant(h)
	became := remote.Unknown
	defer func() { wish.End(became) }()
	for at := h.Offset; ; {
		src, err := wish.Next(ctx, at)
		if err != nil {
			_ = writeMessage(s, msgError, response{Error: err.Error()}, nil)
			_ = s.CloseWrite()
			_, _ = io.Copy(io.Discard, s)
			return
		}
		if src.Offer == nil {
			became = sendBlob(s, src)
			return
		}
		if err := writeMessage(s, msgResult, response{Offer: src.Offer, Share: src.Share}, nil); err != nil {
			return
		}
		told := readOutcome(s)
		if told.Outcome != remote.Next {
			became = told.Outcome
			return
		}
		if told.Offset < at || h.Size > 0 && told.Offset > h.Size {
			s.resetWith(&ProtocolError{fmt.Sprintf("the helper has %d bytes of %d, and had %d", told.Offset, h.Size, at)})
			return
		}
		at = told.Offset
	}
}

// handleWant is the request of the helper.
func (c *Client) handleWant(h header) remote.Wish {
	switch blobs := c.blobs.(type) {
	case nil:
		return alone{nothing{}, h.Digest}
	case remote.Spreader:
		return blobs.Want(c, h.Digest, h.Size)
	default:
		return alone{blobs, h.Digest}
	}
}

// alone is a request that the manager itself serves.
type alone struct {
	blobs  remote.Blobs
	digest string
}

func (a alone) Next(_ context.Context, offset int64) (remote.Source, error) {
	content, err := a.blobs.OpenBlob(a.digest, offset)
	return remote.Source{Content: content}, err
}

func (alone) End(remote.Outcome) {}

// nothing is a manager without content.
type nothing struct{}

func (nothing) OpenBlob(string, int64) (io.ReadCloser, error) {
	return nil, errors.New("the manager has no blobs")
}

// sendBlob sends content and returns the result.
func sendBlob(s *stream, src remote.Source) remote.Outcome {
	defer func() { _ = src.Content.Close() }()
	if err := writeMessage(s, msgResult, response{OK: true, Share: src.Share}, nil); err != nil {
		return remote.Unknown
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{s}, src.Content, make([]byte, maxPayload)); err != nil {
		s.resetWith(err)
		return remote.Unknown
	}
	_ = s.CloseWrite()
	// The helper closes when it has read to the end.
	return readOutcome(s).Outcome
}

// readOutcome reads the helper's result for a blob; a helper that reports nothing no
// longer needs it.
func readOutcome(s *stream) outcome {
	var out outcome
	msg, err := readMessage(s)
	if err != nil || msg.kind != msgOutcome || msg.decodeInto(&out) != nil {
		return outcome{Outcome: remote.Unknown}
	}
	return out
}

var _ remote.Lender = (*Client)(nil)

// Lend implements remote.Lender.
func (c *Client) Lend(ctx context.Context, l remote.Loan) (remote.Offer, error) {
	type answer struct {
		offer remote.Offer
		err   error
	}
	got := make(chan answer, 1)
	// A host that does not read from the connection blocks its writers until the
	// connection is closed.
	err := c.m.spawnWork(func() {
		o, err := c.callLend(ctx, l)
		got <- answer{o, err}
	})
	if err != nil {
		return remote.Offer{}, err
	}
	select {
	case a := <-got:
		return a.offer, a.err
	case <-ctx.Done():
		return remote.Offer{}, context.Cause(ctx)
	}
}

func (c *Client) callLend(ctx context.Context, l remote.Loan) (remote.Offer, error) {
	s, err := c.beginCall(ctx, callLend, request{Loan: l})
	if err != nil {
		return remote.Offer{}, err
	}
	stop := context.AfterFunc(ctx, func() { s.resetWith(context.Cause(ctx)) })
	defer func() { stop(); _ = s.Close() }()
	res, err := readResponse(s, nil)
	if err == nil && res.Offer == nil {
		err = &ProtocolError{"a loan without an offer"}
	}
	if err != nil {
		return remote.Offer{}, orCause(ctx, err)
	}
	o := *res.Offer
	if o.Token = l.Token; o.Address == "" {
		return o, nil
	}
	// A host sends only a port: it cannot redirect others to another address.
	_, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return remote.Offer{}, &ProtocolError{"an offer without a port"}
	}
	o.Address = net.JoinHostPort(l.Address, port)
	return o, nil
}
