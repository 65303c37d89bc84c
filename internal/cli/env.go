package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/fileowner"
)

// Env gives access to the machine that the program runs on.
type Env struct {
	Getenv   func(string) string
	Environ  func() []string
	Hostname func() (string, error)
	// IsCgroupV1 reports whether this machine uses cgroup v1.
	IsCgroupV1 func() bool
	Now        func() time.Time
	UID        int // effective
	// LookupUser returns the user with an id.
	LookupUser func(uid string) (*user.User, error)
	// Notify and StopNotify are Notify and Stop of package os/signal.
	Notify     func(chan<- os.Signal, ...os.Signal)
	StopNotify func(chan<- os.Signal)
	// Exec replaces this process with another program.
	Exec func(path string, argv, env []string) error
}

// CurrentProcess returns the streams and the machine of this process. Under sudo it sets
// SLIPWAY_HOME and SLIPWAY_CACHE to the caller's directories, so that commands and
// the programs that they start find them in the environment.
func CurrentProcess() (Streams, Env) {
	env := Env{
		Getenv: os.Getenv, Environ: os.Environ, Hostname: os.Hostname, IsCgroupV1: isCgroupV1, Now: time.Now, UID: os.Geteuid(),
		LookupUser: user.LookupId, Notify: notifyUnlessIgnored, StopNotify: signal.Stop, Exec: syscall.Exec,
	}
	if d, err := env.findDirectories(); err == nil && d.Owner != nil {
		for name, dir := range map[string]string{"SLIPWAY_HOME": d.Home, "SLIPWAY_CACHE": d.Cache} {
			if os.Getenv(name) == "" {
				_ = os.Setenv(name, dir) // cannot fail for these names and values
			}
		}
	}
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		CanAsk:        view.IsTerminal(os.Stdin) && view.IsTerminal(os.Stderr),
		OutIsTerminal: view.IsTerminal(os.Stdout),
		Size:          view.TerminalSizeFunc(os.Stderr, os.Getenv),
	}, env
}

// findDirectories returns the directories: SLIPWAY_HOME and SLIPWAY_CACHE, or the data
// and cache directories of the user. Under sudo they are the caller's, with the
// caller as owner.
func (e Env) findDirectories() (program.Directories, error) {
	d := program.Directories{Home: e.Getenv("SLIPWAY_HOME"), Cache: e.Getenv("SLIPWAY_CACHE"), User: e.Getenv("HOME")}
	who := strconv.Itoa(e.UID)
	if caller := e.Getenv("SUDO_UID"); e.UID == 0 && caller != "" && caller != "0" {
		uid, err1 := strconv.Atoi(caller)
		gid, err2 := strconv.Atoi(e.Getenv("SUDO_GID"))
		if err := errors.Join(err1, err2); err != nil {
			return program.Directories{}, fmt.Errorf("reading SUDO_UID and SUDO_GID: %w", err)
		}
		who, d.User, d.Owner = caller, "", &fileowner.Owner{UID: uid, GID: gid}
	}
	if d.User == "" {
		u, err := e.LookupUser(who)
		if err != nil {
			const format = "finding the home of user %s (SLIPWAY_HOME and SLIPWAY_CACHE set other directories): %w"
			return program.Directories{}, fmt.Errorf(format, who, err)
		}
		d.User = u.HomeDir
	}
	base := func(xdg, below string) string {
		if dir := e.Getenv(xdg); filepath.IsAbs(dir) {
			return filepath.Join(dir, "slipway")
		}
		return filepath.Join(d.User, below, "slipway")
	}
	if d.Home == "" {
		d.Home = base("XDG_DATA_HOME", ".local/share")
	}
	if d.Cache == "" {
		d.Cache = base("XDG_CACHE_HOME", ".cache")
	}
	// Absolute paths work from every working directory.
	var err1, err2 error
	d.Home, err1 = filepath.Abs(d.Home)
	d.Cache, err2 = filepath.Abs(d.Cache)
	return d, errors.Join(err1, err2)
}

// notifyUnlessIgnored is signal.Notify, except for signals that the program was started
// to ignore: SIGHUP under nohup, SIGINT in the background of a script.
func notifyUnlessIgnored(c chan<- os.Signal, sig ...os.Signal) {
	sig = slices.DeleteFunc(slices.Clone(sig), func(s os.Signal) bool {
		return (s == syscall.SIGHUP || s == os.Interrupt) && signal.Ignored(s)
	})
	if len(sig) > 0 { // an empty list would mean all signals
		signal.Notify(c, sig...)
	}
}

// newCacheHandover returns a function that gives the cache to the caller after the
// program ran as root under sudo. Otherwise the caller could not use the cache without
// sudo. The files for sandbox machines remain root's, and so does a directory that
// others may share.
func (e Env) newCacheHandover(talk io.Writer) func() {
	d, err := e.findDirectories()
	if err != nil || d.Owner == nil {
		return func() {} // commands that need the directories report the error
	}
	missing := fileowner.MissingPaths(d.Cache)
	if len(missing) == 0 && !d.Owner.CanTake(d.Cache) {
		return func() {}
	}
	return func() {
		if err := errors.Join(d.Owner.GiveTree(d.Cache, "sandbox"), d.Owner.GiveMade(missing)); err != nil {
			fmt.Fprintf(talk, "warning: the cache still belongs to root: %v\n", err)
		}
	}
}

// isCgroupV1 reports whether this machine uses cgroup v1: the file that it looks for
// exists only with cgroup v2.
func isCgroupV1() bool {
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		return false
	}
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return errors.Is(err, fs.ErrNotExist)
}
