package privatedir

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// baseEnv makes a copy of this test program create a directory, print its path, and wait for
// the end of its input. The value is a base, or "default".
const baseEnv = "SLIPWAY_TEST_BASE"

func TestMain(m *testing.M) {
	if base := os.Getenv(baseEnv); base != "" {
		os.Exit(createAndWait(base))
	}
	os.Exit(m.Run())
}

func createAndWait(path string) int {
	var bases []string
	if path != "default" {
		bases = []string{path}
	}
	d, err := Create(100, bases...)
	if err == nil {
		err = d.WriteFile("key", []byte("secret"))
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(d.Path())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := d.Close(); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// A creator is another process with a private directory.
type creator struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Closer
	path string
}

// startCreator starts a process that creates a directory in a base.
func startCreator(t *testing.T, base string, attr *syscall.SysProcAttr) creator {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	if self, err := os.Executable(); err == nil && attr == nil {
		cmd = exec.Command(self)
	}
	cmd.Env = append(os.Environ(), baseEnv+"="+base)
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	noError(t, err)
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error:") {
		t.Fatalf("%q, %v", line, err)
	}
	return creator{t, cmd, in, strings.TrimSpace(line)}
}

// kill kills the process, and waits for its end.
func (c creator) kill() {
	c.t.Helper()
	noError(c.t, c.cmd.Process.Signal(syscall.SIGKILL))
	if err := c.cmd.Wait(); err == nil {
		c.t.Fatal("the process was not killed")
	}
}

// stop lets the process close its directory.
func (c creator) stop() {
	c.t.Helper()
	noError(c.t, c.in.Close())
	noError(c.t, c.cmd.Wait())
}

// exists reports whether the directory of the process has its file.
func (c creator) exists() bool {
	data, err := os.ReadFile(c.path + "/key")
	return err == nil && string(data) == "secret"
}

func TestCreate_RemovesDirectoryOfKilledProcess(t *testing.T) {
	base := newBase(t)
	killed, running := startCreator(t, base, nil), startCreator(t, base, nil)
	killed.kill()
	if !killed.exists() {
		t.Fatal("the directory of the killed process is missing already")
	}
	d := create(t, base)
	if killed.exists() {
		t.Error("the directory of the killed process remains")
	}
	if !running.exists() {
		t.Error("the directory of a running process was removed")
	}
	running.stop()
	if names := entriesOf(t, base); len(names) != 1 {
		t.Errorf("remains: %v, expected only %s", names, d.Path())
	}
}
