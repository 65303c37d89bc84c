//go:build linux

package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/op"
)

// A command is one program to run.
type command struct {
	argv   []string
	env    []string // in addition to PATH, HOME and LANG
	dir    string
	stdin  io.Reader
	stdout io.Writer // nil: kept and answered
	stderr io.Writer // in addition to the tail that is kept for errors
}

// grace is how long a program has to end after SIGTERM.
const grace = 5 * time.Second

// tailBytes is how much of a program's stderr an error carries.
const tailBytes = 4 << 10

// errNoProgram is a program that is not installed.
var errNoProgram = errors.New("program not found")

// program finds a program in Path.
func (s *session) program(name string) (string, error) {
	if filepath.IsAbs(name) {
		if err := executable(name); err != nil {
			return "", fmt.Errorf("%w: %s", errNoProgram, name)
		}
		return name, nil
	}
	if !strings.ContainsRune(name, '/') {
		for _, dir := range filepath.SplitList(s.Path) {
			if p := filepath.Join(dir, name); executable(p) == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s in %s", errNoProgram, name, s.Path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

// output runs a program and answers what it printed; a failure is *op.Error.
func (s *session) output(ctx context.Context, argv ...string) (string, error) {
	var out bytes.Buffer
	err := s.run(ctx, command{argv: argv, stdout: &out})
	return out.String(), err
}

// run runs a program to its end. It never outlives us nor ctx.
func (s *session) run(ctx context.Context, c command) error {
	path, err := s.program(c.argv[0])
	if err != nil {
		return &op.Error{Reason: "CommandFailed", Message: err.Error(), ExitCode: 127}
	}
	tail := &tailWriter{limit: tailBytes}
	cmd := exec.CommandContext(ctx, path, c.argv[1:]...)
	cmd.Env = append([]string{"PATH=" + s.Path, "HOME=/root", "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}, c.env...)
	cmd.Dir, cmd.Stdin, cmd.Stdout = c.dir, c.stdin, c.stdout
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.Stderr = io.Writer(tail)
	if c.stderr != nil {
		cmd.Stderr = io.MultiWriter(tail, c.stderr)
	}
	// Its own process group, so that all of it can be ended; and no life
	// beyond ours: a helper that was killed leaves nothing running that a
	// successor does not know of.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = grace // then it is killed; also for pipes that others keep open
	err = onOneThread(cmd.Run)
	if ctx.Err() != nil && cmd.Process != nil {
		// Members of the group that took no notice; none is as well.
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return commandError(ctx, c.argv, err, tail.String())
}

// onOneThread runs a function on a thread that is its alone: the death signal
// of a child is sent when the thread that started it ends, not the process.
func onOneThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- f()
	}()
	return <-done
}

// commandError says how a program failed.
func commandError(ctx context.Context, argv []string, err error, stderr string) error {
	name := filepath.Base(argv[0])
	e := &op.Error{Reason: "CommandFailed", Detail: strings.TrimSpace(stderr)}
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Reason, e.Message = "Timeout", name+" did not finish in time"
	case ctx.Err() != nil:
		e.Reason, e.Message = "Interrupted", name+" was interrupted"
	case errors.As(err, &exit) && exit.Exited():
		e.ExitCode = exit.ExitCode()
		e.Message = fmt.Sprintf("%s exited with %d", name, e.ExitCode)
	default:
		e.Message = fmt.Sprintf("%s: %v", name, err)
	}
	say(e)
	return e
}

// say adds to an error what the program had to say, and knows a full disk by
// that: no program has an exit status for it.
func say(e *op.Error) {
	if last := gist(e.Detail); last != "" {
		e.Message += ": " + last
	}
	if e.Reason == "CommandFailed" && strings.Contains(e.Detail, "no space left on device") {
		e.Reason = "DiskFull"
	}
}

// gist is what a program that failed had to say, in some 300 bytes: the lines
// that kubeadm marks as errors, else the last one that is no advice. Of a long
// one the middle is left out: it begins with what was done and ends with why
// it failed.
func gist(text string) string {
	var last string
	var marked []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if found, ok := strings.CutPrefix(line, "[ERROR "); ok {
			marked = append(marked, strings.Replace(found, "]: ", ": ", 1))
		}
		if line != "" && !strings.HasPrefix(line, "To see the stack trace of this error") {
			last = line
		}
	}
	if len(marked) > 0 {
		last = strings.Join(marked, "; ")
	}
	const half = 150
	if len(last) > 2*half {
		last = last[:half] + " … " + last[len(last)-half:]
	}
	return strings.ToValidUTF8(last, "")
}

// tailWriter keeps the last bytes written to it.
type tailWriter struct {
	limit int
	buf   []byte
}

func (t *tailWriter) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tailWriter) String() string { return strings.ToValidUTF8(string(t.buf), "\uFFFD") }

func readHead(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := bounded.ReadAll(f, limit)
	if errors.As(err, new(*bounded.LimitError)) {
		err = nil // the rest is not wanted
	}
	return data, err
}

func readTail(path string, limit int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	raw := make([]byte, min(limit, info.Size()))
	n, err := f.ReadAt(raw, info.Size()-int64(len(raw)))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.ToValidUTF8(string(raw[:n]), "\uFFFD"), err
}
