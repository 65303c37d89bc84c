//go:build linux

package host

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

// A Command is one program run.
type Command struct {
	Argv   []string
	Env    []string // in addition to PATH, HOME and LANG
	Dir    string
	Stdin  io.Reader
	Stdout io.Writer // nil: kept and returned
	Stderr io.Writer // in addition to the end that is kept for errors
}

// Grace is the time for a program to end after SIGTERM.
const Grace = 5 * time.Second

// TailBytes is the size of a program's stderr in an error.
const TailBytes = 4 << 10

// ErrNoProgram reports a program that is not installed.
var ErrNoProgram = errors.New("program not found")

// FindProgram finds a program in SearchPath.
func (h *Host) FindProgram(name string) (string, error) {
	if filepath.IsAbs(name) {
		if err := executable(name); err != nil {
			return "", fmt.Errorf("%w: %s", ErrNoProgram, name)
		}
		return name, nil
	}
	if !strings.ContainsRune(name, '/') {
		for _, dir := range filepath.SplitList(h.SearchPath) {
			if p := filepath.Join(dir, name); executable(p) == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s in %s", ErrNoProgram, name, h.SearchPath)
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

// Output runs a program and returns its output; a failure is an *op.Error.
func (h *Host) Output(ctx context.Context, argv ...string) (string, error) {
	var out bytes.Buffer
	err := h.Run(ctx, Command{Argv: argv, Stdout: &out})
	return out.String(), err
}

// Run runs a program to its end. It never outlives this process or ctx.
func (h *Host) Run(ctx context.Context, c Command) error {
	path, err := h.FindProgram(c.Argv[0])
	if err != nil {
		return &op.Error{Reason: "CommandFailed", Message: err.Error(), ExitCode: 127}
	}
	tail := &tailWriter{limit: TailBytes}
	cmd := exec.CommandContext(ctx, path, c.Argv[1:]...)
	cmd.Env = append([]string{"PATH=" + h.SearchPath, "HOME=/root", "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}, c.Env...)
	cmd.Dir, cmd.Stdin, cmd.Stdout = c.Dir, c.Stdin, c.Stdout
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.Stderr = io.Writer(tail)
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(tail, c.Stderr)
	}
	// A separate process group, so that the whole group can be stopped; and the program
	// must not outlive this process: a killed helper leaves no program running that its
	// successor does not know.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = Grace // then it is killed; also if other processes keep its pipes open
	err = RunOnOneThread(cmd.Run)
	if ctx.Err() != nil && cmd.Process != nil {
		// Members of the group that ignored it; it is fine if there are none.
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return commandError(ctx, c.Argv, err, tail.String())
}

// RunOnOneThread runs a function on a separate thread: the death signal of a child is sent
// when the thread that started it ends, not the process.
func RunOnOneThread(f func() error) error {
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
	DescribeFailure(e)
	return e
}

// DescribeFailure adds the output of a program to an error, and detects a full disk from
// it, because there is no exit status for that.
func DescribeFailure(e *op.Error) {
	if last := lastErrorLine(e.Detail); last != "" {
		e.Message += ": " + last
	}
	if e.Reason == "CommandFailed" && strings.Contains(e.Detail, "no space left on device") {
		e.Reason = "DiskFull"
	}
}

// lastErrorLine returns the essential output of a failed program, about 300 bytes: the
// lines that kubeadm marks as errors, else the last line that is not advice. The middle
// of a long line is left out, because it begins with the action and ends with the reason.
func lastErrorLine(text string) string {
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

// ReadHead returns the start of a file; a missing one is empty.
func ReadHead(path string, limit int64) ([]byte, error) {
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

// ReadTail returns the end of a file as valid UTF-8.
func ReadTail(path string, limit int64) (string, error) {
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

// HeadWriter keeps the first bytes written to it.
type HeadWriter struct {
	Limit int
	Buf   []byte
}

func (h *HeadWriter) Write(p []byte) (int, error) {
	if room := h.Limit - len(h.Buf); room > 0 {
		h.Buf = append(h.Buf, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
