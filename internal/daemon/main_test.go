package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/server/datadir"
)

const (
	startTime  = 5 * time.Minute
	waitTime   = 3 * time.Minute
	lookPeriod = 50 * time.Millisecond
)

// serverDir is the data directory of the server that runs during the tests: a process runs one
// server.
var serverDir string

func TestMain(m *testing.M) { os.Exit(runWithServer(m)) }

// runWithServer runs the tests while a server runs, as `slipwayd server` starts it.
func runWithServer(m *testing.M) int {
	root, err := os.MkdirTemp("", "slipwayd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(root)
	serverDir = filepath.Join(root, "data")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	log := &lockedBuffer{}
	ended := make(chan int, 1)
	go func() {
		ended <- Main(ctx, []string{"server", "--data-dir", serverDir, "--listen", "127.0.0.1:0"}, Streams{Out: log, Err: log})
	}()
	code := 1
	if waitForServer(ended) {
		code = m.Run()
	}
	stop()
	select {
	case server := <-ended:
		if server != exitDone || code != 0 {
			fmt.Fprintf(os.Stderr, "exit code of the server: %d, its log:\n%s", server, log)
			return max(code, server)
		}
	case <-time.After(startTime):
		fmt.Fprintf(os.Stderr, "the server has not stopped, its log:\n%s", log)
		return 1
	}
	return code
}

// waitForServer waits until the server is ready, and reports whether it is.
func waitForServer(ended chan int) bool {
	late := time.After(startTime)
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		select {
		case code := <-ended:
			ended <- code
			return false
		case <-late:
			return false
		case <-tick.C:
			if holder, err := datadir.ReadHolder(serverDir); err == nil && holder.Address != "" {
				return true
			}
		}
	}
}

// eventually calls look until it reports no problem, "".
func eventually(t *testing.T, look func() string) {
	t.Helper()
	late := time.NewTimer(waitTime)
	defer late.Stop()
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		problem := look()
		if problem == "" {
			return
		}
		select {
		case <-late.C:
			t.Fatal(problem)
		case <-tick.C:
		}
	}
}

// A lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds to the buffer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns the content.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A result is the result of a command.
type result struct {
	code     int
	out, err string
}

// runCommand runs a command on the data directory of the server, unless args name another.
func runCommand(t *testing.T, args ...string) result {
	t.Helper()
	if !slices.Contains(args, "--data-dir") {
		args = append(args, "--data-dir", serverDir)
	}
	out, problems := &lockedBuffer{}, &lockedBuffer{}
	code := Main(t.Context(), args, Streams{In: strings.NewReader(""), Out: out, Err: problems})
	return result{code, out.String(), problems.String()}
}
