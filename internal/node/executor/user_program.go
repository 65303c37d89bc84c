//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/host"
)

// An account is a user of this host.
type account struct {
	name, home, shell string
	uid, gid          int
	groups            []int
}

// findAccount finds a user by name, in any user database of the host; "" is root.
func (r *Runner) findAccount(ctx context.Context, name string) (account, error) {
	if name == "" || name == "root" {
		return account{name: "root", home: "/root", shell: "/bin/sh"}, nil
	}
	s, err := r.session(host.Batch{}, nil)
	if err != nil {
		return account{}, err
	}
	if strings.HasPrefix(name, "-") {
		return account{}, fmt.Errorf("%q is not a valid user", name)
	}
	line, err := s.Output(ctx, "getent", "passwd", name)
	if err != nil {
		return account{}, fmt.Errorf("user %s does not exist on this host", name)
	}
	f := strings.Split(strings.TrimSpace(line), ":")
	if len(f) != 7 {
		return account{}, fmt.Errorf("looking up user %s: getent returned %q", name, line)
	}
	a := account{name: f[0], home: f[5], shell: f[6]}
	var err1, err2 error
	a.uid, err1 = strconv.Atoi(f[2])
	a.gid, err2 = strconv.Atoi(f[3])
	ids, err3 := s.Output(ctx, "id", "-G", a.name)
	err = errors.Join(err1, err2, err3)
	for id := range strings.FieldsSeq(ids) {
		n, aerr := strconv.Atoi(id)
		a.groups, err = append(a.groups, n), errors.Join(err, aerr)
	}
	if err != nil {
		return account{}, fmt.Errorf("finding the groups of user %s: %w", name, err)
	}
	return a, nil
}

// The exit codes of a shell for programs that cannot run.
const (
	exitNotRun  = 126
	exitMissing = 127
	exitSignal  = 128
)

// Run runs a program for a user to its end and returns its exit code. The ledger does not
// record it. It never outlives this process or ctx.
func (r *Runner) Run(ctx context.Context, argv []string, user string, in io.Reader, out, errw io.Writer) (int, error) {
	if len(argv) == 0 || argv[0] == "" {
		return 0, errors.New("no program is given")
	}
	who, err := r.findAccount(ctx, user)
	if err != nil {
		return 0, err
	}
	cmd, code := r.prepareCommand(ctx, argv, who, errw)
	if cmd == nil {
		return code, nil
	}
	cmd.Stdout, cmd.Stderr = out, errw
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	go func() { // ends with in, which the caller closes after the return
		_, _ = io.Copy(stdin, in) // a program does not have to read everything
		_ = stdin.Close()
	}()
	err = host.RunOnOneThread(cmd.Run)
	if ctx.Err() != nil {
		if cmd.Process != nil {
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		}
		return 0, context.Cause(ctx)
	}
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // other processes keep its output open
		return 0, nil
	case errors.As(err, &exit):
		if st, ok := exit.Sys().(interface{ Signal() unix.Signal }); ok && !exit.Exited() {
			return exitSignal + int(st.Signal()), nil
		}
		return exit.ExitCode(), nil
	case cmd.Process == nil:
		fmt.Fprintf(errw, "%s: %v\n", argv[0], errors.Unwrap(err))
		return exitNotRun, nil
	}
	return 0, err
}

// prepareCommand creates a command; it returns nil and an exit code if there is none to
// run.
func (r *Runner) prepareCommand(ctx context.Context, argv []string, who account, errw io.Writer) (*exec.Cmd, int) {
	path := argv[0]
	if !strings.ContainsRune(path, '/') {
		s, err := r.session(host.Batch{}, nil)
		if err == nil {
			path, err = s.FindProgram(path)
		}
		if err != nil {
			fmt.Fprintf(errw, "%v\n", err)
			return nil, exitMissing
		}
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(who.home, path)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(errw, "%v: %s\n", host.ErrNoProgram, path)
		return nil, exitMissing
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Env = []string{
		"PATH=" + r.Path, "HOME=" + who.home, "USER=" + who.name, "LOGNAME=" + who.name, "SHELL=" + who.shell,
		"LANG=C.UTF-8",
	}
	if r.Path == "" {
		cmd.Env[0] = "PATH=" + host.DefaultPath
	}
	if cmd.Dir = "/"; isDir(who.home) {
		cmd.Dir = who.home
	}
	// As in host.Run: a separate process group that does not outlive this process.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if who.uid != 0 {
		cmd.SysProcAttr.Credential = who.credential()
	}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = host.Grace
	return cmd, 0
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// As runs f with a user's file permissions, on a separate thread: f must not leave its
// goroutine. path is completed: a relative one begins in the user's home directory.
func (r *Runner) As(ctx context.Context, user, path string, f func(path string) error) error {
	who, err := r.findAccount(ctx, user)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(path) {
		slash := strings.HasSuffix(path, "/") || path == ""
		if path = filepath.Join(who.home, path); slash {
			path += "/"
		}
	}
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with its goroutine, and its permissions with
		// it.
		runtime.LockOSThread()
		err := who.becomeUser()
		if err == nil {
			err = f(path)
		}
		done <- err
	}()
	return <-done
}
