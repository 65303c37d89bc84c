//go:build linux

// Command hosts measures one manager with many hosts on one machine: facts and the
// preparation of hosts, with Slipway and with Ansible. The hosts have addresses of the
// loopback link, and separate files, names and networks. All of it is in namespaces of
// this program, and is removed with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	// Child processes started below end with this thread.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := dispatchCommand(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-hosts:", err)
		code = 1
	}
	os.Exit(code)
}

// Each of these is this program again, one in the other.
const (
	asReaper = "as-reaper" // process 1 of the laboratory
	asLab    = "as-lab"    // has the hosts, and measures
	asHost   = "as-host"   // makes one host, and ends
)

func dispatchCommand(ctx context.Context, args []string) (int, error) {
	if len(args) == 2 {
		switch args[0] {
		case asReaper:
			return runInit(args[1])
		case asLab:
			return 0, runLab(ctx, args[1])
		case asHost:
			return 0, runHost(args[1])
		}
	}
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		return 2, nil
	}
	if err != nil {
		return 2, err
	}
	return 0, measureAll(ctx, o)
}

// options selects the measurements and the tools.
type options struct {
	Slipway string        // the program, an absolute path
	Server  string        // slipwayd, which keeps the records of Manager; "" for none
	Manager string        // the program with records in an API
	Sizes   []int         // numbers of hosts for Slipway
	Ansible []int         // and for Ansible; Slipway is measured there, too
	Forks   int           // of Ansible
	Rounds  int           // of Slipway with few hosts; the median counts
	Many    int           // the same, with many hosts
	Limit   time.Duration // for one run of a program
	Keep    string        // a directory that profiles and outputs are kept in
	Cache   string
	// Home is a directory on disk for what managers keep, Base the files of
	// hosts.
	Home, Base string
}

func parseOptions(args []string) (options, error) {
	var o options
	var sizes, ansible string
	f := flag.NewFlagSet("hosts", flag.ContinueOnError)
	f.StringVar(&o.Slipway, "slipway", "bin/slipway", "the `program` to measure")
	f.StringVar(&o.Server, "server", "bin/slipwayd", "the `program` that keeps records in an API; \"\" for files only")
	f.StringVar(&o.Manager, "manager", "bin/bench-manager", "the `program` with records in an API")
	f.StringVar(&sizes, "sizes", "10,100,300,1000", "`numbers` of hosts")
	f.StringVar(&ansible, "ansible", "10,50", "`numbers` of hosts to measure Ansible with, too; \"\" is none")
	f.IntVar(&o.Forks, "forks", 25, "Ansible's forks")
	f.IntVar(&o.Rounds, "n", 3, "rounds of Slipway with few hosts, of which the median counts")
	f.IntVar(&o.Many, "many", 1, fmt.Sprintf("rounds of Slipway with more than %d hosts", repeatable))
	f.DurationVar(&o.Limit, "limit", 15*time.Minute, "the longest that one run may take")
	f.StringVar(&o.Keep, "keep", "", "keep what the programs printed in this `directory`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	if o.Sizes, err = parseNumbers(sizes); err != nil {
		return o, err
	}
	if o.Ansible, err = parseNumbers(ansible); err != nil {
		return o, err
	}
	if o.Rounds < 1 || o.Many < 1 {
		return o, errors.New("-n and -many must be at least 1")
	}
	for _, path := range []*string{&o.Slipway, &o.Server, &o.Manager, &o.Keep} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
	}
	if o.Cache = os.Getenv("SLIPWAY_CACHE"); o.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return o, err
		}
		o.Cache = filepath.Join(cache, "slipway")
	}
	return o, nil
}

// parseNumbers reads "10,100"; each must be one that there are addresses for.
func parseNumbers(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var out []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > maxHosts {
			return nil, fmt.Errorf("%q is no number of hosts from 1 to %d", word, maxHosts)
		}
		out = append(out, n)
	}
	return out, nil
}

// measureAll prepares the permanent files, measures in a temporary laboratory, and
// compares the machine with its previous state.
func measureAll(ctx context.Context, o options) error {
	if os.Geteuid() != 0 {
		return errors.New("hosts are made of namespaces, which only root can make")
	}
	programs := []string{o.Slipway}
	if o.Server != "" {
		programs = append(programs, o.Server, o.Manager)
	}
	for _, path := range programs {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("finding a program to measure (make bench-hosts builds it): %w", err)
		}
	}
	var err error
	if o.Base, err = baseTree(ctx, o.Cache); err != nil {
		return fmt.Errorf("making the files of hosts: %w", err)
	}
	if len(o.Ansible) > 0 {
		if err := needAnsible(ctx); err != nil {
			return fmt.Errorf("installing Ansible: %w", err)
		}
	}
	if o.Home, err = os.MkdirTemp("", "slipway-bench-hosts-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.Home)
	before, err := recordMachine()
	if err != nil {
		return fmt.Errorf("looking at this machine: %w", err)
	}
	measured := enterLaboratory(ctx, o)
	after, err := recordMachine()
	if err != nil {
		return errors.Join(measured, fmt.Errorf("looking at this machine: %w", err))
	}
	if changed := before.describeChanges(after); len(changed) > 0 {
		return errors.Join(measured, fmt.Errorf("this machine is not as it was before: %s", strings.Join(changed, "; ")))
	}
	if measured == nil {
		fmt.Println("\nThis machine is as it was before: its kernel parameters, names, hosts file, swap, modules, mounts, links and clock.")
	}
	return measured
}

// enterLaboratory runs this program in separate namespaces. When process 1 in them ends,
// at the latest with this program, the kernel ends all processes in the namespaces and
// removes the mounts and the network.
func enterLaboratory(ctx context.Context, o options) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, asReaper, string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return fmt.Errorf("measuring: %w", err)
	}
	return nil
}

// runInit is process 1 of the laboratory: it gives up what could change the
// machine for good, starts what measures, and waits for all that others leave.
func runInit(text string) (int, error) {
	for _, c := range []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_SYS_RAWIO} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return 1, fmt.Errorf("giving up a capability: %w", err)
		}
	}
	// Hosts check the name of process 1.
	if err := os.WriteFile("/proc/self/comm", []byte("systemd"), 0); err != nil {
		return 1, fmt.Errorf("taking the name of an init: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	p, err := os.StartProcess(self, []string{self, asLab, text}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	for {
		var st unix.WaitStatus
		pid, err := unix.Wait4(-1, &st, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("waiting: %w", err)
		case pid == p.Pid && st.Exited():
			return st.ExitStatus(), nil
		case pid == p.Pid:
			return 1, nil
		}
	}
}
