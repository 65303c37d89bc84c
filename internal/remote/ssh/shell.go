package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
)

// StartShell logs in to host as Connect does, connects its login shell to the caller, and
// returns the exit code of the shell. It uses Slipway's SSH instead of the program ssh,
// so that both use the same keys, passwords, bastion and known hosts.
func (d *Dialer) StartShell(ctx context.Context, host v1alpha1.Host, sh remote.Shell, opts remote.Options) (int, error) {
	opts, err := completeOptions(opts)
	if err != nil {
		return 0, err
	}
	r, err := resolveRoute(host, opts)
	if err != nil {
		return 0, err
	}
	client, leave, err := d.openRoute(ctx, r, opts)
	if err != nil {
		return 0, err
	}
	defer leave()
	return runConversation(ctx, host.Name, client, sh)
}

const (
	// A keepalive request is sent at this interval; after this many intervals without an
	// answer, the connection is dead.
	aliveEvery  = 10 * time.Second
	aliveMissed = 3
	// leftCode is the exit code of a shell that the caller left: the same as for ssh.
	leftCode = 255
)

// runConversation runs the shell until it ends, the connection ends, or the caller leaves it.
func runConversation(ctx context.Context, host string, client *ssh.Client, sh remote.Shell) (int, error) {
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	watch := watchConnection(client)
	var left atomic.Bool
	if sh.Terminal != nil && sh.In != nil {
		sh.In = &escapes{from: sh.In, bol: true, leave: func() {
			left.Store(true)
			_ = client.Close()
		}}
	}
	code, err := runShell(client, sh)
	switch dead := watch(); {
	case dead:
		return 0, &remote.Error{
			Host: host, Reason: remote.Unreachable, Err: err,
			Cause:  fmt.Sprintf("the connection is dead: no answer for %s", aliveMissed*aliveEvery),
			Remedy: "check the host and its network; programs in the shell may still be running",
		}
	case left.Load():
		fmt.Fprintf(sh.Err, "\r\nLeft %s.\r\n", host)
		return leftCode, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	return code, err
}

// watchConnection closes a connection whose other end no longer answers. stop closes it as well,
// and reports whether it was dead.
func watchConnection(client *ssh.Client) (stop func() (dead bool)) {
	over, done := make(chan struct{}), make(chan struct{})
	dead := false
	go func() {
		defer close(done)
		dead = isSilent(client, over)
	}()
	return func() bool {
		close(over)
		_ = client.Close()
		<-done
		return dead
	}
}

// isSilent sends keepalive requests until over, or until one is not answered.
func isSilent(client *ssh.Client, over <-chan struct{}) bool {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	var answer chan error // of a pending request
	var asking sync.WaitGroup
	defer func() {
		_ = client.Close()
		asking.Wait()
	}()
	for missed := 0; missed < aliveMissed; {
		select {
		case <-over:
			return false
		case err := <-answer:
			if answer, missed = nil, 0; err != nil {
				return false // it ended for another reason
			}
		case <-tick.C:
			if answer != nil {
				missed++
				continue
			}
			said := make(chan error, 1)
			answer = said
			asking.Go(func() {
				_, _, err := client.SendRequest("keepalive@openssh.com", true, nil) // any answer proves that the other end is alive
				said <- err
			})
		}
	}
	return true
}

// escapes processes the input of the user as ssh does: "~." at the start of a line leaves
// the shell, "~~" at the start of a line is "~".
type escapes struct {
	from  io.Reader
	leave func()
	bol   bool   // at the beginning of a line
	tilde bool   // after a tilde there, with the next character pending
	out   []byte // not passed on yet
}

func (e *escapes) Read(p []byte) (int, error) {
	for len(e.out) == 0 {
		buf := make([]byte, len(p))
		n, err := e.from.Read(buf)
		if !e.takeInput(buf[:n]) {
			e.leave()
			e.from, e.tilde, err = strings.NewReader(""), false, nil // earlier input is still passed on
		}
		if err != nil && e.tilde {
			e.out, e.tilde = append(e.out, '~'), false
		}
		if err != nil && len(e.out) == 0 {
			return 0, err
		}
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

// takeInput processes typed input; false means that the user leaves.
func (e *escapes) takeInput(typed []byte) bool {
	for _, c := range typed {
		switch {
		case e.tilde && c == '.':
			return false
		case e.tilde && c != '~':
			e.out = append(e.out, '~', c)
		case !e.tilde && e.bol && c == '~':
			e.tilde, e.bol = true, false
			continue
		default:
			e.out = append(e.out, c)
		}
		e.tilde, e.bol = false, c == '\r' || c == '\n'
	}
	return true
}

// runShell runs the shell to its end.
func runShell(client *ssh.Client, sh remote.Shell) (int, error) {
	sess, err := client.NewSession()
	if err != nil {
		return 0, fmt.Errorf("opening a shell: %w", err)
	}
	defer func() { _ = sess.Close() }()
	sess.Stdout, sess.Stderr = sh.Out, sh.Err
	// Not sess.Stdin: the session would wait for its end, and a terminal has none.
	in, err := sess.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("opening a shell: %w", err)
	}
	if t := sh.Terminal; t != nil {
		if err := sess.RequestPty(t.Name, t.Rows, t.Columns, ssh.TerminalModes{}); err != nil {
			return 0, fmt.Errorf("requesting a terminal from the host: %w", err)
		}
		over := make(chan struct{})
		defer close(over)
		go followSize(sess, t, over)
	}
	if len(sh.Argv) == 0 {
		err = sess.Shell()
	} else {
		err = sess.Start(quoteArgs(sh.Argv))
	}
	if err != nil {
		return 0, fmt.Errorf("starting a shell: %w", err)
	}
	go feedInput(in, sh.In) // ends with its input, or at the first write after the end
	err = sess.Wait()
	var exit *ssh.ExitError
	var cut *ssh.ExitMissingError
	switch {
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	case errors.As(err, &cut):
		return 0, errors.New("the connection was lost")
	}
	return 0, err
}

// feedInput copies input. A nil input is at its end.
func feedInput(in io.WriteCloser, from io.Reader) {
	if from != nil {
		_, _ = io.Copy(in, from)
	}
	_ = in.Close()
}

// followSize reports new terminal sizes to the host.
func followSize(sess *ssh.Session, t *remote.Terminal, over <-chan struct{}) {
	for {
		select {
		case size := <-t.Resized:
			if sess.WindowChange(size[1], size[0]) != nil {
				return
			}
		case <-over:
			return
		}
	}
}

// quoteArgs returns a command line for a login shell, because SSH has no argument list: each
// argument reaches the program unchanged.
func quoteArgs(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
