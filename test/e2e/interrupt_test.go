//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// sweepWhenInterrupted ends the programs and deletes the machines of tests that are
// interrupted, or that run out of time: their cleanup does not run.
func sweepWhenInterrupted() {
	flag.Parse()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var timeout <-chan time.Time
	if limit, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); ok && limit > sweepTime {
		timeout = time.After(limit - sweepTime)
	}
	go func() {
		select {
		case got := <-signals:
			fmt.Fprintf(os.Stderr, "e2e: %s: deleting the machines of this run\n", got)
		case <-timeout:
			fmt.Fprintln(os.Stderr, "e2e: out of time: deleting the machines of this run")
		}
		if err := testPrograms.endAll(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: ending programs:", err)
		}
		deleteMachines()
		os.Exit(1)
	}()
}

// sweepTime is how long deleting the machines may take.
const sweepTime = time.Minute

// deleteMachines deletes the machines that the program under test supervises.
func deleteMachines() {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	gone := map[string]bool{}
	for _, p := range ownProcesses() {
		// slipway sandbox supervise HOME/sandboxes/NAME MACHINE
		if len(p.argv) < 4 || strings.Join(p.argv[1:3], " ") != "sandbox supervise" || gone[p.argv[3]] {
			continue
		}
		gone[p.argv[3]] = true
		home, name := filepath.Dir(filepath.Dir(p.argv[3])), filepath.Base(p.argv[3])
		cmd := exec.CommandContext(ctx, programPath(), "sandbox", "delete", name, "--yes")
		cmd.Env = append(os.Environ(), "SLIPWAY_HOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: deleting sandbox %s: %v\n%s", name, err, out)
		}
	}
}

// ownProcesses returns the processes of the program under test, without processes of
// another slipway on this machine.
func ownProcesses() []process {
	var out []process
	for _, p := range listProcesses() {
		exe, err := os.Readlink(p.dir + "/exe")
		if err == nil && strings.TrimSuffix(exe, " (deleted)") == programPath() {
			out = append(out, p)
		}
	}
	return out
}
