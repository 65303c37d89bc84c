package p2p

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"slipway.dev/slipway/internal/remote"
)

// A Delivery is the manager's answer to a request for a blob.
type Delivery interface {
	// Offer names the host with the content; nil means the manager.
	Offer() *remote.Offer
	// Read reads what the manager sends.
	io.Reader
	// Next reports that the offer worked up to offset, and waits for another answer.
	Next(ctx context.Context, offset int64) error
}

// ReceiveContent writes the content from offset to size to w, from the sources that the manager
// names. shared reports whether some of it came from other hosts, whatever the result. An
// error of w is returned unchanged.
func ReceiveContent(ctx context.Context, d Delivery, size, offset int64, w io.Writer) (shared bool, err error) {
	to := &sink{w: w, at: offset}
	for {
		o := d.Offer()
		if o == nil {
			return shared, copyContent(to, d, size)
		}
		begin := to.at
		err := useOffer(ctx, *o, to, size)
		shared = shared || to.at > begin
		switch {
		case err == nil:
			return shared, nil
		case to.err != nil:
			return shared, to.err
		case ctx.Err() != nil:
			return shared, context.Cause(ctx)
		}
		if err := d.Next(ctx, to.at); err != nil {
			return shared, err
		}
	}
}

// sink counts the progress of a transfer, and marks its own errors.
type sink struct {
	w   io.Writer
	at  int64
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.at += int64(n)
	s.err = err
	return n, err
}

// copyContent copies from r until the sink has all.
func copyContent(to *sink, r io.Reader, size int64) error {
	_, err := io.CopyBuffer(to, io.LimitReader(r, size-to.at), make([]byte, 256<<10))
	if err == nil && to.at < size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// useOffer uses an offer.
func useOffer(ctx context.Context, o remote.Offer, to *sink, size int64) error {
	dialer := net.Dialer{Timeout: dialTime}
	raw, err := dialer.DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	conn := tls.Client(raw, expectCertificate(o.Certificate))
	if err := raw.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	// The certificate is verified before the token is sent.
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	request := binary.BigEndian.AppendUint64(append([]byte(nil), o.Token...), uint64(to.at))
	if len(request) != requestSize {
		return errors.New("the token is invalid")
	}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if answer[0] != accepted {
		return fmt.Errorf("%s rejects the token", o.Address)
	}
	return copyContent(to, &pacedReader{conn: conn}, size)
}

// expectCertificate requires the announced certificate; its names and dates are not checked.
func expectCertificate(certificate []byte) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the whole certificate
		VerifyConnection: func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].Raw)
			if !bytes.Equal(sum[:], certificate) {
				return errors.New("it is not the host that the manager named")
			}
			return nil
		},
	}
}

// pacedReader aborts for a host that sends too slowly.
type pacedReader struct {
	conn net.Conn
	left int // bytes until the next deadline
}

func (r *pacedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		r.left = pace
		if err := r.conn.SetReadDeadline(time.Now().Add(paceTime)); err != nil {
			return 0, err
		}
	}
	n, err := r.conn.Read(p)
	r.left -= n
	return n, err
}
