package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// kind is the kind of a frame.
type kind byte

// The kinds of frames. Their numbers are part of the protocol.
const (
	kindHello   kind = 1 // first in each direction: the sender's identity
	kindOpen    kind = 2 // a new stream; the payload is its header
	kindData    kind = 3 // bytes of a stream
	kindWindow  kind = 4 // the receiver accepts this many more bytes
	kindEOF     kind = 5 // the sender sends no more on the stream
	kindReset   kind = 6 // the stream ends at once; the payload is the reason
	kindAlive   kind = 7 // only a sign of life
	kindGoodbye kind = 8 // the session ends on purpose
)

const (
	headerSize = 9
	// maxPayload limits a frame, and so how long a sign of life waits behind a large
	// transfer, and how much memory a broken peer can allocate.
	maxPayload = 64 << 10
)

// A frame is the unit of the protocol: length of the payload (4 bytes, big endian), kind
// (1), stream (4), payload.
type frame struct {
	kind    kind
	stream  uint32
	payload []byte
}

// readFrame reads one frame into buf, which the payload shares, or into a new buffer if
// buf is too short. io.EOF is the end between two frames; invalid data is a
// *ProtocolError.
func readFrame(r io.Reader, buf []byte) (frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(h[:4])
	f := frame{kind: kind(h[4]), stream: binary.BigEndian.Uint32(h[5:])}
	switch {
	case f.kind < kindHello || f.kind > kindGoodbye:
		return frame{}, &ProtocolError{fmt.Sprintf("frame of unknown kind %d", f.kind)}
	case n > maxPayload:
		return frame{}, &ProtocolError{fmt.Sprintf("frame of %d bytes, more than %d", n, maxPayload)}
	}
	if n == 0 {
		return f, nil
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	f.payload = buf[:n]
	if _, err := io.ReadFull(r, f.payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

// appendFrame appends the encoded f.
func appendFrame(b []byte, f frame) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	b = append(b, byte(f.kind))
	b = binary.BigEndian.AppendUint32(b, f.stream)
	return append(b, f.payload...)
}

// A ProtocolError reports a peer that violates this protocol: invalid data, another
// version, an exceeded limit.
type ProtocolError struct{ What string }

func (e *ProtocolError) Error() string { return "protocol error: " + e.What }

// A LostError reports a connection that ended while it was needed. The request may or may
// not have been executed.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "connection to the helper lost: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Err }
