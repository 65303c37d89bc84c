package process

import (
	"os/exec"
	"syscall"
	"testing"
)

func TestParseStat_HandlesSpacesAndParentheses(t *testing.T) {
	const rest = " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200"
	for name, s := range map[string]string{
		"plain":       "12 (sshd)" + rest,
		"spaces":      "12 (a b c)" + rest,
		"parentheses": "12 (a) S (b)" + rest,
	} {
		start, state, err := parseStat(s)
		if err != nil || start != 4711 || state != "S" {
			t.Errorf("%s: got %d, %q, %v", name, start, state, err)
		}
	}
	for _, s := range []string{"", "12", "12 (x", "12 (x) S 1 2"} {
		if start, _, err := parseStat(s); err == nil {
			t.Errorf("parseStat(%q) = %d, want an error", s, start)
		}
	}
}

// startProgram runs a program until the test ends.
func startProgram(t *testing.T, program string, args ...string) Process {
	t.Helper()
	cmd := exec.Command(program, args...)
	in, err := cmd.StdinPipe() // a program that reads it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if p.IsAlive() {
			t.Error("the process is found after its end")
		}
	})
	return p
}

func TestSignal_RefusesOtherStartTime(t *testing.T) {
	p := startProgram(t, "cat")
	other := Process{PID: p.PID, Start: p.Start + 1}
	if other.IsAlive() || other.Signal(syscall.SIGKILL) {
		t.Error("a process with another start time was taken for this one")
	}
	if !p.IsAlive() || !p.Signal(syscall.SIGKILL) {
		t.Error("the process was not found")
	}
	if (Process{}).IsAlive() || (Process{}).Signal(syscall.SIGKILL) {
		t.Error("the zero Process is alive")
	}
}
