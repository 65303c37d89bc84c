package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// window is how many unread bytes of a stream can be in transit.
	window = 1 << 20
	// maxStreams limits the open streams of the peer.
	maxStreams = 1024
	// maxUnread limits the data of the peer that a session holds, in bytes: in unread
	// streams, and in incomplete messages. It is enough for two messages of maximum
	// length.
	maxUnread = 2 * maxMessage
	// aliveEvery is the pause between two signs of life; a peer that is silent for
	// silentAfter counts as gone.
	aliveEvery  = 8 * time.Second
	silentAfter = 30 * time.Second
)

// errGoodbye reports a session that the peer ended on purpose.
var errGoodbye = errors.New("the other side ended the session")

// errClosed reports a connection that the other end, or the network, closed. io.EOF is
// reserved for the ends of streams.
var errClosed = errors.New("closed by the other side")

// errSilent reports a peer without a sign of life.
var errSilent = fmt.Errorf("no sign of life for %s", silentAfter)

// A mux has many flow-controlled streams over one connection. Every blocking call ends
// when the connection ends. Unread data of the peer takes at most one window for each
// stream, and maxUnread in total.
type mux struct {
	rw io.ReadWriteCloser

	writeMu sync.Mutex
	buf     []byte // scratch of write

	mu      sync.Mutex
	streams map[uint32]*stream
	foreign int    // also the streams of the peer
	next    uint32 // odd at the manager, even at the helper
	err     error  // why it ended

	unread atomic.Int64 // see maxUnread

	done  chan struct{} // closed at the end of the session
	heard atomic.Int64  // time of the last data from the peer, in ns since start
	start time.Time
	// accept serves a stream that the peer opened, in a separate goroutine.
	accept func(s *stream, header []byte)
	wg     sync.WaitGroup
}

// newMux starts a session over rw, after the handshake. first is the number
// of this side's first stream, 1 or 2. r reads from rw.
func newMux(rw io.ReadWriteCloser, r io.Reader, first uint32, accept func(*stream, []byte)) *mux {
	m := &mux{
		rw: rw, next: first, accept: accept, start: time.Now(),
		streams: map[uint32]*stream{}, done: make(chan struct{}),
	}
	m.wg.Add(2)
	go func() {
		defer m.wg.Done()
		m.failSession(m.readLoop(r))
	}()
	go func() {
		defer m.wg.Done()
		m.keepAlive()
	}()
	return m
}

// failSession ends the session: the connection is closed, every stream fails.
func (m *mux) failSession(err error) {
	if errors.Is(err, io.EOF) { // an SSH channel reports it to writers, too
		err = errClosed
	}
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	m.err = err
	streams := m.streams
	m.streams = map[uint32]*stream{}
	m.mu.Unlock()
	close(m.done)
	for _, s := range streams {
		s.endWith(&LostError{err})
	}
	// A failed close needs no action: the session is over.
	_ = m.rw.Close()
}

// lostError returns the error of an ended session, for its users.
func (m *mux) lostError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &LostError{m.err}
}

// spawnWork runs work in a goroutine for which the caller of close waits.
func (m *mux) spawnWork(work func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return &LostError{m.err}
	}
	m.wg.Go(work)
	return nil
}

// closeSession ends the session with a goodbye. It does not wait for streams.
func (m *mux) closeSession() {
	// The peer may already be gone, or blocked: then it does not receive it.
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = m.writeFrame(frame{kind: kindGoodbye})
	}()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-sent:
	case <-t.C:
	case <-m.done:
	}
	m.failSession(errGoodbye)
	<-sent
}

func (m *mux) writeFrame(f frame) error {
	m.writeMu.Lock()
	defer m.writeMu.Unlock()
	select {
	case <-m.done:
		return m.lostError()
	default:
	}
	m.buf = appendFrame(m.buf[:0], f)
	if _, err := m.rw.Write(m.buf); err != nil {
		m.failSession(err)
		return m.lostError()
	}
	return nil
}

// keepAlive sends signs of life and checks for the peer's.
func (m *mux) keepAlive() {
	t := time.NewTicker(aliveEvery)
	defer t.Stop()
	wrote := make(chan struct{}, 1)
	wrote <- struct{}{}
	var writer sync.WaitGroup
	defer writer.Wait()
	for {
		select {
		case <-m.done:
			return
		case <-t.C:
		}
		if time.Since(m.start)-time.Duration(m.heard.Load()) > silentAfter {
			m.failSession(errSilent)
			return
		}
		// A write can block as long as the peer reads nothing; the checks must continue
		// meanwhile.
		select {
		case <-wrote:
			writer.Go(func() {
				_ = m.writeFrame(frame{kind: kindAlive}) // fails the session itself
				wrote <- struct{}{}
			})
		default:
		}
	}
}

