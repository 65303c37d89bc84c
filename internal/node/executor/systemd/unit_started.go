//go:build linux

package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// UnitStartedOp executes op.UnitStarted.
type UnitStartedOp struct{ Op op.UnitStarted }

// changedSince returns the files that have changed since a time of CLOCK_MONOTONIC, or
// would change through earlier operations. It is for units that other software started,
// such as kubeadm.
func changedSince(h *host.Host, paths []string, started time.Duration) ([]string, error) {
	since, err := systemctl.TimeOfMonotonic(started)
	if err != nil {
		return nil, err
	}
	var changed []string
	for _, path := range paths {
		is, err := changedAfter(h, path, since)
		if err != nil {
			return nil, fmt.Errorf("inspecting %s: %w", path, err)
		}
		if is {
			changed = append(changed, path)
		}
	}
	return changed, nil
}

func changedAfter(h *host.Host, path string, since time.Time) (bool, error) {
	p := h.DiskPath(path)
	if will, ok := h.Predicted[path]; ok {
		if now, err := ledger.PathState(p); err != nil || will != now {
			return true, err
		}
	}
	// For a link, both: the link or its target may have been replaced.
	for i, stat := range []func(string, *unix.Stat_t) error{unix.Lstat, unix.Stat} {
		var st unix.Stat_t
		err := stat(p, &st)
		if errors.Is(err, fs.ErrNotExist) {
			// Missing settings, unless they are the target of a link. The
			// record has the removed files with which the unit was started.
			return i > 0, nil
		}
		if err != nil || time.Unix(st.Ctim.Unix()).After(since) {
			return true, err
		}
	}
	return false, nil
}

func (x *UnitStartedOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if err := systemctl.CheckUnitName(o.Name); err != nil {
		return host.CheckResult{}, err
	}
	now, err := systemctl.ShowUnit(ctx, h, o.Name)
	if err != nil || now.Started == 0 {
		return host.CheckResult{Missing: true}, err
	}
	at, err := systemctl.TimeOfMonotonic(now.Started)
	if err != nil {
		return host.CheckResult{}, err
	}
	// By the clock at that time. A clock that was set since, or stopped with the machine,
	// must not make the unit appear to have started after its own actions.
	var out bytes.Buffer
	show := host.Command{
		Argv: []string{"systemctl", "show", "--property=ExecMainStartTimestamp", "--", o.Name},
		Env:  []string{"TZ=UTC"}, Stdout: &out,
	}
	if err := h.Run(ctx, show); err != nil {
		return host.CheckResult{}, fmt.Errorf("reading the start time of %s: %w", o.Name, err)
	}
	then, err := time.Parse("Mon 2006-01-02 15:04:05 MST", systemctl.ParseProperties(out.String())["ExecMainStartTimestamp"])
	if err != nil {
		return host.CheckResult{}, fmt.Errorf("reading the start time of %s: %w", o.Name, err)
	}
	if then.Before(at) {
		at = then
	}
	return host.CheckResult{Output: []byte(at.UTC().Format(time.RFC3339Nano))}, nil
}
