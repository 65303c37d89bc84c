package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// deleteTimeout bounds ending what runs.
const deleteTimeout = time.Minute

// Delete removes the sandbox whatever state it is in: its processes, links,
// rules, cgroups and files. The route that keeps packets for the pool on
// this host stays, see docs/adr/0002-sandbox-range.md.
func (s *Sandbox) Delete(ctx context.Context, home string) error {
	if os.Geteuid() != 0 {
		return refuse("sandbox-needs-root", "removing machines needs root", "run it with sudo")
	}
	if err := s.destroy(ctx); err != nil {
		return fmt.Errorf("deleting sandbox %s: %w", s.Name(), err)
	}
	// Where --dir put it elsewhere, this is a link.
	return removeIfThere(filepath.Join(home, "sandboxes", s.Name()))
}

func (s *Sandbox) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTimeout, errors.New("some processes do not end"))
	defer cancel()
	if s.spec.Range.IsValid() {
		if err := s.release(ctx); err != nil {
			return err
		}
	}
	// Last the files: until here the command can be given again.
	return os.RemoveAll(s.dir)
}

// release ends what runs and gives back what is held of the host. It goes
// by what is there, not by what was recorded.
func (s *Sandbox) release(ctx context.Context) error {
	groups, err := s.cgroups()
	if err != nil {
		return err
	}
	// Supervisors first: they would start machines again.
	for _, part := range []string{supervisorCgroup, ""} {
		if err := killAll(ctx, groups, part); err != nil {
			return err
		}
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

// killAll ends all processes of a part, and waits until there are none.
func killAll(ctx context.Context, groups cgroups, part string) error {
	return poll(ctx, 10*time.Millisecond, func() (bool, error) {
		pids := groups.processes(part)
		for _, pid := range pids {
			// The number comes from the cgroup; a moment later the
			// kernel tells whether it still is that process.
			if p, err := findProcess(pid); err == nil && groups.holds(part, pid) {
				p.signal(unix.SIGKILL)
			}
		}
		return len(pids) == 0, nil
	})
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
