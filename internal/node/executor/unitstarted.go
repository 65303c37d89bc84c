//go:build linux

package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// unitStartedOp executes op.UnitStarted.
type unitStartedOp struct{ o op.UnitStarted }

// changedSince returns the files that have changed since a time of CLOCK_MONOTONIC, or
// would change through earlier operations. It is for units that other software started,
// such as kubeadm.
func (s *session) changedSince(paths []string, started time.Duration) ([]string, error) {
	since, err := onClock(started)
	if err != nil {
		return nil, err
	}
	var changed []string
	for _, path := range paths {
		is, err := s.changedAfter(path, since)
		if err != nil {
			return nil, fmt.Errorf("inspecting %s: %w", path, err)
		}
		if is {
			changed = append(changed, path)
		}
	}
	return changed, nil
}

func (s *session) changedAfter(path string, since time.Time) (bool, error) {
	p := s.path(path)
	if will, ok := s.predicted[path]; ok {
		if now, err := ledger.State(p); err != nil || will != now {
			return true, err
		}
	}
	// For a link, both: the link or its target may have been replaced.
	for i, stat := range []func(string, *unix.Stat_t) error{unix.Lstat, unix.Stat} {
		var st unix.Stat_t
		err := stat(p, &st)
		if errors.Is(err, fs.ErrNotExist) {
			// Missing settings, unless they are the target of a link. Of removed ones,
			// the record has those with which the unit was started.
			return i > 0, nil
		}
		if err != nil || time.Unix(st.Ctim.Unix()).After(since) {
			return true, err
		}
	}
	return false, nil
}

// onClock converts a time of CLOCK_MONOTONIC to the host's current clock.
func onClock(at time.Duration) (time.Time, error) {
	var mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		return time.Time{}, fmt.Errorf("reading the clock: %w", err)
	}
	return time.Now().Add(at - time.Duration(mono.Nano())), nil
}

func (x *unitStartedOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	if err := checkUnitName(o.Name); err != nil {
		return verdict{}, err
	}
	now, err := s.unit(ctx, o.Name)
	if err != nil || now.started == 0 {
		return verdict{missing: true}, err
	}
	at, err := onClock(now.started)
	if err != nil {
		return verdict{}, err
	}
	// By the clock at that time. A clock that was set since, or stopped with the machine,
	// must not make the unit appear to have started after its own actions.
	var out bytes.Buffer
	show := command{argv: []string{"systemctl", "show", "--property=ExecMainStartTimestamp", "--", o.Name},
		env: []string{"TZ=UTC"}, stdout: &out}
	if err := s.run(ctx, show); err != nil {
		return verdict{}, fmt.Errorf("reading the start time of %s: %w", o.Name, err)
	}
	then, err := time.Parse("Mon 2006-01-02 15:04:05 MST", properties(out.String())["ExecMainStartTimestamp"])
	if err != nil {
		return verdict{}, fmt.Errorf("reading the start time of %s: %w", o.Name, err)
	}
	if then.Before(at) {
		at = then
	}
	return verdict{output: []byte(at.UTC().Format(time.RFC3339Nano))}, nil
}
