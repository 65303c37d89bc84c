package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// A stream is one flow-controlled, two-way flow of bytes in a session. It is a net.Conn;
// each direction can be closed separately.
type stream struct {
	m  *mux
	id uint32

	// sendMu keeps the end of the sent data behind the data.
	sendMu sync.Mutex

	mu    sync.Mutex
	cond  *sync.Cond
	in    bytes.Buffer  // received, but unread; the mux counts it
	taken int           // bytes read, but not granted again yet
	room  int           // bytes that can be sent
	err   error         // the reason for its end, in both directions
	over  chan struct{} // closed when err is set
	eof   bool          // the peer sends no more
	shut  bool          // this side sends no more

	readBy, writeBy deadline
}

// A deadline wakes waiting calls at its time.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) hasPassed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newStream(m *mux, id uint32) *stream {
	s := &stream{m: m, id: id, room: window, over: make(chan struct{})}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// Read reads data of the peer. io.EOF is an intended end.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	for s.in.Len() == 0 && s.err == nil && !s.eof && !s.readBy.hasPassed() {
		s.cond.Wait()
	}
	switch {
	case s.readBy.hasPassed():
		s.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	case s.in.Len() == 0 && s.eof:
		s.mu.Unlock()
		return 0, io.EOF
	case s.in.Len() == 0:
		defer s.mu.Unlock()
		return 0, s.err
	}
	n, _ := s.in.Read(p) // there is data
	if s.m.releaseBytes(n); s.in.Len() == 0 && s.in.Cap() > maxPayload {
		s.in = bytes.Buffer{} // otherwise an idle stream would keep the memory of a window
	}
	s.taken += n
	grant := 0
	if s.taken >= window/2 && !s.eof && s.err == nil {
		grant, s.taken = s.taken, 0
	}
	s.mu.Unlock()
	if grant > 0 {
		// A lost connection is reported by the next Read.
		_ = s.m.writeFrame(frame{kindWindow, s.id, binary.BigEndian.AppendUint32(nil, uint32(grant))})
	}
	return n, nil
}

// Write sends p, and waits until the peer accepts it.
func (s *stream) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		s.mu.Lock()
		for s.room == 0 && s.err == nil && !s.shut && !s.writeBy.hasPassed() {
			s.cond.Wait()
		}
		var err error
		switch {
		case s.err != nil:
			err = s.err
		case s.shut:
			err = net.ErrClosed
		case s.writeBy.hasPassed():
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			s.mu.Unlock()
			return n, err
		}
		c := min(len(p)-n, s.room, maxPayload)
		s.room -= c
		s.mu.Unlock()
		if err := s.sendData(frame{kindData, s.id, p[n : n+c]}); err != nil {
			return n, err
		}
		n += c
	}
	return n, nil
}

// sendData writes data, unless the stream was closed meanwhile.
func (s *stream) sendData(f frame) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.mu.Lock()
	shut := s.shut
	s.mu.Unlock()
	if shut {
		return net.ErrClosed
	}
	return s.m.writeFrame(f)
}

// CloseWrite ends the sent data.
func (s *stream) CloseWrite() error {
	s.mu.Lock()
	if s.shut || s.err != nil {
		s.mu.Unlock()
		return nil
	}
	s.shut = true
	over := s.eof
	s.cond.Broadcast()
	s.mu.Unlock()
	s.sendMu.Lock()
	err := s.m.writeFrame(frame{kind: kindEOF, stream: s.id})
	s.sendMu.Unlock()
	if over {
		s.m.forgetStream(s)
	}
	return err
}

// Close ends both directions at once, unless they have ended.
func (s *stream) Close() error {
	s.resetWith(net.ErrClosed)
	return nil
}

// resetWith ends the stream and sends the reason to the peer.
func (s *stream) resetWith(why error) {
	s.mu.Lock()
	over := s.err != nil || s.eof && s.shut
	s.mu.Unlock()
	s.endWith(why)
	s.dropReceived()
	s.m.forgetStream(s)
	if over {
		return
	}
	text := why.Error()
	if len(text) > 4096 {
		text = text[:4096]
	}
	raw, err := json.Marshal(&ResetError{Message: text})
	if err == nil {
		_ = s.m.writeFrame(frame{kindReset, s.id, raw}) // gone anyway when lost
	}
}

// endWith makes every current and later call fail with err. Data received before an EOF can
// still be read.
func (s *stream) endWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.over)
	}
	if !s.eof {
		s.forgetUnread()
	}
	s.cond.Broadcast()
}

// dropReceived discards received data, also before an EOF: this side has closed.
func (s *stream) dropReceived() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetUnread()
}

// forgetUnread discards received data. s.mu must be held.
func (s *stream) forgetUnread() {
	s.m.releaseBytes(s.in.Len())
	s.in = bytes.Buffer{}
}

// contextWithin returns a context that ends with the stream; end releases it.
func (s *stream) contextWithin(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-s.over:
			cancel(ErrGone)
		case <-ended:
		}
	})
	return ctx, func() {
		close(ended)
		watcher.Wait()
		cancel(nil)
	}
}

func (s *stream) addReceived(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.eof {
		return &ProtocolError{fmt.Sprintf("data after the end of stream %d", s.id)}
	}
	if s.err != nil || len(p) == 0 {
		return nil
	}
	if s.in.Len()+s.taken+len(p) > window {
		return &ProtocolError{fmt.Sprintf("stream %d exceeds its window", s.id)}
	}
	if err := s.m.holdBytes(len(p)); err != nil {
		return err
	}
	_, _ = s.in.Write(p) // a buffer accepts all data
	s.cond.Broadcast()
	return nil
}

func (s *stream) addGranted(n uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > window || s.room+int(n) > window {
		return &ProtocolError{fmt.Sprintf("window of stream %d overflows", s.id)}
	}
	s.room += int(n)
	s.cond.Broadcast()
	return nil
}

func (s *stream) peerEOF() {
	s.mu.Lock()
	s.eof = true
	over := s.shut
	s.cond.Broadcast()
	s.mu.Unlock()
	if over {
		s.m.forgetStream(s)
	}
}

// SetDeadline implements net.Conn, and so do the next two methods.
func (s *stream) SetDeadline(t time.Time) error {
	s.setDeadline(&s.readBy, t)
	s.setDeadline(&s.writeBy, t)
	return nil
}

func (s *stream) SetReadDeadline(t time.Time) error {
	s.setDeadline(&s.readBy, t)
	return nil
}

func (s *stream) SetWriteDeadline(t time.Time) error {
	s.setDeadline(&s.writeBy, t)
	return nil
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cond.Broadcast()
		})
	}
	s.cond.Broadcast()
}

func (s *stream) LocalAddr() net.Addr  { return streamAddr("manager") }
func (s *stream) RemoteAddr() net.Addr { return streamAddr("helper") }

type streamAddr string

func (streamAddr) Network() string  { return "slipway" }
func (a streamAddr) String() string { return string(a) }
