//go:build linux

package executor

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

// A command is one program run.
type command struct {
	argv   []string
	env    []string // in addition to PATH, HOME and LANG
	dir    string
	stdin  io.Reader
	stdout io.Writer // nil: kept and returned
	stderr io.Writer // in addition to the end that is kept for errors
}

// grace is the time for a program to end after SIGTERM.
const grace = 5 * time.Second

// tailBytes is the size of a program's stderr in an error.
const tailBytes = 4 << 10

// errNoProgram reports a program that is not installed.
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

// output runs a program and returns its output; a failure is an *op.Error.
func (s *session) output(ctx context.Context, argv ...string) (string, error) {
	var out bytes.Buffer
	err := s.run(ctx, command{argv: argv, stdout: &out})
	return out.String(), err
}

// run runs a program to its end. It never outlives this process or ctx.
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
	// A separate process group, so that the whole group can be stopped; and the program
	// must not outlive this process: a killed helper leaves no program running that its
	// successor does not know.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = grace // then it is killed; also if other processes keep its pipes open
	err = onOneThread(cmd.Run)
	if ctx.Err() != nil && cmd.Process != nil {
		// Members of the group that ignored it; it is fine if there are none.
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return commandError(ctx, c.argv, err, tail.String())
}

// onOneThread runs a function on a separate thread: the death signal of a child is sent
// when the thread that started it ends, not the process.
func onOneThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- f()
	}()
	return <-done
}

// commandError describes how a program failed.
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

// say adds the output of a program to an error, and detects a full disk from it, because
// there is no exit status for that.
func say(e *op.Error) {
	if last := gist(e.Detail); last != "" {
		e.Message += ": " + last
	}
	if e.Reason == "CommandFailed" && strings.Contains(e.Detail, "no space left on device") {
		e.Reason = "DiskFull"
	}
}

// gist returns the essential output of a failed program, about 300 bytes: the lines that
// kubeadm marks as errors, else the last line that is not advice. The middle of a long
// line is left out, because it begins with the action and ends with the reason.
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
		err = nil // the rest is not needed
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
