//go:build linux

package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/op"
)

// podRestartOp executes op.PodRestart.
type podRestartOp struct{ o op.PodRestart }

func (x *podRestartOp) Paths() []string {
	return append([]string{x.o.Manifest}, x.o.Files...)
}

// ticks is the unit of a process's start time in the kernel, for each second: USER_HZ,
// the same on every supported architecture.
const ticks = 100

// outdated returns the programs of a static pod that were started before one of the files
// was created, and that file; runs reports whether any is running.
func (s *session) outdated(o op.PodRestart) (old []process, file string, runs bool, err error) {
	raw, err := bounded.ReadFile(s.path(o.Manifest), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", false, nil
	}
	if err != nil {
		return nil, "", false, err
	}
	var want []argument
	for _, text := range o.Command {
		want = append(want, argument{text: text})
	}
	if len(want) == 0 {
		want = commandOf(string(raw))
	}
	if len(want) == 0 {
		return nil, "", false, fmt.Errorf("%s has no command", o.Manifest)
	}
	all, err := s.programs(func(have []string) bool { return isCommand(want, have) })
	if err != nil {
		return nil, "", false, err
	}
	for _, p := range all {
		changed, err := s.madeSince(o.Files, p)
		if err != nil {
			return nil, "", true, err
		}
		if changed != "" {
			old, file = append(old, p), changed
		}
	}
	return old, file, len(all) > 0, nil
}

// programs returns the processes in static pods of this machine with a certain command.
// Machines inside this machine have such processes as well.
func (s *session) programs(is func(command []string) bool) (out []process, err error) {
	files, err := filepath.Glob(s.path("/proc/[0-9]*/cmdline"))
	if err != nil {
		return nil, err
	}
	here, err := os.Readlink(s.path("/proc/self/ns/pid"))
	if err != nil {
		return nil, fmt.Errorf("reading our process namespace: %w", err)
	}
	for _, file := range files {
		raw, err := bounded.ReadFile(file, bounded.Proc) // a process that ends meanwhile is not running
		if err != nil || !is(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")) {
			continue
		}
		p, ok := readProcess(filepath.Dir(file))
		if !ok {
			continue
		}
		shim := shimArgs(s.path("/proc/"+strconv.Itoa(p.parent)), here)
		static, ordinary := podsOf(filepath.Dir(file))
		if ourShim(shim) && !ordinary || dockerShim(shim) && static && !ordinary {
			out = append(out, p)
		}
	}
	return out, nil
}

// madeSince returns one of the files that was created since a process was started, or
// that is about to be created; "" if there is none.
func (s *session) madeSince(files []string, p process) (string, error) {
	started, err := p.startedAt()
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if _, will := s.predicted[file]; will {
			return file, nil
		}
		var st unix.Stat_t
		err := unix.Stat(s.path(file), &st)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("inspecting %s: %w", file, err)
		}
		if time.Unix(st.Ctim.Unix()).After(started) {
			return file, nil
		}
	}
	return "", nil
}

// startedAt returns the start time of the process, by the host's current clock.
func (p process) startedAt() (time.Time, error) {
	count, err := strconv.ParseInt(p.start, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading when process %d was started: %w", p.pid, err)
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("reading the clock: %w", err)
	}
	ago := time.Duration(up.Nano()) - time.Duration(count)*(time.Second/ticks)
	return time.Now().Add(-ago), nil
}

func (x *podRestartOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	old, file, _, err := s.outdated(o)
	if err != nil || len(old) == 0 {
		return verdict{}, err
	}
	return verdict{change: "restart: " + file + " changed"}, nil
}

// Apply signals the program to stop once, and waits for the program that the
// kubelet then starts: that one has read the current files, whatever their times. If the
// clock was ahead when they were written, they would be newer than every program.
func (x *podRestartOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	bounded, cancel := context.WithTimeout(ctx, time.Duration(o.TimeoutSeconds)*time.Second)
	defer cancel()
	end := unix.SIGTERM
	if o.AtOnce {
		end = unix.SIGKILL
	}
	var told map[process]bool
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		old, _, runs, err := s.outdated(o)
		if err != nil {
			return err
		}
		if told == nil {
			told = map[process]bool{}
			for _, p := range old {
				told[p] = true
				if err := p.signal(end); err != nil {
					return err
				}
			}
		}
		if runs && !slices.ContainsFunc(old, func(p process) bool { return told[p] }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			name := strings.TrimSuffix(path.Base(o.Manifest), path.Ext(o.Manifest))
			return &op.Error{Reason: op.ReasonNotServing,
				Message: fmt.Sprintf("%s was stopped, and did not run again within %ds: the kubelet has not started it", name, o.TimeoutSeconds)}
		}
	}
}
