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

// The calls; each is the header of a stream.
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
	// TimeoutMillis, if not 0, limits how long the caller waits.
	TimeoutMillis int64  `json:"timeoutMillis,omitempty"`
	Network       string `json:"network,omitempty"` // dial
	Address       string `json:"address,omitempty"` // dial
	Digest        string `json:"digest,omitempty"`  // blob
	Offset        int64  `json:"offset,omitempty"`  // blob
	Size          int64  `json:"size,omitempty"`    // blob
}

// slack is how much longer than the caller the helper waits: it then ends a call whose
// caller gave up and could not report it.
const slack = 5 * time.Second

// withDeadlineOf sends the remaining time of ctx to the helper.
func (h header) withDeadlineOf(ctx context.Context) header {
	if at, ok := ctx.Deadline(); ok {
		h.TimeoutMillis = max(1, (time.Until(at) + slack).Milliseconds())
	}
	return h
}

// messageType is the type of a message in a call.
type messageType byte

const (
	msgRequest  messageType = 1
	msgProgress messageType = 2
	msgResult   messageType = 3
	msgCancel   messageType = 4
	msgError    messageType = 5 // instead of a result
	msgInput    messageType = 6 // for a program; an empty one is the end
	msgOutcome  messageType = 7 // of a blob, by the helper
)

// request has the arguments of any call.
type request struct {
	Ops      op.List        `json:"ops,omitempty"`    // check
	Batch    remote.Batch   `json:"batch,omitzero"`   // apply
	Lock     remote.Lock    `json:"lock,omitzero"`    // take, beat, release
	Breaking bool           `json:"break,omitempty"`  // take
	Command  remote.Command `json:"command,omitzero"` // run
	Copy     remote.Copy    `json:"copy,omitzero"`    // copy
	Loan     remote.Loan    `json:"loan,omitzero"`    // lend
}

// response has the result of any call.
type response struct {
	Results resultsOf        `json:"results,omitempty"`
	State   remote.LockState `json:"state,omitzero"`
	OK      bool             `json:"ok,omitempty"`
	Exit    int              `json:"exit,omitempty"`  // run
	Offer   *remote.Offer    `json:"offer,omitempty"` // blob, lend; for a blob, without an offer content follows
	Share   bool             `json:"share,omitempty"` // blob
	Error   string           `json:"error,omitempty"`
}

// resultsOf are the results of a batch. Each of them needs far more memory than its minimum
// size on the wire, so their number has a limit.
type resultsOf []op.Result

// mostResults is far more than the operations of any batch.
const mostResults = 1 << 16

// UnmarshalJSON reads results one by one, strictly.
func (r *resultsOf) UnmarshalJSON(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if begin, err := dec.Token(); err != nil || begin == nil {
		return err
	} else if begin != json.Delim('[') {
		return errors.New("results are a list")
	}
	*r = nil
	for dec.More() {
		if len(*r) == mostResults {
			return fmt.Errorf("more than %d results", mostResults)
		}
		var one op.Result
		if err := dec.Decode(&one); err != nil {
			return err
		}
		*r = append(*r, one)
	}
	return nil
}

// outcome is the result for a blob, or its progress.
type outcome struct {
	Outcome remote.Outcome `json:"outcome"`
	Offset  int64          `json:"offset,omitempty"`
}

// progress is a remote.Progress; its output follows raw. For the output of a program, Op
// is the stream: 1 is stdout, 2 stderr.
type progress struct {
	Op    int   `json:"op"`
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
}

const (
	messageHeaderSize = 9
	// maxMessage limits one message: the operations of a batch, or their results. Larger
	// content is a blob.
	maxMessage = 64 << 20
	// maxPart limits a message with a piece of output or input.
	maxPart = 4 << 20
)

// maxLength returns the maximum length of a message of a type, without its header.
func (t messageType) maxLength() int {
	switch t {
	case msgRequest, msgResult, msgError:
		return maxMessage
	}
	return maxPart
}

// A message is a part of a call: length of what follows the header (4 bytes),
// type (1), length of the JSON (4), JSON, raw bytes.
type message struct {
	kind messageType
	body []byte // JSON
	raw  []byte
}

// decodeInto reads the message's JSON into v, strictly.
func (m message) decodeInto(v any) error {
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
	if n > t.maxLength() {
		return fmt.Errorf("a message of %d bytes is larger than the limit of %d", n, t.maxLength())
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
	if t < msgRequest || t > msgOutcome || int64(n) > int64(t.maxLength()) || body > n {
		return message{}, &ProtocolError{"malformed message"}
	}
	// The buffer grows with the received data, not with the announced size.
	b := growing{}
	if s, ok := r.(*stream); ok {
		b.m = s.m
		defer b.releaseMemory()
	}
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return message{}, err
	}
	return message{kind: t, body: b.bytes[:body], raw: b.bytes[body:]}, nil
}

// growing is an incomplete message; m, if not nil, counts it.
type growing struct {
	bytes []byte
	m     *mux
}

// Write adds another part of the message.
func (g *growing) Write(p []byte) (int, error) {
	if g.m != nil {
		if err := g.m.holdBytes(len(p)); err != nil {
			return 0, err
		}
	}
	g.bytes = append(g.bytes, p...)
	return len(p), nil
}

func (g *growing) releaseMemory() { g.m.releaseBytes(len(g.bytes)) }
