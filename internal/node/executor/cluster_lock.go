//go:build linux

package executor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/reset"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/lock"
)

// ReadLock returns the holder of the cluster lock on this host.
func (r *Runner) ReadLock(ctx context.Context) (lock.State, error) {
	return r.lockStore().ReadState(ctx)
}

// TakeLock takes the lock like the method of lock.Store; false means that another manager has it.
func (r *Runner) TakeLock(ctx context.Context, l lock.Lock, breaking bool) (lock.State, bool, error) {
	return r.lockStore().TakeLock(ctx, l, breaking)
}

// Beat renews the heartbeat; it returns false if the lock is no longer l.
func (r *Runner) Beat(ctx context.Context, l lock.Lock) (bool, error) {
	return r.lockStore().RenewHeartbeat(ctx, l)
}

// ReleaseLock frees the lock if it is still l, and removes the state directory if a
// restore has left nothing else in it.
func (r *Runner) ReleaseLock(ctx context.Context, l lock.Lock) error {
	return r.lockStore().ReleaseLock(ctx, l)
}

func (r *Runner) lockStore() *lock.Store {
	state, root := r.State, r.Root
	if state == "" {
		state = host.DefaultState
	}
	return &lock.Store{
		Dir: state, Past: filepath.Join("/", root, "run/slipway"), Disk: r.disk, Uptime: lock.SystemUptime, Foreign: reset.IsForeignState,
		BootID: func() (string, error) {
			raw, err := bounded.ReadFile(filepath.Join("/", root, "proc/sys/kernel/random/boot_id"), bounded.Proc)
			if err != nil {
				return "", fmt.Errorf("reading the boot id: %w", err)
			}
			return strings.TrimSpace(string(raw)), nil
		},
		Units: r.runningUnits,
	}
}

// runningUnits returns the running transient units of an operation.
func (r *Runner) runningUnits(ctx context.Context, operation string) ([]string, error) {
	h := &host.Host{Root: r.Root, State: r.State, SearchPath: r.Path}
	if h.SearchPath == "" {
		h.SearchPath = host.DefaultPath
	}
	out, err := h.Output(ctx, "systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager",
		"--state=activating,running,deactivating,reloading", systemctl.UnitPrefix+operation+"-*")
	if err != nil {
		return nil, fmt.Errorf("listing the units of operation %s: %w", operation, err)
	}
	var units []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 {
			units = append(units, f[0])
		}
	}
	return units, nil
}
