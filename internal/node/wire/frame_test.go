package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadFrame_ReadsWrittenFrames(t *testing.T) {
	oversize := binary.BigEndian.AppendUint32(nil, maxPayload+1)
	tests := map[string]struct {
		reason string
		in     []byte
		want   frame
		breach bool  // a *ProtocolError
		err    error // another error
	}{
		"data": {
			"what is written is read", appendFrame(nil, frame{kindData, 7, []byte("abc")}),
			frame{kindData, 7, []byte("abc")},
			false, nil,
		},
		"empty":    {"a sign of life has no payload", appendFrame(nil, frame{kind: kindAlive}), frame{kind: kindAlive}, false, nil},
		"end":      {"an end between frames is an end", nil, frame{}, false, io.EOF},
		"cut head": {"an end within a frame is none", []byte{0, 0, 0}, frame{}, false, io.ErrUnexpectedEOF},
		"cut body": {
			"an end within a frame is none", appendFrame(nil, frame{kindData, 7, []byte("abc")})[:10],
			frame{},
			false, io.ErrUnexpectedEOF,
		},
		"no body": {
			"an end within a frame is none", appendFrame(nil, frame{kindData, 7, []byte("abc")})[:9],
			frame{},
			false, io.ErrUnexpectedEOF,
		},
		"oversize":  {"a length is bounded before memory is taken", append(oversize, byte(kindData), 0, 0, 0, 1), frame{}, true, nil},
		"kind zero": {"zeros are no frame", make([]byte, 9), frame{}, true, nil},
		"garbage":   {"text is no frame", []byte("Welcome to the machine\n"), frame{}, true, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readFrame(bytes.NewReader(tt.in), nil)
			var breach *ProtocolError
			if errors.As(err, &breach) != tt.breach || !tt.breach && !errors.Is(err, tt.err) {
				t.Fatalf("%s: error %v", tt.reason, err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(frame{})); diff != "" {
				t.Errorf("%s:\n%s", tt.reason, diff)
			}
		})
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, frame{kindData, 1, []byte("x")}))
	f.Add([]byte("SSH-2.0-OpenSSH"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := readFrame(bytes.NewReader(in), make([]byte, 8))
		if err != nil {
			return
		}
		if again := appendFrame(nil, got); !bytes.Equal(again, in[:len(again)]) {
			t.Errorf("a frame reads and writes differently: %x, %x", in, again)
		}
	})
}

func FuzzReadMessage(f *testing.F) {
	var b bytes.Buffer
	if err := writeMessage(&b, msgProgress, progress{Op: 1}, []byte("out")); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := readMessage(bytes.NewReader(in))
		if err != nil {
			return
		}
		if len(m.body)+len(m.raw)+messageHeaderSize > len(in) {
			t.Error("a message is longer than what it was read from")
		}
	})
}

// FuzzSession feeds a session with whatever: it may end, not hang or crash.
func FuzzSession(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, frame{kindOpen, 2, []byte(`{"call":"blob"}`)}), frame{kind: kindGoodbye}))
	f.Add(appendFrame(nil, frame{kindWindow, 1, []byte{255, 255, 255, 255}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		rw := &script{in: bytes.NewReader(in)}
		m := newMux(rw, rw, 1, func(s *stream, _ []byte) {
			_, _ = io.Copy(io.Discard, s)
			_ = s.Close()
		})
		if _, err := m.openStream(header{Call: callCheck}); err == nil {
			<-m.done
		}
		m.closeSession()
		m.wg.Wait()
	})
}

// script is a peer that sends prepared bytes and ignores its input.
type script struct{ in *bytes.Reader }

func (s *script) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error) { return len(p), nil }
func (s *script) Close() error                { return nil }
