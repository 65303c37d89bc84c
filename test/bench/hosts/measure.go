//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A figure is one program over a number of hosts.
type figure struct {
	Hosts int
	Tool  string
	Again bool // an unchanged run
	Wall  time.Duration
	// CPU and Peak are the manager's alone: user and system time, and the
	// most memory in bytes, of the program and what it waits for.
	CPU  time.Duration
	Peak int64
	Over bool // stopped at the limit: the others say no more than that
	// Load is the load average of the machine before the run.
	Load string
	API  *apiUse // of a run with records in an API
}

// The tools.
const (
	toolSlipway = "slipway"
	toolAPI     = "slipway, API" // with records in an API
	toolAnsible = "ansible"
	toolMerged  = "ansible, merged"
)

func isSlipway(tool string) bool { return tool == toolSlipway || tool == toolAPI }

const (
	// leanFrom is from how many hosts on these keep no second copy of the
	// helper: two for each would not fit into the memory that is their disk.
	leanFrom = 500
	// perHost is the memory of a host, in bytes, and perLeanHost the memory of a host
	// without a second copy of the helper.
	perHost     = 24 << 20
	perLeanHost = 15 << 20
	// reserve is left to the machine.
	reserve = 1 << 30
	// repeatable is up to how many hosts Slipway is measured several times.
	repeatable = 100
)

// isLean reports whether n hosts have the directory of managed hosts, so that the helper
// is written to its final place immediately.
func isLean(n int) bool { return n >= leanFrom }

// memoryNeeded is how much memory so many hosts take.
func memoryNeeded(n int) int64 {
	if isLean(n) {
		return int64(n)*perLeanHost + reserve
	}
	return int64(n)*perHost + reserve
}

func (l *lab) measureStages(ctx context.Context) error {
	var all []figure
	var comparisons []comparison
	stages := append(slices.Clone(l.Sizes), l.Ansible...)
	slices.Sort(stages)
	for _, n := range slices.Compact(stages) {
		free, err := availableMemory()
		if err != nil {
			return err
		}
		if free < memoryNeeded(n) {
			fmt.Printf("%d hosts are left out: they take %d MiB of memory, and %d are free\n", n, memoryNeeded(n)>>20, free>>20)
			continue
		}
		figures, compared, err := l.measureStage(ctx, n)
		if err != nil {
			return fmt.Errorf("with %d hosts: %w", n, err)
		}
		all, comparisons = append(all, figures...), append(comparisons, compared...)
	}
	printReport(os.Stdout, all)
	printComparisons(os.Stdout, comparisons)
	return nil
}

// measureStage measures all there is to measure with so many hosts.
func (l *lab) measureStage(ctx context.Context, n int) (out []figure, compared []comparison, err error) {
	out, compared, err = l.measureSlipway(ctx, n)
	if err != nil || !slices.Contains(l.Ansible, n) {
		return out, compared, err
	}
	tools := []string{toolAnsible}
	if n == slices.Min(l.Ansible) {
		tools = append(tools, toolMerged)
	}
	for _, tool := range tools {
		pair, err := l.prepareTwice(ctx, n, tool)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, pair...)
	}
	return out, compared, nil
}

// measureSlipway measures Slipway with its records in files and in an API, by turns: each round begins
// with the other of them.
func (l *lab) measureSlipway(ctx context.Context, n int) (out []figure, compared []comparison, err error) {
	rounds := l.Many
	if n <= repeatable {
		rounds = l.Rounds
	}
	tools := []string{toolSlipway}
	if l.Server != "" {
		tools = append(tools, toolAPI)
	}
	first, again := map[string][]figure{}, map[string][]figure{}
	for range rounds {
		for _, tool := range tools {
			pair, err := l.prepareTwice(ctx, n, tool)
			if err != nil {
				return nil, nil, err
			}
			if len(pair) == 1 {
				return pair, nil, nil
			}
			first[tool], again[tool] = append(first[tool], pair[0]), append(again[tool], pair[1])
		}
		slices.Reverse(tools)
	}
	out = []figure{medianFigure(first[toolSlipway]), medianFigure(again[toolSlipway])}
	if l.Server != "" {
		compared = []comparison{
			{Hosts: n, Files: first[toolSlipway], API: first[toolAPI]},
			{Hosts: n, Again: true, Files: again[toolSlipway], API: again[toolAPI]},
		}
	}
	return out, compared, nil
}

// medianFigure is the figure with the median of wall times.
func medianFigure(figures []figure) figure { return sortByWall(figures)[len(figures)/2] }

// prepareTwice prepares fresh hosts, and again when there is nothing left to do.
func (l *lab) prepareTwice(ctx context.Context, n int, tool string) (out []figure, err error) {
	prepare := func(s *server) error {
		return l.withHosts(ctx, n, func(hosts []host) error {
			out, err = l.prepareHosts(ctx, hosts, tool, s)
			return err
		})
	}
	if tool == toolAPI {
		return out, l.withServer(ctx, prepare)
	}
	return out, prepare(nil)
}

// prepareHosts prepares hosts twice. The records are in the server if it is not nil.
func (l *lab) prepareHosts(ctx context.Context, hosts []host, tool string, s *server) (out []figure, err error) {
	home, err := os.MkdirTemp(l.Home, "manager-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	argv, env, err := l.programFor(tool, hosts, home, s)
	if err != nil {
		return nil, err
	}
	for _, again := range []bool{false, true} {
		f := figure{Hosts: len(hosts), Tool: tool, Again: again}
		said, err := l.runWithServer(ctx, s, &f, home, argv, env)
		if err == nil && !f.Over {
			err = checkRun(f, hosts, said)
		}
		if err != nil {
			return nil, err
		}
		f.printFigure(os.Stdout)
		if out = append(out, f); f.Over { // there is something left to do
			return out, nil
		}
	}
	if s != nil {
		out[0].API.ClusterStatus, err = l.measureClusterStatus(ctx, s, len(hosts), env)
	}
	return out, err
}

// checkRun rejects a run that has not done the measured work.
func checkRun(f figure, hosts []host, said string) error {
	for _, h := range hosts {
		if lacks := h.missingPreparation(); lacks != "" {
			return fmt.Errorf("%s has not prepared %s: %s", f.Tool, h.Name, lacks)
		}
	}
	quietly := strings.Count(said, "changed=0 ") == len(hosts)
	if isSlipway(f.Tool) {
		quietly = strings.Contains(said, nothingToDo)
	}
	if f.Again && !quietly {
		return fmt.Errorf("%s has changed something where there was nothing left to do\n%s", f.Tool, lastOutput(said))
	}
	return nil
}

// runTimed runs a program, records its figures, and returns its output.
func (l *lab) runTimed(ctx context.Context, f *figure, home string, argv, env []string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, l.Limit)
	defer cancel()
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = home, append(os.Environ(), env...)
	// With all that it has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	path := filepath.Join(home, "output")
	if l.Keep != "" {
		path = filepath.Join(l.Keep, strings.ReplaceAll(f.name(), " ", "-")+".txt")
	}
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	f.Load = readLoad()
	start := time.Now()
	err = cmd.Run()
	f.Wall = time.Since(start)
	if cmd.ProcessState != nil {
		f.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			f.Peak = usage.Maxrss << 10
		}
	}
	if errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		f.Over = true
		return "", nil
	}
	said, rerr := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, lastOutput(string(said)))
	}
	return string(said), rerr
}

// readLoad returns the load averages of this machine; "" if they cannot be read.
func readLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:2], " ")
}

// availableMemory is how much memory programs can have, in bytes.
func availableMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("reading /proc/meminfo: no MemAvailable")
}
