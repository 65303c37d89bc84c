package sshx

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

// Shell logs in to host as Connect does, and has its login shell talk to the
// caller; it answers the shell's exit code. It is our own SSH and not the
// system's program, so that what logs in for operations logs in here: the same
// keys, passwords and their sources, bastion, and list of host keys.
func (d *Dialer) Shell(ctx context.Context, host v1alpha1.Host, sh remote.Shell, opts remote.Options) (int, error) {
	opts, err := complete(opts)
	if err != nil {
		return 0, err
	}
	r, err := resolve(host, opts)
	if err != nil {
		return 0, err
	}
	client, leave, err := d.open(ctx, r, opts)
	if err != nil {
		return 0, err
	}
	defer leave()
	return converse(ctx, host.Name, client, sh)
}

const (
	// Every so often the other end is asked whether it is there; when so many
	// times passed without an answer, it is not.
	aliveEvery  = 10 * time.Second
	aliveMissed = 3
	// leftCode is the exit code of a shell that the caller left: ssh's own.
	leftCode = 255
)

// converse runs the shell to its end, to that of the connection, or until the
// caller leaves it.
func converse(ctx context.Context, host string, client *ssh.Client, sh remote.Shell) (int, error) {
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	watch := watched(client)
	var left atomic.Bool
	if sh.Terminal != nil && sh.In != nil {
		sh.In = &escapes{from: sh.In, bol: true, leave: func() {
			left.Store(true)
			_ = client.Close()
		}}
	}
	code, err := talk(client, sh)
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

// watched closes a connection whose other end does not answer any more. Stop
// closes it as well, and says whether it was so.
func watched(client *ssh.Client) (stop func() (dead bool)) {
	over, done := make(chan struct{}), make(chan struct{})
	dead := false
	go func() {
		defer close(done)
		dead = silent(client, over)
	}()
	return func() bool {
		close(over)
		_ = client.Close()
		<-done
		return dead
	}
}

// silent asks the other end whether it is there until over, or until it is not.
func silent(client *ssh.Client, over <-chan struct{}) bool {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	var answer chan error // of a question under way
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
				return false // it ended otherwise
			}
		case <-tick.C:
			if answer != nil {
				missed++
				continue
			}
			said := make(chan error, 1)
			answer = said
			asking.Go(func() {
				_, _, err := client.SendRequest("keepalive@openssh.com", true, nil) // whatever it says, it is there
				said <- err
			})
		}
	}
	return true
}

// escapes is what a person types, as ssh takes it: "~." at the beginning of a
// line leaves the shell, "~~" there is "~".
type escapes struct {
	from  io.Reader
	leave func()
	bol   bool   // at the beginning of a line
	tilde bool   // and after a tilde there, which waits for what follows
	out   []byte // not handed on yet
}

func (e *escapes) Read(p []byte) (int, error) {
	for len(e.out) == 0 {
		buf := make([]byte, len(p))
		n, err := e.from.Read(buf)
		if !e.take(buf[:n]) {
			e.leave()
			e.from, e.tilde, err = strings.NewReader(""), false, nil // what came before is still theirs
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

// take goes through what was typed; false is that the person leaves.
func (e *escapes) take(typed []byte) bool {
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

// talk runs the shell to its end.
func talk(client *ssh.Client, sh remote.Shell) (int, error) {
	sess, err := client.NewSession()
	if err != nil {
		return 0, fmt.Errorf("opening a shell: %w", err)
	}
	defer func() { _ = sess.Close() }()
	sess.Stdout, sess.Stderr = sh.Out, sh.Err
	// Not sess.Stdin: its end would be waited for, and a terminal has none.
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
		go follow(sess, t, over)
	}
	if len(sh.Argv) == 0 {
		err = sess.Shell()
	} else {
		err = sess.Start(quoted(sh.Argv))
	}
	if err != nil {
		return 0, fmt.Errorf("starting a shell: %w", err)
	}
	go feed(in, sh.In) // ends with its input, or at the first write after the end
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

// feed hands input on. An input that is nil is at its end.
func feed(in io.WriteCloser, from io.Reader) {
	if from != nil {
		_, _ = io.Copy(in, from)
	}
	_ = in.Close()
}

// follow tells the host of new sizes of the terminal.
func follow(sess *ssh.Session, t *remote.Terminal, over <-chan struct{}) {
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

// quoted is a command for a login shell, which is all that SSH has: each
// argument reaches the program as it is.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
