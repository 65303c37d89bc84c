// Package bootstrap starts a node helper through a login on a host, and keeps it running:
// it runs the bootstrap over any transport that can start a command, and reconnects after
// a lost connection.
package bootstrap

import (
	"bufio"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/internal/node/embedded"
	"slipway.dev/slipway/internal/remote"
)

// Command is the one command that a login shell is given, whichever shell it
// is: nothing in it means anything to sh, csh or fish within single quotes.
// It prints a random token, which separates its output from earlier output of the
// shell. Then it becomes root, and reads the next script.
const Command = `sh -c 'if test -t 0; then stty raw -echo; fi; read -r a b m x y; echo "$a$b"; ` +
	`LC_ALL=C; export LC_ALL; w="echo \$0; IFS= read -r s; eval \"\$s\""; ` +
	`case $m in sudo) exec sudo -n sh -c "$w" "$b$a";; password) exec sudo -S -p "$x$y" sh -c "$w" "$b$a";; ` +
	`*) exec sh -c "$w" "$b$a";; esac'`

//go:embed bootstrap.sh
var bootstrapFile string

// scriptLine returns bootstrap.sh as one line.
func scriptLine() string {
	var b strings.Builder
	for line := range strings.Lines(bootstrapFile) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			b.WriteString(line + " ")
		}
	}
	return b.String()
}

// A Process is a running command on a host.
type Process interface {
	io.Writer // its standard input
	// Stdout and Stderr are read concurrently. With a terminal there is no Stderr: it is
	// nil or empty.
	Stdout() io.Reader
	Stderr() io.Reader
	// Close stops the process and everything that waits for it. It can be called more
	// than once.
	Close() error
}

// A Starter runs a command through a login shell.
type Starter interface {
	// Start starts the command; with tty on a terminal in raw mode.
	Start(ctx context.Context, command string, tty bool) (Process, error)
}

// Boot configures the start of the helper.
type Boot struct {
	Host string // name of the host, for errors
	User string // user of the login, for errors
	// Login is the arguments of ssh for the same login, for errors; "" if there are none.
	Login string
	Arch  string // required GOARCH; "" accepts any
	// Sudo uses sudo to become root; SudoPassword, if set, returns its password.
	Sudo         bool
	SudoPassword func() (string, error)
	// Helper returns the program for an architecture.
	Helper func(arch string) (embedded.Helper, error)
	// Timeout limits each answer of the host.
	Timeout time.Duration
}

// A Running is a helper that waits for the hello message of the manager.
type Running struct {
	Process
	out   *bufio.Reader
	tail  *tail
	heard *sync.WaitGroup
}

// Read reads the output of the helper.
func (r *Running) Read(p []byte) (int, error) { return r.out.Read(p) }

// Close stops the helper.
func (r *Running) Close() error {
	err := r.Process.Close()
	r.heard.Wait()
	return err
}

// ErrorOutput returns the end of the standard error of the process.
func (r *Running) ErrorOutput() string { return r.tail.String() }

const (
	// maxNoise limits the output of a login shell before the first answer.
	maxNoise = 256 << 10
	maxTail  = 8 << 10
)

// Run runs the bootstrap. Errors are *remote.Error.
func (b Boot) Run(ctx context.Context, starter Starter) (*Running, error) {
	r, err := b.attemptBoot(ctx, starter, false)
	if errors.Is(err, errNeedsTTY) {
		r, err = b.attemptBoot(ctx, starter, true)
	}
	return r, err
}

func (b Boot) attemptBoot(ctx context.Context, starter Starter, tty bool) (*Running, error) {
	proc, err := starter.Start(ctx, Command, tty)
	if err != nil {
		return nil, b.newError(remote.HelperFailed, "the host did not start the bootstrap command", "", err)
	}
	d := newDialog(ctx, proc, b.Timeout)
	r, err := b.talkToHost(d, tty)
	if cause := d.finishWatching(); err == nil {
		err = cause
	}
	if err != nil {
		_ = proc.Close()
		d.heard.Wait() // its last output is the reason
		return nil, b.explainError(ctx, d, err)
	}
	return r, nil
}

