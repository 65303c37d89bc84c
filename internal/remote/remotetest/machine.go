package remotetest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/internal/node/wire"
)

// A Machine is a simulated host: it runs the bootstrap as a real host would, and its
// helper is Handler.
type Machine struct {
	// Handler handles the requests of the manager.
	Handler func(wire.Fetcher) wire.Handler
	Arch    string // the output of uname -m; "" is x86_64
	// Plain hosts have no gzip.
	Plain bool
	// Answer, if not "", replaces the start of the helper: "noexec", "broken", "corrupt".
	Answer string
	// Kept stores the state that a real host would keep.
	Kept *Kept
}

// Kept is the state of a simulated host.
type Kept struct {
	mu      sync.Mutex
	helper  string // digest of the stored helper, if KeepHelper is set
	uploads int
	// KeepHelper simulates a managed host, to which a helper is sent only once.
	KeepHelper bool
}

// UploadCount returns how many helpers were sent.
func (k *Kept) UploadCount() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.uploads
}

// playBootstrap is the host side of the bootstrap.
func (m Machine) playBootstrap(ctx context.Context, user User, tty bool, ch ssh.Channel) uint32 {
	stop := context.AfterFunc(ctx, func() { _ = ch.Close() })
	defer stop()
	in := bufio.NewReader(ch)
	var a, b, mode, x, y string
	if _, err := fmt.Fscanln(in, &a, &b, &mode, &x, &y); err != nil {
		return 1
	}
	fmt.Fprintf(ch, "%s%s\n", a, b)
	prompts := io.Writer(ch.Stderr())
	if tty {
		prompts = ch
	}
	if mode != "root" && !user.Sudo.admitUser(mode, x+y, tty, in, prompts) {
		return 1
	}
	fmt.Fprintf(ch, "%s%s\n", b, a)
	if _, err := in.ReadString('\n'); err != nil { // the script
		return 1
	}
	var token, word string
	if _, err := fmt.Fscanln(in, &token, &word); err != nil {
		return 1
	}
	if mode == "root" && user.Name != "root" {
		fmt.Fprintf(ch, "%s user 1000\n", token)
		return 1
	}
	if !m.takeHelper(ctx, token, in, ch) {
		return 1
	}
	return 0
}

// admitUser simulates sudo.
func (s Sudo) admitUser(mode, prompt string, tty bool, in *bufio.Reader, out io.Writer) bool {
	switch {
	case s.Missing:
		fmt.Fprintln(out, "sh: 1: exec: sudo: not found")
		return false
	case s.RequireTTY && !tty:
		fmt.Fprintln(out, "sudo: sorry, you must have a tty to run sudo")
		return false
	case s.Allowed && s.Password == "":
		return true
	case mode == "sudo":
		fmt.Fprintln(out, "sudo: a password is required")
		return false
	}
	for range 3 {
		_, _ = io.WriteString(out, prompt)
		line, err := in.ReadString('\n')
		if err != nil {
			return false
		}
		if strings.TrimSuffix(line, "\n") == s.Password {
			if !s.Allowed {
				fmt.Fprintln(out, "user is not in the sudoers file.")
			}
			return s.Allowed
		}
		fmt.Fprintln(out, "Sorry, try again.")
	}
	fmt.Fprintln(out, "sudo: 3 incorrect password attempts")
	return false
}

// takeHelper receives the helper and serves in its place.
func (m Machine) takeHelper(ctx context.Context, token string, in *bufio.Reader, ch ssh.Channel) bool {
	arch := m.Arch
	if arch == "" {
		arch = "x86_64"
	}
	fmt.Fprintf(ch, "%s host Linux %s\n", token, arch)
	var name, digest string
	var size int64
	if _, err := fmt.Fscanln(in, &name, &digest, &size); err != nil {
		return false
	}
	if m.Answer == "noexec" {
		fmt.Fprintf(ch, "%s noexec\n", token)
		return false
	}
	if !m.Kept.hasHelper(digest) {
		how := "gzip"
		if m.Plain {
			how = "raw"
		}
		fmt.Fprintf(ch, "%s need %s\n", token, how)
		if got, err := receiveHelper(in, m.Plain); err != nil || got != digest {
			fmt.Fprintf(ch, "%s corrupt\n", token)
			return false
		}
		m.Kept.recordUpload(digest)
	}
	if m.Answer != "" {
		fmt.Fprintf(ch, "%s %s\n", token, m.Answer)
		return false
	}
	fmt.Fprintf(ch, "%s run\n", token)
	server := wire.Server{Handler: m.Handler}
	return server.Serve(ctx, channel{in, ch}) == nil
}

type channel struct {
	io.Reader
	ssh.Channel
}

func (c channel) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// receiveHelper reads a helper and returns its digest.
func receiveHelper(in *bufio.Reader, plain bool) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return "", err
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(in, raw); err != nil {
		return "", err
	}
	content := io.Reader(bytes.NewReader(raw))
	if !plain {
		if content, err = gzip.NewReader(content); err != nil {
			return "", err
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, content); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

func (k *Kept) hasHelper(digest string) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.helper == digest
}

func (k *Kept) recordUpload(digest string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uploads++
	if k.KeepHelper {
		k.helper = digest
	}
}
