//go:build e2e

// Package e2e tries the programs as a user does, on real machines: it runs
// bin/slipway and looks at what that has done to sandbox machines and to this
// host. `make build bundle` make what it needs; `make e2e` runs it, as root.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// collectMode makes the test program describe the machine on which it runs, as JSON,
// instead of testing.
const collectMode = "SLIPWAY_E2E_COLLECT"

// TestMain refuses to begin without the programs, and fails when the tests
// leave anything behind on this host.
func TestMain(m *testing.M) {
	if mode := os.Getenv(collectMode); mode != "" {
		if err := collectFiles(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(runAll(m))
}

// collectFiles is the task of the test program on a sandbox machine.
func collectFiles(mode string) error {
	switch mode {
	case "files":
		return writeSnapshot(os.Stdout, true)
	case "secrets":
		return writeFindings(os.Stdin, os.Stdout)
	}
	return fmt.Errorf("%s=%s: unknown", collectMode, mode)
}

func runAll(m *testing.M) int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "e2e: sandbox machines need root")
		return 1
	}
	if _, err := os.Stat(programPath()); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: run `make build bundle` first:", err)
		return 1
	}
	before, err := hostState()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: looking at this host:", err)
		return 1
	}
	sweepWhenInterrupted()
	code := m.Run()
	after, err := hostState()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: looking at this host:", err)
		return 1
	}
	left := slices.DeleteFunc(diffStates(before, after), func(line string) bool {
		// others', who have gone
		return strings.HasPrefix(line, "- process ") || strings.HasPrefix(line, "- cgroup ") || strings.HasPrefix(line, "- file ")
	})
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "e2e: the tests changed this host:\n  %s\n", strings.Join(left, "\n  "))
		return 1
	}
	return code
}

// programPath is the path of bin/slipway.
func programPath() string {
	path, err := filepath.Abs("../../bin/slipway")
	if err != nil {
		panic(err)
	}
	return path
}

// testedVersion is the version the tests install; the Makefile sets it.
func testedVersion() string {
	if v := os.Getenv("KUBERNETES"); v != "" {
		return v
	}
	return "v1.37.1"
}

// A user is a person at a terminal, with a separate home and a separate Slipway state. The
// cache is shared.
type user struct {
	home    string
	env     []string // further variables
	program string   // "" for the program that is tested
}

func newUser(t *testing.T) *user {
	t.Helper()
	return &user{home: t.TempDir()}
}

// A result holds the output and exit code of a finished program.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
	maxRSS         int64 // bytes
}

// command is slipway with args as this user would start it, without a
// terminal.
func (u *user) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cmp.Or(u.program, programPath()), args...)
	cmd.Dir = u.home
	cmd.Env = append(os.Environ(),
		"HOME="+u.home,
		"SLIPWAY_HOME="+filepath.Join(u.home, "slipway"),
		"SLIPWAY_CACHE="+cacheDir(),
		"SSH_AUTH_SOCK=", "KUBECONFIG=",
	)
	cmd.Env = append(cmd.Env, u.env...)
	return cmd
}

// cacheDir is the directory of bundles and builds, shared by all users.
func cacheDir() string {
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		panic(err)
	}
	return filepath.Join(dir, "slipway")
}

// runSlipway runs slipway to its end, whatever that is.
func (u *user) runSlipway(t *testing.T, args ...string) result {
	t.Helper()
	return u.runWithInput(t, nil, args...)
}

// runWithInput runs slipway with something on its standard input. Ten minutes mean
// that it hangs.
func (u *user) runWithInput(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	return u.runWithin(t, 10*time.Minute, stdin, args...)
}

// runWithin is runWithInput with another time limit.
func (u *user) runWithin(t *testing.T, limit time.Duration, stdin io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := u.command(ctx, args...)
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("slipway %s hangs: %v\n%s", strings.Join(args, " "), ctx.Err(), stderr.String())
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("slipway %s: %v", strings.Join(args, " "), err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), time.Since(start), maxRSS(cmd.ProcessState)}
}

// mustRun runs slipway, which must succeed, and answers its standard output.
func (u *user) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	return u.mustExit(t, 0, args...).stdout
}

// mustExit runs slipway, which must end with the code.
func (u *user) mustExit(t *testing.T, code int, args ...string) result {
	t.Helper()
	r := u.runSlipway(t, args...)
	if r.code != code {
		t.Fatalf("slipway %s ends with %d, want %d\nstdout: %s\nstderr: %s",
			strings.Join(args, " "), r.code, code, textTail(r.stdout), textTail(r.stderr))
	}
	return r
}

// mustKubectl runs the bundle's kubectl against a cluster; it must succeed.
func (u *user) mustKubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	return u.mustRun(t, append([]string{"kubectl", cluster, "--"}, args...)...)
}

// createMachines creates sandbox machines NAME-1 to NAME-n that live as long as
// the test, with a cluster file, whose path is the answer. Nothing of
// Kubernetes is on any of them.
func (u *user) createMachines(t *testing.T, name string, n int, args ...string) string {
	t.Helper()
	file := filepath.Join(u.home, name+".yaml")
	args = append([]string{"sandbox", "create", name, "--machines", fmt.Sprint(n), "--kubernetes", testedVersion(), "--out", file}, args...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if out, err := u.command(ctx, "sandbox", "delete", name, "--yes").CombinedOutput(); err != nil {
			t.Errorf("deleting sandbox %s: %v\n%s", name, err, out)
		}
	})
	u.mustRun(t, args...)
	for m := range u.listMachines(t) {
		u.takeSnapshot(t, m).requireUntouched(t, m)
	}
	return file
}

// mustExec runs a program on a sandbox machine; it must succeed.
func (u *user) mustExec(t *testing.T, machine string, argv ...string) string {
	t.Helper()
	return u.mustRun(t, append([]string{"sandbox", "exec", machine, "--"}, argv...)...)
}

// copyTo puts a file of this host on a sandbox machine, executable.
func (u *user) copyTo(t *testing.T, machine, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := u.runWithInput(t, f, "sandbox", "exec", machine, "--", "sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", to)
	if r.code != 0 {
		t.Fatalf("copying %s to %s on %s: %s", from, to, machine, r.stderr)
	}
}

// textTail is the end of a long text.
func textTail(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// eventually calls f until it returns nil, and fails with the last error after the time
// limit. The limit is for failures, not for slow machines.
func eventually(t *testing.T, within time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		case <-time.After(time.Second):
		}
	}
}

// decodeJSON reads JSON that a command wrote.
func decodeJSON[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("reading JSON: %v\n%s", err, textTail(text))
	}
	return v
}