// hearing records each byte of the peer as a sign of life.
type hearing struct {
	m *mux
	r io.Reader
}

func (h hearing) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if n > 0 {
		h.m.heard.Store(int64(time.Since(h.m.start)))
	}
	return n, err
}

// readLoop dispatches frames until the connection ends. It never writes, because two
// peers with full pipes would wait for each other.
func (m *mux) readLoop(r io.Reader) error {
	in, buf := hearing{m, r}, make([]byte, maxPayload)
	for {
		f, err := readFrame(in, buf)
		if err != nil {
			return err
		}
		switch f.kind {
		case kindAlive:
		case kindGoodbye:
			return errGoodbye
		case kindHello:
			return &ProtocolError{"a second hello"}
		case kindOpen:
			if err := m.acceptStream(f); err != nil {
				return err
			}
		default:
			if err := m.dispatchFrame(f); err != nil {
				return err
			}
		}
	}
}

// acceptStream creates a stream of the peer.
func (m *mux) acceptStream(f frame) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err != nil:
		return m.err
	case m.accept == nil || f.stream == 0 || f.stream%2 == m.next%2:
		return &ProtocolError{fmt.Sprintf("stream %d cannot be opened by the peer", f.stream)}
	case m.streams[f.stream] != nil:
		return &ProtocolError{fmt.Sprintf("stream %d opened twice", f.stream)}
	case m.foreign >= maxStreams:
		return &ProtocolError{"too many streams"}
	}
	s, header := newStream(m, f.stream), bytes.Clone(f.payload)
	m.streams[f.stream] = s
	m.foreign++
	m.wg.Go(func() { m.accept(s, header) })
	return nil
}

// holdBytes counts stored bytes of the peer, if there is space; release ends that.
func (m *mux) holdBytes(n int) error {
	if m.unread.Add(int64(n)) > maxUnread {
		m.releaseBytes(n)
		return &ProtocolError{fmt.Sprintf("more than %d unread bytes", maxUnread)}
	}
	return nil
}

func (m *mux) releaseBytes(n int) { m.unread.Add(int64(-n)) }

// dispatchFrame passes a frame to its stream. A frame for a stream that this side has already
// ended is dropped.
func (m *mux) dispatchFrame(f frame) error {
	m.mu.Lock()
	s := m.streams[f.stream]
	m.mu.Unlock()
	if s == nil {
		return nil
	}
	switch f.kind {
	case kindData:
		return s.addReceived(f.payload)
	case kindWindow:
		if len(f.payload) != 4 {
			return &ProtocolError{"malformed window"}
		}
		return s.addGranted(binary.BigEndian.Uint32(f.payload))
	case kindEOF:
		s.peerEOF()
	case kindReset:
		e := &ResetError{}
		if err := json.Unmarshal(f.payload, e); err != nil {
			return &ProtocolError{"malformed reset"}
		}
		s.endWith(e)
		m.forgetStream(s)
	}
	return nil
}

// openStream opens a stream with header, which names its purpose.
func (m *mux) openStream(header any) (*stream, error) {
	raw, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("encoding a stream's header: %w", err)
	}
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return nil, m.lostError()
	}
	if len(m.streams)-m.foreign >= maxStreams {
		m.mu.Unlock()
		return nil, fmt.Errorf("more than %d streams to one host", maxStreams)
	}
	s := newStream(m, m.next)
	m.next += 2
	m.streams[s.id] = s
	m.mu.Unlock()
	if err := m.writeFrame(frame{kind: kindOpen, stream: s.id, payload: raw}); err != nil {
		return nil, err
	}
	return s, nil
}

// forgetStream drops a stream that has ended in both directions.
func (m *mux) forgetStream(s *stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams[s.id] != s {
		return
	}
	delete(m.streams, s.id)
	if s.id%2 != m.next%2 {
		m.foreign--
	}
}

// A ResetError is a stream that the peer ended at once.
type ResetError struct {
	Message string `json:"message"`
}

func (e *ResetError) Error() string { return e.Message }
