//go:build linux

package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/op"
)

// StaticPodRestartOp executes op.StaticPodRestart.
type StaticPodRestartOp struct{ Op op.StaticPodRestart }

func (x *StaticPodRestartOp) Paths() []string {
	return append([]string{x.Op.Manifest}, x.Op.Files...)
}

// outdatedPrograms returns the programs of a static pod that were started before one of
// the files was created, and that file; runs reports whether any is running.
func outdatedPrograms(h *host.Host, o op.StaticPodRestart) (old []process.Process, file string, runs bool, err error) {
	raw, err := bounded.ReadFile(h.DiskPath(o.Manifest), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", false, nil
	}
	if err != nil {
		return nil, "", false, err
	}
	var want []health.Argument
	for _, text := range o.Command {
		want = append(want, health.Argument{Text: text})
	}
	if len(want) == 0 {
		want = health.CommandOf(string(raw))
	}
	if len(want) == 0 {
		return nil, "", false, fmt.Errorf("%s has no command", o.Manifest)
	}
	all, err := health.FindPrograms(h, func(have []string) bool { return health.IsCommand(want, have) })
	if err != nil {
		return nil, "", false, err
	}
	for _, p := range all {
		changed, err := madeSince(h, o.Files, p)
		if err != nil {
			return nil, "", true, err
		}
		if changed != "" {
			old, file = append(old, p), changed
		}
	}
	return old, file, len(all) > 0, nil
}

// madeSince returns one of the files that was created since a process was started, or
// that is about to be created; "" if there is none.
func madeSince(h *host.Host, files []string, p process.Process) (string, error) {
	started, err := p.StartedAt()
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if _, will := h.Predicted[file]; will {
			return file, nil
		}
		var st unix.Stat_t
		err := unix.Stat(h.DiskPath(file), &st)
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

func (x *StaticPodRestartOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	old, file, _, err := outdatedPrograms(h, o)
	if err != nil || len(old) == 0 {
		return host.CheckResult{}, err
	}
	return host.CheckResult{Change: "restart: " + file + " changed"}, nil
}

// endsFirst reports whether the program on which this one depends has yet to end.
func endsFirst(h *host.Host, o op.StaticPodRestart) bool {
	if o.AfterEnd == "" {
		return false
	}
	all, err := health.FindPrograms(h, func(have []string) bool { return path.Base(have[0]) == o.AfterEnd })
	return err != nil || slices.ContainsFunc(all, func(p process.Process) bool {
		changed, err := madeSince(h, o.Files, p)
		return err == nil && changed != ""
	})
}

// Apply signals the program to stop once, and waits for the program that the
// kubelet then starts: that one has read the current files, whatever their times. If the
// clock was ahead when they were written, they would be newer than every program.
func (x *StaticPodRestartOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	bounded, cancel := context.WithTimeout(ctx, time.Duration(o.TimeoutSeconds)*time.Second)
	defer cancel()
	end := unix.SIGTERM
	if o.AtOnce {
		end = unix.SIGKILL
	}
	var told map[process.Process]bool
	tick := time.NewTicker(health.ProbeEvery)
	defer tick.Stop()
	for {
		old, _, runs, err := outdatedPrograms(h, o)
		if err != nil {
			return err
		}
		if told == nil && !endsFirst(h, o) {
			told = map[process.Process]bool{}
			for _, p := range old {
				told[p] = true
				if err := p.Signal(end); err != nil {
					return err
				}
			}
		}
		if told != nil && runs && !slices.ContainsFunc(old, func(p process.Process) bool { return told[p] }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if told == nil {
				return &op.Error{
					Reason:  op.ReasonNotServing,
					Message: fmt.Sprintf("%s did not end within %ds: the kubelet has not replaced it", o.AfterEnd, o.TimeoutSeconds),
				}
			}
			name := strings.TrimSuffix(path.Base(o.Manifest), path.Ext(o.Manifest))
			return &op.Error{
				Reason:  op.ReasonNotServing,
				Message: fmt.Sprintf("%s was stopped, and did not run again within %ds: the kubelet has not started it", name, o.TimeoutSeconds),
			}
		}
	}
}
