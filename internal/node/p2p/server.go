package p2p

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"slipway.dev/slipway/internal/remote"
)

// A Lender sends content of this host to others. The zero value works; its methods can be
// called concurrently.
type Lender struct {
	mu    sync.Mutex
	held  map[string]*held
	loans map[[sha256.Size]byte]loan // by the digest of the token
	// listen is created by the first loan, with a certificate only for this Lender.
	listen net.Listener
	print  []byte // digest of the certificate
	conns  map[net.Conn]bool
	serve  chan struct{} // one for each running transfer
	closed bool
	wg     sync.WaitGroup
}

// held is content on loan or ready for it. Its file may have been removed.
type held struct {
	file *os.File
	size int64
	idle *time.Timer
}

type loan struct {
	digest string
	ends   time.Time
}

// HoldFile keeps the file at path open for other hosts, until none has requested it for some
// minutes. digest is the digest of its content.
func (l *Lender) HoldFile(digest, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("storing content for other hosts: %w", err)
	}
	info, err := f.Stat()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.closed {
		err = net.ErrClosed
	}
	if err != nil {
		return errors.Join(fmt.Errorf("storing content for other hosts: %w", err), f.Close())
	}
	if l.held == nil {
		l.held = map[string]*held{}
	}
	l.dropContent(digest)
	h := &held{file: f, size: info.Size()}
	h.idle = time.AfterFunc(holdTime, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held[digest] == h {
			l.dropContent(digest)
		}
	})
	l.held[digest] = h
	return nil
}

// dropContent closes content; its transfers are aborted. l.mu must be held.
func (l *Lender) dropContent(digest string) {
	if h := l.held[digest]; h != nil {
		h.idle.Stop()
		_ = h.file.Close() // it was only read
		delete(l.held, digest)
	}
}

// LetGo frees the disk space of held content.
func (l *Lender) LetGo() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for digest := range l.held {
		l.dropContent(digest)
	}
}

// Lend sends held content to the first host that presents the loan's token within two
// minutes. The first loan starts the listener on the loan's address. The offer is empty
// if the content is no longer held.
func (l *Lender) Lend(ctx context.Context, ln remote.Loan) (remote.Offer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[ln.Digest]
	switch {
	case l.closed:
		return remote.Offer{}, net.ErrClosed
	case h == nil:
		return remote.Offer{}, nil
	case len(ln.Token) != remote.TokenSize:
		return remote.Offer{}, errors.New("the token is invalid")
	}
	if ip, err := netip.ParseAddr(ln.Address); err != nil || ip.IsUnspecified() {
		return remote.Offer{}, fmt.Errorf("%q is not the address of one host", ln.Address)
	}
	if l.listen == nil {
		if err := l.openListener(ctx, ln.Address); err != nil {
			return remote.Offer{}, fmt.Errorf("listening for other hosts on %s: %w", ln.Address, err)
		}
	}
	now := time.Now()
	for token, old := range l.loans {
		if now.After(old.ends) {
			delete(l.loans, token)
		}
	}
	l.loans[sha256.Sum256(ln.Token)] = loan{ln.Digest, now.Add(loanTime)}
	h.idle.Reset(holdTime)
	return remote.Offer{Address: l.listen.Addr().String(), Certificate: l.print}, nil
}

// openListener creates a certificate and listens. l.mu must be held.
func (l *Lender) openListener(ctx context.Context, address string) error {
	cert, err := newCertificate()
	if err != nil {
		return err
	}
	listen, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(cert.Certificate[0])
	l.listen, l.print = listen, sum[:]
	if l.loans == nil {
		l.loans, l.conns, l.serve = map[[sha256.Size]byte]loan{}, map[net.Conn]bool{}, make(chan struct{}, remote.LoansAtOnce)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
	l.wg.Go(func() { l.acceptConnections(listen, config) })
	return nil
}

// newCertificate creates a key and a certificate that contains only the key.
func newCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Close ends all loans and all transfers at once, and permanently.
func (l *Lender) Close() {
	l.mu.Lock()
	l.closed = true
	for digest := range l.held {
		l.dropContent(digest)
	}
	if l.listen != nil {
		_ = l.listen.Close()
	}
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *Lender) acceptConnections(listen net.Listener, config *tls.Config) {
	for {
		conn, err := listen.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.stopListening(listen)
			}
			return
		}
		if !l.enterConnection(conn) {
			_ = conn.Close()
			continue
		}
		l.wg.Go(func() {
			defer l.leaveConnection(conn)
			_ = l.serveConnection(tls.Server(conn, config)) // the other end sees it, too
		})
	}
}

// stopListening cleans up after a failed listener: the next loan creates another.
func (l *Lender) stopListening(listen net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = listen.Close()
	if l.listen == listen {
		l.listen = nil
	}
}

func (l *Lender) enterConnection(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.conns) >= maxConns {
		return false
	}
	l.conns[conn] = true
	return true
}

func (l *Lender) leaveConnection(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// serveConnection serves one connection: one token, one transfer.
func (l *Lender) serveConnection(conn *tls.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	var request [requestSize]byte
	if _, err := io.ReadFull(conn, request[:]); err != nil {
		return err
	}
	h, content, err := l.redeemToken(request[:remote.TokenSize], binary.BigEndian.Uint64(request[remote.TokenSize:]))
	if err != nil {
		_, werr := conn.Write([]byte{refused})
		return errors.Join(err, werr)
	}
	// The manager issues only as many tokens as are served at once; one whose receiver
	// went away can be served for a moment longer.
	wait := time.NewTimer(busyTime)
	defer wait.Stop()
	select {
	case l.serve <- struct{}{}:
		defer func() { <-l.serve }()
	case <-wait.C:
		_, err := conn.Write([]byte{refused})
		return err
	}
	if _, err := conn.Write([]byte{accepted}); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(&pacedWriter{conn: conn, held: h}, struct{ io.Reader }{content}, make([]byte, 64<<10)); err != nil {
		return err
	}
	return conn.CloseWrite()
}

// redeemToken returns the content for a token, and invalidates the token.
func (l *Lender) redeemToken(token []byte, offset uint64) (*held, io.Reader, error) {
	key := sha256.Sum256(token)
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, ok := l.loans[key]
	delete(l.loans, key)
	h := l.held[ln.digest]
	if !ok || time.Now().After(ln.ends) || h == nil || offset > uint64(h.size) {
		return nil, nil, errors.New("the token is not valid for anything")
	}
	return h, io.NewSectionReader(h.file, int64(offset), h.size-int64(offset)), nil
}

// pacedWriter aborts for a reader that is too slow; the content is still held for others.
type pacedWriter struct {
	conn net.Conn
	held *held
	left int // bytes until the next deadline
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	if w.left <= 0 {
		w.left = pace
		w.held.idle.Reset(holdTime) // no effect for dropped content
		if err := w.conn.SetWriteDeadline(time.Now().Add(2 * paceTime)); err != nil {
			return 0, err
		}
	}
	n, err := w.conn.Write(p)
	w.left -= n
	return n, err
}
