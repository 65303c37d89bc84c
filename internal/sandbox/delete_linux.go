package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/process"
)

// deleteTimeout limits the time to stop everything that runs.
const deleteTimeout = time.Minute

// Delete removes the sandbox in any state: its processes, links, rules, cgroups and
// files. The route that keeps packets for the pool on this host is kept, see
// docs/adr/0002-sandbox-range.md.
func (s *Sandbox) Delete(ctx context.Context, home string) error {
	if os.Geteuid() != 0 {
		return refuseWith(IDNeedsRoot, "removing machines needs root", "run it with sudo")
	}
	if err := s.destroyAll(ctx); err != nil {
		return fmt.Errorf("deleting sandbox %s: %w", s.Name(), err)
	}
	return s.unlinkHome(home) // there is a link if --dir put it elsewhere
}

func (s *Sandbox) destroyAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTimeout, errors.New("some processes do not stop"))
	defer cancel()
	if s.spec.Range.IsValid() {
		if err := s.releaseResources(ctx); err != nil {
			return err
		}
	}
	// The files last: until here the command can be repeated.
	return s.removeFiles()
}

// releaseResources stops everything that runs and releases the resources of the host. It uses the
// actual state, not the recorded one. A copy of another sandbox has no resources: its range belongs to the other one.
func (s *Sandbox) releaseResources(ctx context.Context) error {
	if other, err := s.readOtherClaim(ctx); err != nil || other != "" {
		return err
	}
	groups, err := s.openCgroups()
	if err != nil {
		return err
	}
	locks, err := s.seizeLocks(ctx, groups)
	defer func() {
		for _, f := range locks {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := s.waitUnmounted(ctx); err != nil {
		return err
	}
	return withHost(ctx, func(host *hostState) error {
		err := errors.Join(groups.removePart(""), s.network().takeDown(ctx, host))
		if err == nil {
			delete(host.Claims, s.network().rangeID())
		}
		return err
	})
}

// seizeLocks kills all processes of the sandbox and takes the lock of every supervisor, so
// that none that is just starting continues afterwards.
func (s *Sandbox) seizeLocks(ctx context.Context, groups cgroups) (locks []*os.File, err error) {
	waiting := s.Machines()
	err = pollUntil(ctx, 10*time.Millisecond, func() (bool, error) {
		// Supervisors first, because they would start machines again.
		for _, part := range []string{supervisorCgroup, ""} {
			if left := killAll(groups, part); left > 0 {
				return false, nil
			}
		}
		waiting = slices.DeleteFunc(waiting, func(m *Machine) bool {
			f, err := os.OpenFile(m.filePath(lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
			if errors.Is(err, fs.ErrNotExist) {
				return true // its directory does not exist yet, or is gone
			}
			if err != nil || unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
				f.Close()
				return false
			}
			locks = append(locks, f)
			return true
		})
		return len(waiting) == 0, nil
	})
	return locks, err
}

// killAll kills all processes of a part; it returns their number.
func killAll(groups cgroups, part string) int {
	pids := groups.listProcesses(part)
	for _, pid := range pids {
		// The PID comes from the cgroup; a moment later the kernel reports whether it
		// still is that process.
		if p, err := process.Find(pid); err == nil && groups.holdsProcess(part, pid) {
			p.Signal(unix.SIGKILL)
		}
	}
	groups.thawProcesses(part)
	return len(pids)
}

// waitUnmounted waits until the kernel has released the disks, some time after the last
// process.
func (s *Sandbox) waitUnmounted(ctx context.Context) error {
	return pollUntil(ctx, 10*time.Millisecond, func() (bool, error) {
		backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return false, err
		}
		for _, f := range backing {
			b, err := os.ReadFile(f)
			if err == nil && isInside(s.dir, string(b)) {
				return false, nil
			}
		}
		return true, nil
	})
}

// isInside reports whether a path is below dir.
func isInside(dir, path string) bool {
	return len(path) > len(dir) && path[:len(dir)+1] == dir+"/"
}
