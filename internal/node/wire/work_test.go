package wire

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/remote"
)

// brief is a helper whose programs end at once.
type brief struct{ Handler }

func (brief) Run(context.Context, remote.Command, io.Reader, io.Writer, io.Writer) (int, error) {
	return 3, nil
}

func (brief) Copy(context.Context, remote.Copy, io.ReadWriter) error { return nil }

// TestWork_EndsWithItsCall: when a run or a copy has been served, what was begun
// for it has ended, even if there is more input to come.
func TestWork_EndsWithItsCall(t *testing.T) {
	for _, call := range []string{callRun, callCopy} {
		left := make(chan string, 1)
		a, b := net.Pipe()
		s := session{handler: brief{}}
		helper := newMux(b, b, 2, func(st *stream, _ []byte) {
			s.serveWork(context.WithoutCancel(t.Context()), st, call)
			left <- goingOn()
			_ = st.Close()
		})
		c := &Client{m: newMux(a, a, 1, nil)}
		for range 50 {
			in, typing := io.Pipe()
			if call == callCopy {
				conn, err := c.OpenCopy(t.Context(), remote.Copy{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Error(err)
				}
				_ = conn.Close()
			} else if code, err := c.Run(t.Context(), remote.Command{}, in, nil, nil); code != 3 || err != nil {
				t.Errorf("the program ended with %d, %v", code, err)
			}
			_ = typing.Close()
			if still := <-left; still != "" {
				t.Fatalf("%s is over, and this is not:\n%s", call, still)
			}
		}
		_ = c.Close()
		helper.wg.Wait()
	}
}

// goingOn is a goroutine of a call, other than the one that asks, or "".
func goingOn() string {
	buf := make([]byte, 1<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	for _, one := range all[1:] {
		for _, what := range []string{"(*session).serveWork", "(*session).serveRun", "wire.receiveInput"} {
			if strings.Contains(one, what) {
				return one
			}
		}
	}
	return ""
}
