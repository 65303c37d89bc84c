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
		return refuse(IDNeedsRoot, "removing machines needs root", "run it with sudo")
	}
	if err := s.destroy(ctx); err != nil {
		return fmt.Errorf("deleting sandbox %s: %w", s.Name(), err)
	}
	return s.unlinkHome(home) // there is a link if --dir put it elsewhere
}

func (s *Sandbox) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTimeout, errors.New("some processes do not stop"))
	defer cancel()
	if s.spec.Range.IsValid() {
		if err := s.release(ctx); err != nil {
			return err
		}
	}
	// The files last: until here the command can be repeated.
	return s.removeFiles()
}

// release stops everything that runs and releases the resources of the host. It uses the
// actual state, not the recorded one.
func (s *Sandbox) release(ctx context.Context) error {
	groups, err := s.cgroups()
	if err != nil {
		return err
	}
	locks, err := s.seize(ctx, groups)
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
		err := errors.Join(groups.remove(""), s.lan().down(ctx, host))
		if err == nil {
			delete(host.Claims, s.lan().id())
		}
		return err
	})
}

// seize kills all processes of the sandbox and takes the lock of every supervisor, so
// that none that is just starting continues afterwards.
func (s *Sandbox) seize(ctx context.Context, groups cgroups) (locks []*os.File, err error) {
	waiting := s.Machines()
	err = poll(ctx, 10*time.Millisecond, func() (bool, error) {
		// Supervisors first, because they would start machines again.
		for _, part := range []string{supervisorCgroup, ""} {
			if left := killAll(groups, part); left > 0 {
				return false, nil
			}
		}
		waiting = slices.DeleteFunc(waiting, func(m *Machine) bool {
			f, err := os.OpenFile(m.path(lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
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
	pids := groups.processes(part)
	for _, pid := range pids {
		// The PID comes from the cgroup; a moment later the kernel reports whether it
		// still is that process.
		if p, err := process.Find(pid); err == nil && groups.holds(part, pid) {
			p.Signal(unix.SIGKILL)
		}
	}
	return len(pids)
}

// waitUnmounted waits until the kernel has released the disks, some time after the last
// process.
func (s *Sandbox) waitUnmounted(ctx context.Context) error {
	return poll(ctx, 10*time.Millisecond, func() (bool, error) {
		backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return false, err
		}
		for _, f := range backing {
			b, err := os.ReadFile(f)
			if err == nil && inside(s.dir, string(b)) {
				return false, nil
			}
		}
		return true, nil
	})
}

// inside reports whether a path is below dir.
func inside(dir, path string) bool {
	return len(path) > len(dir) && path[:len(dir)+1] == dir+"/"
}
