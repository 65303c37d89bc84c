//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A happening is the part of an event that tests look at.
type happening struct {
	Type, Operation, Task, Host, Outcome, Message string
	Done, Total                                   int64
}

// boundary names the end of a step, in journal and events alike; "" is no
// boundary.
func (h happening) boundary() string {
	if h.Type != "step.finished" || h.Outcome == "skipped" || h.Outcome == "cancelled" {
		return ""
	}
	return h.Task + "@" + h.Host
}

// An operation is slipway at work, seen from outside: its events are read as
// they come.
type operation struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	events chan happening
}

// start begins an operation with `-o json`. Whoever starts it ends it with
// kill or wait.
func (u *user) start(t *testing.T, args ...string) *operation {
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
		lines := bufio.NewScanner(stdout)
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

// kill ends the manager as a power failure would: SIGKILL, now.
func (o *operation) kill() {
	_ = o.cmd.Process.Signal(syscall.SIGKILL)
	for range o.events { // the reader ends with the pipe
	}
	_ = o.cmd.Wait()
}

// wait lets the operation end and answers its exit code.
func (o *operation) wait() int {
	for range o.events {
	}
	_ = o.cmd.Wait()
	return o.cmd.ProcessState.ExitCode()
}

// killWhen kills the manager at the first event that match accepts and
// answers true; false is an operation that ended before, with its exit code.
func (o *operation) killWhen(match func(happening) bool) (bool, int) {
	for h := range o.events {
		if match(h) {
			o.kill()
			return true, -1
		}
	}
	return false, o.wait()
}

// killAfter kills the manager after a time, unless it has ended before.
func (o *operation) killAfter(d time.Duration) (bool, int) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			o.kill()
			return true, -1
		case _, ok := <-o.events:
			if !ok {
				return false, o.wait()
			}
		}
	}
}

// A watch looks at all processes of this host, machines included, again and
// again, and remembers what it should not have seen.
type watch struct {
	stop  chan struct{}
	done  chan struct{}
	found map[string]bool
}

// look starts a watch; each process is given to judge, which answers what is
// wrong with it, if anything.
func look(judge func(round map[string]int, p process) string) *watch {
	w := &watch{stop: make(chan struct{}), done: make(chan struct{}), found: map[string]bool{}}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			round := map[string]int{}
			for _, p := range processes() {
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

// end stops the watch and fails the test for everything it found.
func (w *watch) end(t *testing.T) {
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

func processes() []process {
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
		out = append(out, process{dir, machine, strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00"), parentOf(dir)})
	}
	return out
}

// parentOf answers the name of a process's parent.
func parentOf(dir string) string {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(status), "\nPPid:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return ""
	}
	cmdline, err := os.ReadFile("/proc/" + fields[0] + "/cmdline")
	if err != nil {
		return ""
	}
	argv0, _, _ := strings.Cut(string(cmdline), "\x00")
	return filepath.Base(argv0)
}

// oneKubeadm is a judge: two kubeadm processes on one machine are one too
// many. Version and help queries count as well: none is ever run beside a
// phase. A child of kubeadm's that is about to become another program does
// not.
func oneKubeadm(round map[string]int, p process) string {
	if filepath.Base(p.argv[0]) != "kubeadm" || p.parent == "kubeadm" {
		return ""
	}
	round[p.machine]++
	if round[p.machine] > 1 {
		return "two kubeadm processes on one machine: " + strings.Join(p.argv, " ")
	}
	return ""
}

// recorded says whether the user's Slipway knows of the cluster.
func (s *site) recorded() bool {
	out, err := s.command(context.Background(), "get", "clusters", "-o", "json").Output()
	return err == nil && bytes.Contains(out, []byte(`"`+s.name+`"`))
}
