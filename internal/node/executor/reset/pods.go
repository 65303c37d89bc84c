//go:build linux

package reset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

// leaveTime is how long signalled programs can take to stop before they are killed.
const leaveTime = 5 * time.Second

// stopPods stops the units in order and ends every pod. Pods survive the unit of their
// runtime, so they are killed before it is stopped, while it still cleans up after them,
// and their shims after it.
func stopPods(ctx context.Context, h *host.Host, o op.Reset) error {
	for _, name := range o.Units {
		if strings.HasPrefix(name, "containerd") {
			if err := errors.Join(signalPods(ctx, h, o), endPods(ctx, h, onlyPods(o), false)); err != nil {
				return err
			}
		}
		u, err := systemctl.ShowUnit(ctx, h, name)
		if err != nil {
			return err
		}
		if u.IsRunning() {
			if err := systemctl.RunSystemctl(ctx, h, "stop", "--", name); err != nil {
				return err
			}
		}
	}
	return endPods(ctx, h, onlyPods(o), true)
}

// onlyPods are the cgroups in which all processes are killed.
func onlyPods(o op.Reset) []string { return slices.Concat(o.Cgroups, o.Within) }

// signalPods signals programs in pods to stop, and waits for a short time. Nothing starts
// them again, because the kubelet is stopped.
func signalPods(ctx context.Context, h *host.Host, o op.Reset) error {
	told := map[process.Process]bool{}
	for until := time.Now().Add(leaveTime); time.Now().Before(until); {
		all, err := process.PodProcesses(h, onlyPods(o))
		if err != nil {
			return err
		}
		asked := map[int]process.Process{}
		for _, p := range all {
			if slices.Contains(o.TellFirst, p.Program()) {
				asked[p.PID] = p
			}
		}
		if len(asked) == 0 {
			return nil
		}
		for _, p := range asked {
			if _, child := asked[p.Parent]; child || told[p] {
				continue // its parent signals it, and would start it again
			}
			told[p] = true
			if err := p.Signal(unix.SIGTERM); err != nil {
				return err
			}
		}
		if err := host.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// endPods kills the processes of pods, and the shims if requested, and waits until they
// are gone.
func endPods(ctx context.Context, h *host.Host, cgroups []string, shims bool) error {
	until := time.Now().Add(host.SettleTime)
	for {
		all, err := process.PodProcesses(h, cgroups)
		if err != nil {
			return err
		}
		if !shims {
			all = slices.DeleteFunc(all, func(p process.Process) bool { return p.Shim })
		}
		if len(all) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return &op.Error{Reason: "Failed", Message: fmt.Sprintf("%d pod processes do not stop, for example process %d", len(all), all[0].PID)}
		}
		for _, p := range all {
			if err := p.Signal(unix.SIGKILL); err != nil {
				return err
			}
		}
		if err := host.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// activeSlices returns the slices of pods that systemd has. It can have them without their cgroups, and creates the cgroups
// again with its next reload.
func activeSlices(ctx context.Context, h *host.Host, names []string) (out []string, err error) {
	for _, name := range names {
		if !strings.HasSuffix(name, ".slice") {
			continue
		}
		u, err := systemctl.ShowUnit(ctx, h, name)
		if err != nil {
			return nil, err
		}
		if u.Active == "active" {
			out = append(out, name)
		}
	}
	return out, nil
}

// removeCgroups removes the cgroups of pods. systemd stops slices; the remaining
// directories are empty and are removed one by one.
func removeCgroups(ctx context.Context, h *host.Host, names []string) error {
	active, err := activeSlices(ctx, h, names)
	if err != nil {
		return err
	}
	for _, name := range active {
		if err := systemctl.RunSystemctl(ctx, h, "stop", "--", name); err != nil {
			return err
		}
	}
	until := time.Now().Add(host.SettleTime)
	for {
		dirs := process.FindCgroups(h, names)
		if len(dirs) == 0 {
			return nil
		}
		var last error
		for _, dir := range dirs {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				last = fmt.Errorf("removing cgroup %s: %w", dir, err)
			}
		}
		if last == nil {
			return nil
		}
		if time.Now().After(until) {
			return last
		}
		if err := host.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
