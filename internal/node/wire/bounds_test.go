package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
)

// never is a manager's content that does not come until the test is over.
type never struct{ over chan struct{} }

func (n never) OpenBlob(string, int64) (io.ReadCloser, error) {
	<-n.over
	return nil, errors.New("over")
}

// TestUnreadStreams_AreBounded: the session ends long before a host has filled a thousand
// unread streams.
func TestUnreadStreams_AreBounded(t *testing.T) {
	ours, theirs := net.Pipe()
	blobs := never{make(chan struct{})}
	go func() { // the host: all that the manager says is read, and not listened to
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_ = writeHello(theirs)
		var b []byte
		data := make([]byte, maxPayload)
		for id := uint32(2); id <= 2*maxStreams; id += 2 {
			b = appendFrame(b[:0], frame{kindOpen, id, []byte(`{"call":"blob"}`)})
			for range window / maxPayload {
				b = appendFrame(b, frame{kindData, id, data})
			}
			if _, err := theirs.Write(b); err != nil {
				return
			}
		}
	}()
	c, err := NewClient(t.Context(), "h", ours, nil, blobs)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-t.Context().Done():
		t.Fatal("the session goes on")
	}
	close(blobs.over)
	var breach *ProtocolError
	if err := c.m.lostError(); !errors.As(err, &breach) || !strings.Contains(breach.What, "unread") {
		t.Errorf("the session ended with %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := c.m.unread.Load(); n != 0 {
		t.Errorf("%d bytes count as unread after the end", n)
	}
}

// TestSmallFrames_UseLittleMemory: what a stream holds takes about as much memory as it has bytes, also
// if each came alone.
func TestSmallFrames_UseLittleMemory(t *testing.T) {
	s := newStream(&mux{}, 1)
	for range window {
		if err := s.addReceived([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	if s.in.Cap() > 3*window {
		t.Errorf("%d bytes take %d", window, s.in.Cap())
	}
	if err := s.addReceived([]byte{1}); err == nil {
		t.Error("more than a window is taken")
	}
	s.dropReceived()
	if n := s.m.unread.Load(); n != 0 {
		t.Errorf("%d bytes count as unread", n)
	}
}

// TestPartialMessages_CountAsUnread: messages that are not whole yet count like unread streams.
func TestPartialMessages_CountAsUnread(t *testing.T) {
	g := growing{m: &mux{}}
	g.m.unread.Store(maxUnread - 10)
	if n, err := g.Write(make([]byte, 10)); n != 10 || err != nil {
		t.Error(n, err)
	}
	var breach *ProtocolError
	if _, err := g.Write([]byte{1}); !errors.As(err, &breach) {
		t.Errorf("beyond the bound: %v", err)
	}
	g.releaseMemory()
	if n := g.m.unread.Load(); n != maxUnread-10 {
		t.Errorf("%d bytes count as unread", n)
	}
}

func TestMessages_HaveLimits(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind messageType
		size uint32
		good bool
	}{
		{"a result as long as may be", msgResult, maxMessage, true},
		{"a longer result", msgResult, maxMessage + 1, false},
		{"output as long as may be", msgProgress, maxPart, true},
		{"longer output", msgProgress, maxPart + 1, false},
		{"longer input", msgInput, maxPart + 1, false},
		{"a longer outcome", msgOutcome, maxPart + 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			head := binary.BigEndian.AppendUint32(nil, tt.size)
			head = binary.BigEndian.AppendUint32(append(head, byte(tt.kind)), 0)
			_, err := readMessage(bytes.NewReader(head))
			if errors.Is(err, io.ErrUnexpectedEOF) != tt.good {
				t.Error(err)
			}
		})
	}
	if err := writeMessage(io.Discard, msgProgress, progress{}, make([]byte, maxPart)); err == nil {
		t.Error("a message was written that nobody reads")
	}
}

func TestResults_AreBounded(t *testing.T) {
	many := message{kind: msgResult, body: []byte(`{"results":[` + strings.Repeat("{},", mostResults) + `{}]}`)}
	var res response
	if err := many.decodeInto(&res); err == nil || !strings.Contains(err.Error(), "more than 65536 results") {
		t.Errorf("%d results: %v", len(res.Results), err)
	}
	for text, good := range map[string]bool{
		`{"results":[{"kind":"file","target":"/a"}]}`: true, `{"results":null}`: true, `{}`: true,
		`{"results":{}}`: false, `{"results":[{"other":1}]}`: false, `{"results":[1]}`: false,
	} {
		var res response
		if err := (message{body: []byte(text)}).decodeInto(&res); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
	raw, err := json.Marshal(response{Results: []op.Result{{Kind: "file", Target: "/a"}}})
	var back response
	if err = errors.Join(err, (message{body: raw}).decodeInto(&back)); err != nil || len(back.Results) != 1 || back.Results[0].Target != "/a" {
		t.Errorf("%s: %v, %v", raw, back, err)
	}
}
