//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// state is this machine's: what a host's preparation would change.
type state struct {
	parts map[string]string
	// clock is the time of day when the machine had run for no time.
	clock time.Duration
}

// watchedPaths are files and directories, by pattern.
func watchedPaths() []string {
	return []string{
		"/etc/hostname", "/etc/hosts", "/etc/fstab", "/etc/localtime", "/etc/timezone", "/etc/machine-id",
		"/etc/modules-load.d/*", "/etc/sysctl.d/*", "/etc/sysctl.conf", "/etc/systemd/system/*", "/etc/systemd/timesyncd.conf.d/*",
		"/var/lib/slipway", "/var/lib/slipway/*",
		"/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/kernel/panic*", "/proc/sys/vm/*",
		"/proc/sys/fs/inotify/*", "/proc/sys/net/ipv4/*", "/proc/sys/net/ipv4/conf/all/*", "/proc/sys/net/ipv6/conf/all/*",
		"/proc/sys/net/bridge/*", "/proc/swaps", "/proc/modules", "/proc/filesystems", "/sys/module/*", "/sys/class/net/*",
	}
}

// recordMachine notes the state of this machine.
func recordMachine() (state, error) {
	s := state{parts: map[string]string{}}
	for _, pattern := range watchedPaths() {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return s, err
		}
		for _, path := range found {
			if err := s.addPath(path); err != nil {
				return s, err
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return s, err
	}
	s.parts["mounts"] = string(mounts)
	var wall, run unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &wall); err != nil {
		return s, err
	}
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &run); err != nil {
		return s, err
	}
	s.clock = time.Duration(wall.Nano() - run.Nano())
	return s, nil
}

// addPath notes what a path holds. A parameter that cannot be read is noted as
// that.
func (s state) addPath(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		s.parts[path], err = os.Readlink(path)
		return err
	case !info.Mode().IsRegular():
		s.parts[path] = info.Mode().Type().String()
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		s.parts[path] = "unreadable"
		return nil
	}
	s.parts[path] = string(bytes.TrimSpace(text))
	return nil
}

// describeChanges says in words what is another than before.
func (s state) describeChanges(now state) []string {
	var out []string
	names := maps.Clone(s.parts)
	maps.Copy(names, now.parts)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, before := s.parts[name]
		is, after := now.parts[name]
		switch {
		case was == is && before == after:
		case !before:
			out = append(out, name+" is new")
		case !after:
			out = append(out, name+" is gone")
		default:
			out = append(out, name+" changed: "+firstDifference(was, is))
		}
	}
	// Time services move a clock by far less.
	if step := (now.clock - s.clock).Abs(); step > time.Second {
		out = append(out, fmt.Sprintf("the clock was moved by %s", step))
	}
	return out
}

// firstDifference is the first line that differs.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		was, is := "", ""
		if i < len(x) {
			was = x[i]
		}
		if i < len(y) {
			is = y[i]
		}
		if was != is {
			return fmt.Sprintf("%q → %q", was, is)
		}
	}
	return "nothing that can be seen"
}
