// Package remotetest is an SSH server for tests on loopback, with the real protocol and
// with configurable faults. Commands are run by a real shell, or the host is simulated.
package remotetest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
)

// A User can log in.
type User struct {
	Name string // "root" is root
	// Keys, certificates of CA, and Password are accepted for the login.
	Keys     []ssh.PublicKey
	CA       ssh.PublicKey
	Password string
	Sudo     Sudo
}

// Sudo configures sudo for a user of a simulated host.
type Sudo struct {
	Allowed    bool
	Password   string // required, if not ""
	RequireTTY bool
	Missing    bool // sudo is not installed
}

// Config configures a server and its host.
type Config struct {
	Users   []User
	HostKey ssh.Signer // nil: a new one
	// Shell runs commands; nil simulates Machine.
	Shell   *Shell
	Machine Machine
	// Noise is printed by the login shell before anything else.
	Noise string
	// MaxSessions limits the sessions of one connection; 0 means no limit.
	MaxSessions int
	// Interactive accepts passwords only through keyboard-interactive.
	Interactive bool
	// Deaf servers accept connections and send nothing.
	Deaf bool
	// CutAfter closes the first connection after this many bytes; 0 means never.
	CutAfter int64
	// Slow limits a connection to this many bytes a second; 0 means no limit.
	Slow int
}

// A Server is one SSH server.
type Server struct {
	t      testing.TB
	config Config
	listen net.Listener
	port   int
	wg     sync.WaitGroup
	end    context.CancelFunc

	mu     sync.Mutex
	key    ssh.Signer
	more   []ssh.Signer
	conns  map[net.Conn]bool
	logins int
	cut    bool // CutAfter has been used up
	down   bool // connections are refused
}

// StartServer starts a server that ends with the test.
func StartServer(t testing.TB, c Config) *Server {
	t.Helper()
	if c.HostKey == nil {
		c.HostKey = NewKey(t)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &Server{t: t, config: c, listen: l, port: l.Addr().(*net.TCPAddr).Port, end: end, key: c.HostKey, conns: map[net.Conn]bool{}}
	s.wg.Go(func() { s.acceptConnections(ctx) })
	t.Cleanup(s.stopServer)
	return s
}

// NewKey makes an Ed25519 key.
func NewKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// HostWith returns a host for this server; the caller sets the login.
func (s *Server) HostWith(name string, login v1alpha1.SSH) v1alpha1.Host {
	login.Port = s.port
	return v1alpha1.Host{Name: name, Address: "127.0.0.1", SSH: login}
}

// Port returns the port of the server.
func (s *Server) Port() int { return s.port }

// LoginCount returns the number of successful logins.
func (s *Server) LoginCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// SetHostKey replaces the host key for new connections.
func (s *Server) SetHostKey(key ssh.Signer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// AddHostKey adds a host key, or a certificate for the host key, for new connections.
func (s *Server) AddHostKey(key ssh.Signer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = append(s.more, key)
}

// HostKey returns the current host key.
func (s *Server) HostKey() ssh.PublicKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key.PublicKey()
}

// CutConnections closes all connections.
func (s *Server) CutConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// SetDown makes the server close new connections at once, or accept them again.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *Server) stopServer() {
	s.end()
	_ = s.listen.Close()
	s.CutConnections()
	s.wg.Wait()
}

func (s *Server) acceptConnections(ctx context.Context) {
	for {
		conn, err := s.listen.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.down || ctx.Err() != nil {
			_ = conn.Close()
			s.mu.Unlock()
			continue
		}
		if s.config.CutAfter > 0 && !s.cut {
			s.cut = true
			conn = &cutting{Conn: conn, left: s.config.CutAfter}
		}
		if s.config.Slow > 0 {
			conn = &slow{Conn: conn, end: ctx.Done(), rate: s.config.Slow}
		}
		s.conns[conn] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serveConnection(ctx, conn)
			_ = conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

// slow is a slow connection.
type slow struct {
	net.Conn
	end  <-chan struct{}
	rate int
}

func (c *slow) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), c.rate/20+1)])
	t := time.NewTimer(time.Second * time.Duration(n) / time.Duration(c.rate))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.end:
	}
	return n, err
}

// cutting is a connection that is closed after a number of bytes.
type cutting struct {
	net.Conn
	left int64
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.left <= 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

func (s *Server) serveConnection(ctx context.Context, conn net.Conn) {
	if s.config.Deaf {
		_, _ = conn.Read(make([]byte, 1))
		<-ctx.Done()
		return
	}
	s.mu.Lock()
	config := s.authConfig()
	for _, key := range append([]ssh.Signer{s.key}, s.more...) {
		config.AddHostKey(key)
	}
	s.mu.Unlock()
	sc, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return // a rejected login
	}
	s.mu.Lock()
	s.logins++
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { ssh.DiscardRequests(requests) })
	slots := make(chan struct{}, 1000)
	if s.config.MaxSessions > 0 {
		slots = make(chan struct{}, s.config.MaxSessions)
	}
	for nc := range channels {
		switch nc.ChannelType() {
		case "session":
			select {
			case slots <- struct{}{}:
				wg.Go(func() {
					defer func() { <-slots }()
					s.serveSession(ctx, sc.User(), nc)
				})
			default:
				_ = nc.Reject(ssh.ConnectionFailed, "open failed")
			}
		case "direct-tcpip":
			wg.Go(func() { forwardConnection(ctx, nc) })
		default:
			_ = nc.Reject(ssh.UnknownChannelType, nc.ChannelType())
		}
	}
}

var errRefused = errors.New("refused")

// authConfig configures the accepted logins.
func (s *Server) authConfig() *ssh.ServerConfig {
	config := &ssh.ServerConfig{}
	config.PublicKeyCallback = func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if cert, ok := key.(*ssh.Certificate); ok {
			ca := s.userNamed(c.User()).CA
			checker := ssh.CertChecker{IsUserAuthority: func(by ssh.PublicKey) bool {
				return ca != nil && string(by.Marshal()) == string(ca.Marshal())
			}}
			return checker.Authenticate(c, cert)
		}
		for _, k := range s.userNamed(c.User()).Keys {
			if string(k.Marshal()) == string(key.Marshal()) {
				return nil, nil
			}
		}
		return nil, errRefused
	}
	check := func(user, password string) error {
		if u := s.userNamed(user); u.Password == "" || u.Password != password {
			return errRefused
		}
		return nil
	}
	if !s.config.Interactive {
		config.PasswordCallback = func(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return nil, check(c.User(), string(password))
		}
		return config
	}
	config.KeyboardInteractiveCallback = func(c ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
		answers, err := ask("", "", []string{"Password: "}, []bool{false})
		if err != nil || len(answers) != 1 {
			return nil, errRefused
		}
		return nil, check(c.User(), answers[0])
	}
	return config
}

// userNamed returns the user of a login.
func (s *Server) userNamed(name string) User {
	for _, u := range s.config.Users {
		if u.Name == name {
			return u
		}
	}
	return User{Name: name}
}
