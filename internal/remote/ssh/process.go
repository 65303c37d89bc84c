package ssh

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/remote/bootstrap"
)

// starter starts commands over one login, one at a time: a server may not allow a second
// session.
type starter struct {
	client *ssh.Client
	last   *process
}

// rawTerminal makes a terminal pass every byte unchanged (RFC 4254, section 8).
func rawTerminal() ssh.TerminalModes {
	return ssh.TerminalModes{
		ssh.IGNPAR: 1, ssh.PARMRK: 0, ssh.INPCK: 0, ssh.ISTRIP: 0, ssh.INLCR: 0, ssh.IGNCR: 0, ssh.ICRNL: 0,
		ssh.IXON: 0, ssh.IXANY: 0, ssh.IXOFF: 0, ssh.ISIG: 0, ssh.ICANON: 0, ssh.ECHO: 0, ssh.ECHOE: 0,
		ssh.ECHOK: 0, ssh.ECHONL: 0, ssh.IEXTEN: 0, ssh.OPOST: 0, ssh.ONLCR: 0, ssh.CS8: 1, ssh.PARENB: 0,
		ssh.TTY_OP_ISPEED: 38400, ssh.TTY_OP_OSPEED: 38400,
	}
}

// Start implements session.Starter.
func (s *starter) Start(ctx context.Context, command string, tty bool) (bootstrap.Process, error) {
	if s.last != nil {
		s.last.waitGone(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.client.Close() })
	defer stop()
	sess, err := s.openSession(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{client: s.client, sess: sess, ended: make(chan struct{})}
	if err := p.startCommand(command, tty); err != nil {
		_ = sess.Close()
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = sess.Wait() // the exit status of a shell is not needed
	}()
	s.last = p
	return p, nil
}

// openSession opens a session. A server that allows only one session may still count the last
// one, although it has reported its end.
func (s *starter) openSession(ctx context.Context) (*ssh.Session, error) {
	for attempt := 1; ; attempt++ {
		sess, err := s.client.NewSession()
		var refused *ssh.OpenChannelError
		if err == nil || s.last == nil || attempt == 10 || !errors.As(err, &refused) {
			return sess, err
		}
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// process is a command in an SSH session.
type process struct {
	client         *ssh.Client
	sess           *ssh.Session
	in             io.WriteCloser
	writing        sync.Mutex // held during writes and the close of in
	stdout, stderr io.Reader
	ended          chan struct{} // closed when the session is over
	once           sync.Once
}

func (p *process) startCommand(command string, tty bool) error {
	var err error
	if p.in, err = p.sess.StdinPipe(); err != nil {
		return err
	}
	if p.stdout, err = p.sess.StdoutPipe(); err != nil {
		return err
	}
	if p.stderr, err = p.sess.StderrPipe(); err != nil {
		return err
	}
	if tty {
		if err := p.sess.RequestPty("dumb", 24, 80, rawTerminal()); err != nil {
			return err
		}
	}
	return p.sess.Start(command)
}

func (p *process) Write(b []byte) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	return p.in.Write(b)
}

func (p *process) Stdout() io.Reader { return p.stdout }
func (p *process) Stderr() io.Reader { return p.stderr }

// endInput waits for a running Write: writing to a channel and closing it at the same
// time is a race in the library.
func (p *process) endInput() {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.in.Close()
}

// closeGrace is the time for a command to exit after its input has ended.
const closeGrace = 2 * time.Second

// Close closes standard input, which makes the helper exit, and waits for it. If the
// command does not exit, or the network is gone, the login is closed.
func (p *process) Close() error {
	p.once.Do(func() {
		go p.endInput() // may block until the login is closed
		t := time.NewTimer(closeGrace)
		defer t.Stop()
		select {
		case <-p.ended:
			_ = p.sess.Close()
		case <-t.C:
			_ = p.client.Close()
			<-p.ended
		}
	})
	return nil
}

// waitGone waits until the server no longer has the session.
func (p *process) waitGone(ctx context.Context) {
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
}
