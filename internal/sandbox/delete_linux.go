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

// deleteTimeout bounds ending what runs.
const deleteTimeout = time.Minute

// Delete removes the sandbox whatever state it is in: its processes, links,
// rules, cgroups and files. The route that keeps packets for the pool on
// this host stays, see docs/adr/0002-sandbox-range.md.
func (s *Sandbox) Delete(ctx context.Context, home string) error {
	if os.Geteuid() != 0 {
		return refuse(IDNeedsRoot, "removing machines needs root", "run it with sudo")
	}
	if err := s.destroy(ctx); err != nil {
		return fmt.Errorf("deleting sandbox %s: %w", s.Name(), err)
	}
	return s.unlinkHome(home) // there is a link where --dir put it elsewhere
}

func (s *Sandbox) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTimeout, errors.New("some processes do not stop"))
	defer cancel()
	if s.spec.Range.IsValid() {
		if err := s.release(ctx); err != nil {
			return err
		}
	}
	// Last the files: until here the command can be given again.
	return s.removeFiles()
}

// release ends what runs and gives back what is held of the host. It goes
// by what is there, not by what was recorded.
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

// seize ends all processes of the sandbox and takes the place of every
// supervisor, so that none that is just starting goes on afterwards.
func (s *Sandbox) seize(ctx context.Context, groups cgroups) (locks []*os.File, err error) {
	waiting := s.Machines()
	err = poll(ctx, 10*time.Millisecond, func() (bool, error) {
		// Supervisors first: they would start machines again.
		for _, part := range []string{supervisorCgroup, ""} {
			if left := killAll(groups, part); left > 0 {
				return false, nil
			}
		}
		waiting = slices.DeleteFunc(waiting, func(m *Machine) bool {
			f, err := os.OpenFile(m.path(lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
			if errors.Is(err, fs.ErrNotExist) {
				return true // its directory is not made yet, or gone
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

// killAll kills all processes of a part; it says how many there were.
func killAll(groups cgroups, part string) int {
	pids := groups.processes(part)
	for _, pid := range pids {
		// The number comes from the cgroup; a moment later the kernel
		// tells whether it still is that process.
		if p, err := process.Find(pid); err == nil && groups.holds(part, pid) {
			p.Signal(unix.SIGKILL)
		}
	}
	return len(pids)
}

// waitUnmounted waits until the kernel has let go of the disks, which it
// does some time after the last process.
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

// inside says whether a path is below dir.
func inside(dir, path string) bool {
	return len(path) > len(dir) && path[:len(dir)+1] == dir+"/"
}
