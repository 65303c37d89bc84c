// Package copiestest provides copy targets for tests: a real SSH server with SFTP, and an
// S3 storage server, each over a directory.
package copiestest

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/node/op"
)

// A Machine accepts one user with one key.
type Machine struct {
	// To is the target configuration, and Key the private key for the login.
	To  op.CopySSH
	Key []byte
	// Dir is its directory on this machine.
	Dir string
}

// newKey generates a private key as text.
func newKey(t *testing.T) (ssh.Signer, []byte) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

// ListenSFTP starts a machine for the duration of a test.
func ListenSFTP(t *testing.T) *Machine {
	t.Helper()
	host, _ := newKey(t)
	user, text := newKey(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() != "keeper" || string(k.Marshal()) != string(user.PublicKey().Marshal()) {
			return nil, errors.New("unknown")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, config: config}
	s.all.Go(func() { s.acceptConns(l) })
	t.Cleanup(func() {
		_ = l.Close() // that ends accept
		s.closeAll()
	})
	dir := t.TempDir()
	return &Machine{Key: text, Dir: dir, To: op.CopySSH{
		Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, User: "keeper", Directory: dir,
		HostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(host.PublicKey()))),
	}}
}

type server struct {
	t      *testing.T
	config *ssh.ServerConfig
	all    sync.WaitGroup
	mu     sync.Mutex
	open   []net.Conn
}

func (s *server) closeAll() {
	s.mu.Lock()
	for _, c := range s.open {
		_ = c.Close() // it may be closed
	}
	s.mu.Unlock()
	s.all.Wait()
}

func (s *server) acceptConns(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.open = append(s.open, c)
		s.mu.Unlock()
		s.all.Go(func() { s.serveConn(c) })
	}
}

// serveConn serves one connection with SFTP only.
func (s *server) serveConn(c net.Conn) {
	conn, channels, requests, err := ssh.NewServerConn(c, s.config)
	if err != nil {
		return // the client reports the error
	}
	defer func() { _ = conn.Close() }() // the other side may have
	s.all.Go(func() { ssh.DiscardRequests(requests) })
	for n := range channels {
		ch, asked, err := n.Accept()
		if err != nil {
			return
		}
		s.all.Go(func() {
			for r := range asked {
				is := r.Type == "subsystem" && strings.HasSuffix(string(r.Payload), "sftp")
				_ = r.Reply(is, nil) // else the connection is gone
				if is {
					s.all.Go(func() { s.serveSFTP(ch) })
				}
			}
		})
	}
}

func (s *server) serveSFTP(ch ssh.Channel) {
	srv, err := sftp.NewServer(ch)
	if err == nil {
		err = errors.Join(srv.Serve(), srv.Close())
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.t.Logf("SFTP: %v", err)
	}
}
