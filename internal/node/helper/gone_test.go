//go:build linux

package helper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/p2p"
)

// helperEnv names the variable that turns this binary into a node helper. Its value is
// the state directory.
const helperEnv = "SLIPWAY_TEST_HELPER"

func TestMain(m *testing.M) {
	dir := os.Getenv(helperEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	conn, err := newStdio(os.Stdin, os.Stdout)
	if err == nil {
		h := &fieldHost{state: dir}
		err = wire.Server{Handler: h.newHandler}.Serve(context.Background(), conn)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// pipes is a connection to a process.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.in.Close(), p.ReadCloser.Close()) }

// TestServe_ExitsWhenTheManagerDies runs a helper as a separate process. The helper loses its manager while
// it sends content to another host: it exits and leaves no files on the host.
func TestServe_ExitsWhenTheManagerDies(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+memoryDir(t))
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err := errors.Join(ierr, oerr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	shelf := &shelf{blobs: map[string][]byte{}}
	ops, size := shelf.fillWith(64 << 20) // more than sockets hold
	content := p2p.New(shelf)
	content.SetHosts(map[string]string{"h1": "127.0.0.1", "h2": "127.0.0.1"})
	link := pipes{out, in}
	c, err := wire.NewClient(t.Context(), "h1", link, nil, content)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if rs, err := c.Apply(t.Context(), remote.Batch{Ops: ops}, nil); err != nil || rs[0].Status != op.Changed {
		t.Fatalf("%+v, %v", rs, err)
	}
	loan := remote.Loan{Digest: ops[0].(op.FetchBlob).Digest, Address: "127.0.0.1", Token: make(remote.Token, remote.TokenSize)}
	offer, err := c.Lend(t.Context(), loan)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", offer.Address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))  // a transfer in progress is interrupted
	_, werr := conn.Write(make([]byte, remote.TokenSize+8)) // the token, and from where on
	_, rerr := io.ReadFull(conn, make([]byte, 1<<20))       // it is in the middle
	if err := errors.Join(werr, rerr); err != nil {
		t.Fatal(err)
	}

	_ = link.Close() // as the kernel does for a manager that is killed
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the helper outlives its manager")
	}
	if n, err := io.Copy(io.Discard, conn); n >= size-1<<20 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the transfer went on for %d bytes: %v", n, err)
	}
	if conn, err := net.Dial("tcp", offer.Address); err == nil {
		_ = conn.Close()
		t.Error("the host still listens")
	}
}
