package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// The calls, each the header of a stream.
const (
	callCheck    = "check"
	callApply    = "apply"
	callReadLock = "lock.read"
	callTakeLock = "lock.take"
	callBeat     = "lock.beat"
	callRelease  = "lock.release"
	callDial     = "dial"
	callRun      = "run"
	callCopy     = "copy"
	callLend     = "blob.lend"
	callBlob     = "blob" // by the helper
)

// header opens a stream.
type header struct {
	Call string `json:"call"`
	// TimeoutMillis, if not 0, is how long the caller waits.
	TimeoutMillis int64  `json:"timeoutMillis,omitempty"`
	Network       string `json:"network,omitempty"` // dial
	Address       string `json:"address,omitempty"` // dial
	Digest        string `json:"digest,omitempty"`  // blob
	Offset        int64  `json:"offset,omitempty"`  // blob
	Size          int64  `json:"size,omitempty"`    // blob
}

// slack is how much longer than the caller the helper waits: it ends by itself
// what a caller who cannot say so has given up.
const slack = 5 * time.Second

// within tells the helper how long ctx lasts.
func (h header) within(ctx context.Context) header {
	if at, ok := ctx.Deadline(); ok {
		h.TimeoutMillis = max(1, (time.Until(at) + slack).Milliseconds())
	}
	return h
}

// messageType says what a message of a call is.
type messageType byte

const (
	msgRequest  messageType = 1
	msgProgress messageType = 2
	msgResult   messageType = 3
	msgCancel   messageType = 4
	msgError    messageType = 5 // instead of a result
	msgInput    messageType = 6 // for a program; an empty one is its end
	msgOutcome  messageType = 7 // of a blob, by the helper
)

// request is the arguments of any call.
type request struct {
	Ops      op.List        `json:"ops,omitempty"`    // check
	Batch    remote.Batch   `json:"batch,omitzero"`   // apply
	Lock     remote.Lock    `json:"lock,omitzero"`    // take, beat, release
	Breaking bool           `json:"break,omitempty"`  // take
	Command  remote.Command `json:"command,omitzero"` // run
	Copy     remote.Copy    `json:"copy,omitzero"`    // copy
	Loan     remote.Loan    `json:"loan,omitzero"`    // lend
}

// response is the result of any call.
type response struct {
	Results []op.Result      `json:"results,omitempty"`
	State   remote.LockState `json:"state,omitzero"`
	OK      bool             `json:"ok,omitempty"`
	Exit    int              `json:"exit,omitempty"`  // run
	Offer   *remote.Offer    `json:"offer,omitempty"` // blob, lend; of a blob, none is that content follows
	Share   bool             `json:"share,omitempty"` // blob
	Error   string           `json:"error,omitempty"`
}

// outcome is what became of a blob, or how far it came.
type outcome struct {
	Outcome remote.Outcome `json:"outcome"`
	Offset  int64          `json:"offset,omitempty"`
}

// progress is a remote.Progress; its output follows raw. Of a program's
// output, Op says which: 1 is stdout, 2 stderr.
type progress struct {
	Op    int   `json:"op"`
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
}

const (
	messageHeaderSize = 9
	// maxMessage bounds one message: the operations of a batch, or their
	// results. Content beyond that is a blob.
	maxMessage = 64 << 20
)

// A message is a part of a call: length of what follows the header (4 bytes),
// type (1), length of the JSON (4), JSON, raw bytes.
type message struct {
	kind messageType
	body []byte // JSON
	raw  []byte
}

// decode reads the message's JSON into v, strictly.
func (m message) decode(v any) error {
	dec := json.NewDecoder(bytes.NewReader(m.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return &ProtocolError{fmt.Sprintf("message of type %d: %v", m.kind, err)}
	}
	return nil
}

func writeMessage(w io.Writer, t messageType, v any, raw []byte) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	n := len(body) + len(raw)
	if n > maxMessage {
		return fmt.Errorf("a message of %d bytes is more than the %d allowed", n, maxMessage)
	}
	b := make([]byte, 0, messageHeaderSize+n)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = append(b, byte(t))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(append(b, body...), raw...)
	_, err = w.Write(b)
	return err
}

// readMessage reads one message; io.EOF is the end between two.
func readMessage(r io.Reader) (message, error) {
	var h [messageHeaderSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return message{}, err
	}
	n, t, body := binary.BigEndian.Uint32(h[:4]), messageType(h[4]), binary.BigEndian.Uint32(h[5:])
	if n > maxMessage || body > n || t < msgRequest || t > msgOutcome {
		return message{}, &ProtocolError{"malformed message"}
	}
	// The buffer grows with what comes, not with what is claimed.
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return message{}, err
	}
	return message{kind: t, body: b.Bytes()[:body], raw: b.Bytes()[body:]}, nil
}
