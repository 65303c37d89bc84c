//go:build linux

package run

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

// ticks are what the kernel counts a process's start in, a second: USER_HZ, the
// same on every architecture that we run on.
const ticks = 100

// outdated are the programs of a static pod that were started before one of
// the files was made, and which file that is; runs says that one runs at all.
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

// programs are the processes in static pods of this machine whose command is a certain
// one. Machines that live inside this one have such processes as well.
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
		raw, err := bounded.ReadFile(file, bounded.Proc) // one that ends meanwhile does not run
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

// madeSince is one of the files that was made since a process was started, or
// that is about to be; "" if there is none.
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

// startedAt is when the process was started, by the host's clock as it stands.
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

func (s *session) checkPodRestart(o op.PodRestart) (verdict, error) {
	old, file, _, err := s.outdated(o)
	if err != nil || len(old) == 0 {
		return verdict{}, err
	}
	return verdict{change: "restart: " + file + " changed"}, nil
}

// applyPodRestart tells the program to end, once, and waits for the one that the
// kubelet starts then: that has read what is there, whatever the files' times say. A
// clock that was ahead when they were written, and is not any more, has them be of later
// than whatever is started.
func (s *session) applyPodRestart(ctx context.Context, o op.PodRestart) error {
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
			return &op.Error{Reason: op.ReasonNotServing, Message: fmt.Sprintf("%s was stopped, and did not run again within %ds: the kubelet has not started it", name, o.TimeoutSeconds)}
		}
	}
}