// talkToHost is the manager side of the bootstrap.
func (b Boot) talkToHost(d *dialog, tty bool) (*Running, error) {
	if err := b.becomeRoot(d, tty); err != nil {
		return nil, err
	}
	token, word := randomToken(), randomToken()
	if err := d.sendText(scriptLine() + "\n" + token + " " + word[:12] + "\n"); err != nil {
		return nil, err
	}
	word, rest, err := d.readAnswer(token)
	if err != nil {
		return nil, err
	}
	if word != "host" {
		return nil, b.explainRefusal(word, rest)
	}
	arch, err := b.checkArch(rest)
	if err != nil {
		return nil, err
	}
	helper, err := b.Helper(arch)
	if err != nil {
		return nil, b.newError(remote.HelperFailed, err.Error(), "", err)
	}
	if err := d.sendText(fmt.Sprintf("%s %s %d\n", helper.FileName(), helper.SHA256, helper.Size)); err != nil {
		return nil, err
	}
	if word, rest, err = d.readAnswer(token); err != nil {
		return nil, err
	}
	if word == "need" {
		// A host that stops reading has sent the reason.
		failed := d.uploadHelper(helper, rest)
		if word, rest, err = d.readAnswer(token); err != nil {
			return nil, errors.Join(failed, err)
		}
	}
	if word != "run" {
		return nil, b.explainRefusal(word, rest)
	}
	return &Running{Process: d.proc, out: d.out, tail: d.tail, heard: &d.heard}, nil
}

// becomeRoot gets past the login shell and sudo.
func (b Boot) becomeRoot(d *dialog, tty bool) error {
	a, z, x, y := randomToken(), randomToken(), randomToken(), randomToken()
	mode, password := "root", ""
	if b.Sudo {
		mode = "sudo"
		if b.SudoPassword != nil {
			var err error
			if password, err = b.SudoPassword(); err != nil {
				return b.newError(remote.SecretUnreadable, "the sudo password cannot be read: "+err.Error(),
					"correct ssh.sudoPasswordFrom, or ssh.passwordFrom if that one is used", err)
			}
			mode = "password"
		}
	}
	// Tokens are sent in halves, so that a terminal with echo cannot repeat them.
	d.prompt = x + y
	d.password = []byte(password + "\n")
	if !tty {
		d.watchStderr(mode == "password")
	}
	if err := d.sendText(strings.Join([]string{a, z, mode, x, y}, " ") + "\n"); err != nil {
		return err
	}
	if err := d.awaitToken(a+z, false); err != nil {
		return err
	}
	d.greeted = true
	if err := d.awaitToken(z+a, tty && mode == "password"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root = true
	return nil
}

// checkArch checks the system that the host reports: "Linux x86_64".
func (b Boot) checkArch(rest string) (string, error) {
	kernel, machine, _ := strings.Cut(rest, " ")
	arch := map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[machine]
	switch {
	case kernel != "Linux":
		return "", b.newError(remote.WrongArch, "the host runs "+kernel+", not Linux", "use a Linux host", nil)
	case arch == "":
		return "", b.newError(remote.WrongArch, "the host's architecture is "+machine, "use a host with amd64 (x86_64) or arm64 (aarch64)", nil)
	case b.Arch != "" && b.Arch != arch:
		return "", b.newError(remote.WrongArch, fmt.Sprintf("the host's architecture is %s, but the cluster file has %s", arch, b.Arch),
			"write arch: "+arch+", or leave arch out", nil)
	}
	return arch, nil
}

// randomToken returns a token that no other output contains by chance.
func randomToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand guarantees it
	return hex.EncodeToString(b[:])
}

// tail keeps the end of the data written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) addOutput(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - maxTail; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.b), "�"))
}
