//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An operation is slipway at work, seen from outside: its events are read as
// they come.
type operation struct {
	cmd *exec.Cmd
	// stdout is the output so far; it is complete when events is closed.
	stdout, stderr bytes.Buffer
	events         chan happening
}

// startOperation begins an operation with `-o json`. The caller ends it with killManager
// or waitForExit.
func (u *user) startOperation(t *testing.T, args ...string) *operation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	o := &operation{cmd: u.command(ctx, append(args, "-o", "json")...), events: make(chan happening)}
	o.cmd.Stderr = &o.stderr
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(o.events)
		lines := bufio.NewScanner(io.TeeReader(stdout, &o.stdout))
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var h happening
			if json.Unmarshal(lines.Bytes(), &h) == nil && h.Type != "" {
				o.events <- h
			}
		}
	}()
	return o
}

// killManager ends the manager like a power failure: SIGKILL, immediately. It reports
// whether the manager died of that, and had not ended just before.
func (o *operation) killManager() bool {
	_ = o.cmd.Process.Signal(syscall.SIGKILL)
	o.readRest()
	_ = o.cmd.Wait()
	status, ok := o.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// readRest reads to the end of the events.
func (o *operation) readRest() []happening {
	var all []happening
	for h := range o.events { // the reader ends with the pipe
		all = append(all, h)
	}
	return all
}

// waitForExit lets the operation end and answers its exit code; -1 is one that hung
// and was killed for it.
func (o *operation) waitForExit() int {
	o.readRest()
	_ = o.cmd.Wait()
	return o.cmd.ProcessState.ExitCode()
}

// readUntil reads events until one of the moments has come; nil is an operation
// that ended before.
func (o *operation) readUntil(ms *moments) *moment {
	const lookEvery = 20 * time.Millisecond
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case h, ok := <-o.events:
			if !ok {
				ms.endRun(nil)
				return nil
			}
			ms.noteEvent(h, time.Now())
		case <-tick.C:
		}
		if m := ms.takeDue(time.Now(), runsOn); m != nil {
			return m
		}
	}
}

// runsOn reports whether a program whose command line begins with these words runs on a
// machine.
func runsOn(machine string, program []string) bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue // gone while we looked
		}
		argv := strings.Split(string(cmdline), "\x00")
		argv[0] = filepath.Base(argv[0])
		if len(argv) < len(program) || !slices.Equal(argv[:len(program)], program) {
			continue
		}
		if name, err := os.ReadFile(dir + "/root/etc/hostname"); err == nil && strings.TrimSpace(string(name)) == machine {
			return true
		}
	}
	return false
}

// oneFailure asserts that the end of a run reports one failure: the host, the cause and
// the remedy.
func oneFailure(t *testing.T, stderr, host, cause, remedy string) {
	t.Helper()
	var failed, remedies []string
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "FAILED: ") {
			failed = append(failed, line)
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "remedy: "); ok {
			remedies = append(remedies, rest)
		}
	}
	if len(failed) != 1 || !strings.Contains(failed[0], host) || !regexp.MustCompile(cause).MatchString(failed[0]) {
		t.Errorf("want one failure that names %s and %q, got %q in:\n%s", host, cause, failed, textTail(stderr))
	}
	if len(remedies) != 1 || !strings.Contains(remedies[0], remedy) {
		t.Errorf("want one remedy, %q, got %q in:\n%s", remedy, remedies, textTail(stderr))
	}
}

// A watch looks at all processes of this host, machines included, again and
// again, and remembers what it should not have seen.
type watch struct {
	stop  chan struct{}
	done  chan struct{}
	found map[string]bool
}

// startWatch starts a watch. It passes each process to judge, which returns a problem, if
// there is one.
func startWatch(judge func(round map[string]process, p process) string) *watch {
	w := &watch{stop: make(chan struct{}), done: make(chan struct{}), found: map[string]bool{}}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			round := map[string]process{}
			for _, p := range listProcesses() {
				if what := judge(round, p); what != "" {
					w.found[what] = true
				}
			}
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

// endWatch stops the watch and fails the test for everything it found.
func (w *watch) endWatch(t *testing.T) {
	t.Helper()
	close(w.stop)
	<-w.done
	for what := range w.found {
		t.Error(what)
	}
}

// A process is one that runs somewhere on this host.
type process struct {
	dir     string // /proc/PID
	machine string // its PID namespace: one for each sandbox machine
	argv    []string
	parent  string // its parent's program
}

func listProcesses() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var out []process
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(cmdline) == 0 {
			continue
		}
		machine, err := os.Readlink(dir + "/ns/pid")
		if err != nil {
			continue
		}
		parent, ok := parentOf(dir)
		if !ok {
			continue
		}
		out = append(out, process{dir, machine, splitArguments(cmdline), parent})
	}
	return out
}

// parentOf returns the name of a process's parent; false if one of them has ended
// meanwhile.
func parentOf(dir string) (name string, ok bool) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return "", false
	}
	_, after, _ := strings.Cut(string(status), "\nPPid:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return "", false
	}
	if fields[0] == "0" { // of another PID namespace, or the kernel's
		return "", true
	}
	cmdline, err := os.ReadFile("/proc/" + fields[0] + "/cmdline")
	if err != nil {
		return "", false
	}
	argv0, _, _ := strings.Cut(string(cmdline), "\x00")
	return filepath.Base(argv0), true
}

// oneKubeadm is a judge that rejects two kubeadm processes on one machine. Version and
// help queries count as well: none ever runs during a phase. A child of kubeadm that is
// about to execute another program does not count. A process that had ended when the other
// one was found does not count either, because a round takes time.
func oneKubeadm(round map[string]process, p process) string {
	if filepath.Base(p.argv[0]) != "kubeadm" || p.parent == "kubeadm" {
		return ""
	}
	other, seen := round[p.machine]
	round[p.machine] = p
	if seen && other.isRunning() {
		return "two kubeadm processes on one machine: " + strings.Join(other.argv, " ") + ", and " + strings.Join(p.argv, " ")
	}
	return ""
}

// isRunning reports whether the process still runs.
func (p process) isRunning() bool {
	cmdline, err := os.ReadFile(p.dir + "/cmdline")
	return err == nil && slices.Equal(splitArguments(cmdline), p.argv)
}

// splitArguments returns the arguments of a process.
func splitArguments(cmdline []byte) []string {
	return strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
}
