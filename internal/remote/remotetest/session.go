package remotetest

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"
)

// serveSession serves one session: at most a terminal, and one command.
func (s *Server) serveSession(ctx context.Context, user string, nc ssh.NewChannel) {
	ch, requests, err := nc.Accept()
	if err != nil {
		return
	}
	defer func() { _ = ch.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	tty := false
	for req := range requests {
		switch req.Type {
		case "pty-req":
			tty = true
			_ = req.Reply(true, nil)
		case "exec":
			var exec struct{ Command string }
			if err := ssh.Unmarshal(req.Payload, &exec); err != nil {
				_ = req.Reply(false, nil)
				continue
			}
			_ = req.Reply(true, nil)
			wg.Go(func() {
				status := s.execCommand(ctx, s.userNamed(user), exec.Command, tty, ch)
				_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
				_ = ch.Close()
			})
		default:
			_ = req.Reply(false, nil)
		}
	}
}

// execCommand runs a command and returns its exit status.
func (s *Server) execCommand(ctx context.Context, user User, command string, tty bool, ch ssh.Channel) uint32 {
	if _, err := io.WriteString(ch, s.config.Noise); err != nil {
		return 1
	}
	if s.config.Shell != nil {
		return s.config.Shell.runCommand(ctx, s.t, command, ch)
	}
	return s.config.Machine.playBootstrap(ctx, user, tty, ch)
}

// forwardConnection forwards a connection, as a bastion does.
func forwardConnection(ctx context.Context, nc ssh.NewChannel) {
	var to struct {
		Host     string
		Port     uint32
		FromHost string
		FromPort uint32
	}
	if err := ssh.Unmarshal(nc.ExtraData(), &to); err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, "malformed")
		return
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, "Connection refused")
		return
	}
	defer func() { _ = conn.Close() }()
	ch, requests, err := nc.Accept()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close(); _ = ch.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { ssh.DiscardRequests(requests) })
	wg.Go(func() {
		_, _ = io.Copy(ch, conn)
		_ = ch.Close()
	})
	_, _ = io.Copy(conn, ch)
	_ = conn.Close()
	wg.Wait()
}
