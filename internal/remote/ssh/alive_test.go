package ssh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/remote"
)

// A pipeEnd is one end of a connection in memory that does not wait for its
// reader; when it is cut, what is written is lost.
type pipeEnd struct {
	net.Conn
	sent chan []byte
	over chan struct{} // closed when the test is over
	cut  *atomic.Bool
}

func (w *pipeEnd) Write(p []byte) (int, error) {
	if w.cut.Load() {
		return len(p), nil
	}
	select {
	case w.sent <- bytes.Clone(p):
		return len(p), nil
	case <-w.over:
		return 0, net.ErrClosed
	}
}

func (w *pipeEnd) carryBytes() {
	for {
		select {
		case p := <-w.sent:
			if _, err := w.Conn.Write(p); err != nil {
				return
			}
		case <-w.over:
			return
		}
	}
}

// connectInMemory is a login to a server in memory, whose shell answers each line
// that it is sent, and ends after "exit".
func connectInMemory(t *testing.T) (client *ssh.Client, cut *atomic.Bool) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(key)
	cut = &atomic.Bool{}
	here, there := net.Pipe()
	ends := [2]*pipeEnd{}
	for i, c := range []net.Conn{here, there} {
		ends[i] = &pipeEnd{Conn: c, sent: make(chan []byte, 1000), over: make(chan struct{}), cut: cut}
		go ends[i].carryBytes()
	}
	t.Cleanup(func() {
		for _, e := range ends {
			_ = e.Close()
			close(e.over)
		}
	})
	go serveConnection(ends[1], config)
	conn, channels, requests, err := ssh.NewClientConn(ends[0], "memory",
		&ssh.ClientConfig{User: "root", HostKeyCallback: ssh.FixedHostKey(key.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	return ssh.NewClient(conn, channels, requests), cut
}

func serveConnection(c net.Conn, config *ssh.ServerConfig) {
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	go ssh.DiscardRequests(requests) // replies to the requests
	for nc := range channels {
		channel, asked, err := nc.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range asked {
				_ = r.Reply(true, nil)
			}
		}()
		go func() {
			defer func() { _ = channel.Close() }()
			var line []byte
			for b := make([]byte, 1); ; {
				if _, err := channel.Read(b); err != nil {
					return
				}
				if line = append(line, b[0]); b[0] == '\r' {
					_, _ = channel.Write(line)
					if string(line) == "exit\r" {
						_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{7}))
						return
					}
					line = nil
				}
			}
		}()
	}
}

// TestShell_EndsWithADeadConnection: a dead connection ends automatically, or when the user leaves;
// a quiet connection is kept.
func TestShell_EndsWithADeadConnection(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		terminal     bool
		cut          bool
		typed        string // after two minutes
		code         int
		after        time.Duration
		err, said    string
	}{
		{"quiet", "nobody has typed for long", true, false, "exit\r", 7, 2 * time.Minute, "", ""},
		{"dead", "the network is gone", true, true, "", 0, 40 * time.Second, "the connection is dead: no answer for 30s", ""},
		{"dead, without a terminal", "nobody is there to leave", false, true, "", 0, 40 * time.Second, "the connection is dead", ""},
		{"left", "the person has enough", true, false, "ls\r~.", leftCode, 2 * time.Minute, "", "Left h1."},
		{"no terminal", "what a program sends is sent", false, false, "~.\rexit\r", 7, 2 * time.Minute, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, cut := connectInMemory(t)
				if tc.cut {
					time.AfterFunc(time.Second, func() { cut.Store(true) })
				}
				in, typing := io.Pipe()
				defer func() { _ = typing.Close() }()
				go func() {
					select {
					case <-time.After(2 * time.Minute):
						_, _ = io.WriteString(typing, tc.typed)
					case <-t.Context().Done():
					}
				}()
				var out, errw bytes.Buffer
				sh := remote.Shell{In: in, Out: &out, Err: &errw}
				if tc.terminal {
					sh.Terminal = &remote.Terminal{Name: "dumb", Rows: 24, Columns: 80}
				}
				begin := time.Now()
				code, err := runConversation(t.Context(), "h1", client, sh)
				if code != tc.code || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) ||
					!strings.Contains(errw.String(), tc.said) {
					t.Errorf("%d, %v, %q: %s", code, err, errw.String(), tc.reason)
				}
				var re *remote.Error
				if tc.err != "" && (!errors.As(err, &re) || re.Reason != remote.Unreachable || re.Remedy == "") {
					t.Errorf("nobody says what to do: %#v", err)
				}
				if took := time.Since(begin); took != tc.after {
					t.Errorf("it ended after %s, want %s: %s", took, tc.after, tc.reason)
				}
				_ = in.Close()
			})
		})
	}
}

// The caller can end the shell, also when the host does not respond.
func TestShell_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, cut := connectInMemory(t)
		cut.Store(true)
		stop := errors.New("stopped")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, stop)
		defer cancel()
		if _, err := runConversation(ctx, "h1", client, remote.Shell{Out: io.Discard, Err: io.Discard}); !errors.Is(err, stop) {
			t.Errorf("it ends with %v", err)
		}
	})
}

func TestEscapes_LeaveTheShell(t *testing.T) {
	for _, tc := range []struct {
		name, typed, out string
		left             bool
	}{
		{"plain", "ls -l ~/x\r", "ls -l ~/x\r", false},
		{"at once", "~.rest", "", true},
		{"after a line", "ls\r~.rest", "ls\r", true},
		{"after a line feed", "ls\n~.", "ls\n", true},
		{"within a line", "ls ~.\r", "ls ~.\r", false},
		{"a tilde", "~~.\r~~", "~.\r~", false},
		{"another escape", "~x\r~\r~.", "~x\r~\r", true},
		{"after what is none", "~x~.\r", "~x~.\r", false},
		{"the end after a tilde", "ls\r~", "ls\r~", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for how, from := range map[string]io.Reader{
				"whole":        strings.NewReader(tc.typed),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tc.typed)),
			} {
				left := false
				out, err := io.ReadAll(&escapes{from: from, bol: true, leave: func() { left = true }})
				if err != nil || string(out) != tc.out || left != tc.left {
					t.Errorf("%s: %q becomes %q, left: %t, %v", how, tc.typed, out, left, err)
				}
			}
		})
	}
}
