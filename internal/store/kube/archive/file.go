package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// A Record is a finished operation.
type Record struct {
	Operation *v1alpha1.Operation
	Plan      *plan.Plan // nil if there is none
	// Events calls its argument for each event, in order. It is called twice, with the same result.
	Events func(func(event.Event) error) error
}

// A header is the second line of a file. The first line has its digest, and the events follow, one a
// line. So one digest covers the complete file.
type header struct {
	Format       int                `json:"format"`
	Operation    v1alpha1.Operation `json:"operation"`
	Plan         *plan.Plan         `json:"plan,omitempty"`
	Events       int64              `json:"events"`
	EventsDigest string             `json:"eventsDigest"`
}

const (
	format = 1
	magic  = "slipway-operation "

	// maxFile limits a file, in bytes, and maxEvent an event: a part of a journal has shorter ones.
	maxFile  = 4 << 30
	maxEvent = 1 << 20
	// maxWindow limits the memory to decompress a file.
	maxWindow = 32 << 20
)

func digestOf(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// A head is the encoded header of a record.
type head struct {
	text   []byte
	events int64
}

// encodeHeader returns the header of a record.
func (r Record) encodeHeader() (out head, err error) {
	h := header{Format: format, Operation: *r.Operation, Plan: r.Plan}
	h.Operation.ManagedFields, h.Operation.ResourceVersion = nil, ""
	sum := sha256.New()
	err = r.Events(func(e event.Event) error {
		h.Events++
		return writeLine(sum, e)
	})
	if err != nil {
		return out, err
	}
	h.EventsDigest = digestOf(sum.Sum(nil))
	text, err := json.Marshal(h)
	return head{text, h.Events}, err
}

func writeLine(to io.Writer, e event.Event) error {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = to.Write(append(line, '\n'))
	}
	return err
}

// write writes the file of a record.
func (r Record) write(to io.Writer, h head) error {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(h.text)
	_, err = fmt.Fprintf(z, "%s%s\n%s\n", magic, digestOf(sum[:]), h.text)
	if err == nil {
		err = r.Events(func(e event.Event) error { return writeLine(z, e) })
	}
	return errors.Join(err, z.Close())
}

// A reader reads a file after its header.
type reader struct {
	header
	is    name
	lines *bufio.Reader
	used  error // by the function that received an event
}

// readHeader returns the header of a file.
func (a *Archive) readHeader(ctx context.Context, file string) (h *header, err error) {
	err = a.readFile(ctx, file, func(r *reader) error {
		h = &r.header
		return nil
	})
	return h, err
}

// readFile calls use with a file after its header was verified. The memory for it has a limit,
// whatever the file contains.
func (a *Archive) readFile(ctx context.Context, file string, use func(*reader) error) error {
	fetching, cancel := context.WithCancel(ctx)
	defer cancel()
	pipe, to := io.Pipe()
	from := &source{Reader: pipe}
	fetched := make(chan struct{})
	go func() { // ends when the pipe is closed
		defer close(fetched)
		_ = to.CloseWithError(a.files.Fetch(fetching, file, newLimited(to, maxFile))) // never fails
	}()
	is, _ := a.parseName(file)
	r := &reader{is: is}
	err := r.open(from, use)
	_ = pipe.Close() // never fails
	cancel()
	<-fetched
	var over *bounded.LimitError
	switch {
	case err == nil || r.used != nil:
		return r.used
	case from.err != nil && !errors.As(from.err, &over):
		return unavailableError(ctx, from.err)
	}
	return damagedError(file, err)
}

// open reads and verifies the header, and calls use.
func (r *reader) open(from io.Reader, use func(*reader) error) error {
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer z.Close()
	r.lines = bufio.NewReader(z)
	first, err := r.readLine(bounded.Word)
	if err != nil {
		return err
	}
	digest, ok := strings.CutPrefix(string(first), magic)
	if !ok {
		return errors.New("it is not an archived operation")
	}
	text, err := r.readLine(bounded.Record)
	if err != nil {
		return err
	}
	if of := sha256.Sum256(text); digestOf(of[:]) != digest {
		return fmt.Errorf("its header has digest %s, not %s", digestOf(of[:]), digest)
	}
	if err := json.Unmarshal(text, &r.header); err != nil {
		return err
	}
	if o := &r.header.Operation; r.Format != format || !r.is.isOf(o) {
		return fmt.Errorf("it has operation %s (%s) of cluster %s in format %d", o.Name, o.UID, o.Spec.ClusterRef.Name, r.Format)
	}
	return use(r)
}

// readLine returns the next line, without its end.
func (r *reader) readLine(limit int) (line []byte, err error) {
	for {
		piece, err := r.lines.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case len(line) > limit:
			return nil, &bounded.LimitError{Limit: int64(limit)}
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// readEvents calls fn for each event, and verifies their digest at the end.
func (r *reader) readEvents(fn func(event.Event) error) error {
	sum := sha256.New()
	for range r.Events {
		line, err := r.readLine(maxEvent)
		if err != nil {
			return err
		}
		_, _ = sum.Write(append(line, '\n')) // never fails
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if r.used = fn(e); r.used != nil {
			return r.used
		}
	}
	if got := digestOf(sum.Sum(nil)); got != r.EventsDigest {
		return fmt.Errorf("its events have digest %s, not %s", got, r.EventsDigest)
	}
	if _, err := r.lines.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("it has more than its header describes"), err)
	}
	return nil
}

// A source remembers the error with which it ended.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// A limited writer refuses bytes after a limit.
type limited struct {
	to          io.Writer
	left, limit int64
}

func newLimited(to io.Writer, limit int64) *limited { return &limited{to, limit, limit} }

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, &bounded.LimitError{Limit: l.limit}
	}
	return l.to.Write(p)
}
