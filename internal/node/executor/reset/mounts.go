//go:build linux

package reset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/system"
	"slipway.dev/slipway/internal/node/ledger"
)

// mountsBelow returns the mounts below directories, the last mounted first. A directory
// itself is not included, nor are mounts from fstab, which do not belong to Slipway.
func mountsBelow(h *host.Host, dirs []string) ([]string, error) {
	if len(dirs) == 0 {
		return nil, nil
	}
	raw, err := bounded.ReadFile("/proc/thread-self/mountinfo", bounded.Proc)
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	theirs, err := h.ReadFile(system.Fstab)
	if err != nil {
		return nil, err
	}
	keep := map[string]bool{}
	for line := range strings.Lines(string(theirs)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0][0] != '#' {
			keep[system.UnescapeProc(f[1])] = true
		}
	}
	var out []string
	for _, m := range ledger.MountPoints(raw) {
		if keep[m] {
			continue
		}
		for _, d := range dirs {
			real, err := filepath.EvalSymlinks(h.DiskPath(d))
			if err == nil && strings.HasPrefix(m, strings.TrimSuffix(real, "/")+"/") {
				out = append(out, m)
				break
			}
		}
	}
	slices.Reverse(out)
	return out, nil
}

// unmountAll unmounts in order. A busy mount is retried, because killed processes may not
// be gone yet, and finally detached.
func unmountAll(ctx context.Context, mounts []string) error {
	until := time.Now().Add(host.SettleTime)
	for _, m := range mounts {
		if err := unmountPath(ctx, m, until); err != nil {
			return err
		}
	}
	return nil
}

func unmountPath(ctx context.Context, path string, until time.Time) error {
	flags := unix.UMOUNT_NOFOLLOW
	if isRemote(path) {
		flags |= unix.MNT_DETACH // its server may be gone
	}
	for {
		err := unix.Unmount(path, flags)
		if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || flags&unix.MNT_DETACH != 0 {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
		if time.Now().After(until) {
			flags |= unix.MNT_DETACH
			continue
		}
		if err := host.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// isRemote reports whether a file system is on another machine. Querying the file system
// itself could hang.
func isRemote(path string) bool {
	raw, err := bounded.ReadFile("/proc/thread-self/mountinfo", bounded.Proc)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 5 || system.UnescapeProc(f[4]) != path {
			continue
		}
		kind, _, _ := strings.Cut(after, " ")
		for _, r := range []string{"nfs", "cifs", "smb", "ceph", "fuse", "9p", "gluster"} {
			if strings.HasPrefix(kind, r) {
				return true
			}
		}
	}
	return false
}
