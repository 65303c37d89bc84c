//go:build linux

package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

// unitExitCode is systemd's word for a program that exited with an error.
const unitExitCode = "exit-code"

// RunDir has, below the state directory, one directory for each transient unit whose
// result was not read yet.
const RunDir = "run"

// transientMeta describes the purpose of a transient unit.
type transientMeta struct {
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Step      string `json:"step"`
}

func transientUnitName(h *host.Host, o op.Exec) string {
	return systemctl.UnitPrefix + h.Batch.Operation + "-" + h.Batch.Step + "-" + o.Name + ".service"
}

// unitPhase is the state of a transient unit.
type unitPhase int

const (
	wholeNone    unitPhase = iota // systemd has no such unit
	wholeRunning                  // running, or queued to run
	wholeDone                     // ended, with its result not read
)

func readUnitPhase(ctx context.Context, h *host.Host, unit string) (unitPhase, systemctl.UnitState, error) {
	u, err := systemctl.ShowUnit(ctx, h, unit)
	switch {
	case err != nil:
		return wholeNone, u, err
	case u.Active == "active" && u.Sub == "exited", u.Active == "failed":
		return wholeDone, u, nil
	case u.Active == "active", u.Active == "activating", u.Active == "deactivating", u.Job != "" && u.Job != "0":
		return wholeRunning, u, nil
	}
	return wholeNone, u, nil
}

// pendingTransientUnit returns why an uninterruptible step must run whatever its guards
// return: an earlier run of it continues, or ended without a read result.
func pendingTransientUnit(ctx context.Context, h *host.Host, o op.Exec) (string, error) {
	if h.Batch.Operation != "" {
		st, _, err := readUnitPhase(ctx, h, transientUnitName(h, o))
		switch {
		case err != nil:
			return "", err
		case st == wholeRunning:
			return "attach to the running step", nil
		case st == wholeDone:
			return "read the result of the completed run", nil
		}
	}
	others, err := otherTransientUnits(h, o)
	if err != nil {
		return "", err
	}
	for _, unit := range others {
		st, _, err := readUnitPhase(ctx, h, unit)
		if err != nil {
			return "", err
		}
		if st == wholeRunning {
			return "wait for " + unit + ", then check again", nil
		}
	}
	return "", nil
}

// otherTransientUnits returns the units that other operations or steps started for the
// same program.
func otherTransientUnits(h *host.Host, o op.Exec) ([]string, error) {
	units, err := StartedUnits(h, o)
	own := transientUnitName(h, o)
	return slices.DeleteFunc(units, func(unit string) bool { return unit == own }), err
}

// StartedUnits returns all units of a program with unread results.
func StartedUnits(h *host.Host, o op.Exec) ([]string, error) {
	all, err := UnclaimedUnits(h)
	return slices.DeleteFunc(all, func(unit string) bool {
		raw, err := atomicfile.ReadFile(h.StatePath(RunDir, unit, "meta.json"), bounded.Record)
		var m transientMeta
		// Without it, the run was interrupted before the start of the unit.
		return err != nil || json.Unmarshal(raw, &m) != nil || m.Name != o.Name
	}), err
}

// UnclaimedUnits returns all transient units with unread results.
func UnclaimedUnits(h *host.Host) (units []string, err error) {
	entries, err := atomicfile.ReadDir(h.StatePath(RunDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing transient units: %w", err)
	}
	for _, e := range entries {
		units = append(units, e.Name())
	}
	return units, nil
}

// runTransientUnit runs a program as a transient unit, or attaches to the unit of an
// earlier manager, and waits for its end. When ctx ends, the unit continues. stdin, if
// set, writes the input of the program.
func runTransientUnit(ctx context.Context, h *host.Host, o op.Exec, stdin func(io.Writer) error, rec ExecRecord) ([]byte, error) {
	if !host.IsFileName(h.Batch.Operation) || !host.IsFileName(h.Batch.Step) {
		return nil, host.Invalid("a step in its own unit needs an operation and a step: %q, %q", h.Batch.Operation, h.Batch.Step)
	}
	unit := transientUnitName(h, o)
	st, _, err := readUnitPhase(ctx, h, unit)
	if err != nil {
		return nil, err
	}
	if st == wholeNone {
		if err := runWithoutOthers(ctx, h, o); err != nil {
			return nil, err
		}
		satisfied, err := awaitOtherUnits(ctx, h, o)
		if err != nil || satisfied {
			return nil, err
		}
		if err := startTransientUnit(ctx, h, o, stdin, unit, rec); err != nil {
			return nil, err
		}
	}
	u, err := FollowUnit(ctx, h, o, unit)
	if err != nil {
		return nil, err
	}
	return transientResult(ctx, h, o, unit, u)
}

// runWithoutOthers waits until none of the programs is running that other steps started
// before their manager went away, because such programs must not run concurrently. Their
// results are left to their steps.
func runWithoutOthers(ctx context.Context, h *host.Host, o op.Exec) error {
	all, err := UnclaimedUnits(h)
	if err != nil {
		return err
	}
	same, err := StartedUnits(h, o)
	if err != nil {
		return err
	}
	for _, unit := range all {
		if slices.Contains(same, unit) {
			continue
		}
		st, _, err := readUnitPhase(ctx, h, unit)
		if err != nil {
			return err
		}
		if st == wholeRunning {
			h.Report(host.Progress{Output: []byte("waiting for " + unit + "\n")})
			if _, err := FollowUnit(ctx, h, op.Exec{Name: o.Name, SecretOutput: true}, unit); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitOtherUnits waits until no other operation runs the same program. Its work, or the
// work of a partly cleaned up run of this operation, may be the wanted result; so may the
// work of an interrupted run, if its result is known.
func awaitOtherUnits(ctx context.Context, h *host.Host, o op.Exec) (satisfied bool, err error) {
	others, err := otherTransientUnits(h, o)
	if err != nil {
		return false, err
	}
	for _, unit := range others {
		st, _, err := readUnitPhase(ctx, h, unit)
		if err != nil {
			return false, err
		}
		if st == wholeRunning {
			h.Report(host.Progress{Output: []byte("waiting for " + unit + " of another operation\n")})
			if _, err := FollowUnit(ctx, h, o, unit); err != nil {
				return false, err
			}
		}
		if err := adoptUnit(ctx, h, o, unit); err != nil {
			return false, err
		}
	}
	if o.Conclusive {
		why, err := missingResult(h, o)
		return err == nil && why == "", err
	}
	rec, _, err := ReadExecRecord(h, o.Name)
	if err != nil || !rec.Done || len(o.Creates)+len(o.Unless)+len(o.Inputs) == 0 {
		return false, err
	}
	why, err := checkGuards(ctx, h, o)
	return err == nil && why == "", err
}

// adoptUnit reads the result of another operation's unit: if the unit succeeded, so did
// the program.
func adoptUnit(ctx context.Context, h *host.Host, o op.Exec, unit string) error {
	st, u, err := readUnitPhase(ctx, h, unit)
	if err != nil {
		return err
	}
	succeeded := st == wholeDone && u.HasSucceeded()
	err = markRun(h, o.Name, func(rec *ExecRecord) {
		rec.Done = rec.Done || succeeded
		rec.Ended = rec.Ended || u.Result == unitExitCode
	})
	if err != nil {
		return err
	}
	return ForgetUnit(ctx, h, unit)
}

func startTransientUnit(ctx context.Context, h *host.Host, o op.Exec, stdin func(io.Writer) error, unit string, rec ExecRecord) error {
	dir := h.StatePath(RunDir, unit)
	program, err := h.FindProgram(o.Argv[0])
	if err != nil {
		return &op.Error{Reason: "CommandFailed", Message: err.Error(), ExitCode: 127}
	}
	// The remains of a run before the last boot have no more information.
	if err := h.Disk.RemoveAll(dir); err != nil {
		return err
	}
	if err := clearInterruptedRun(h, o); err != nil {
		return err
	}
	for _, p := range o.Replaces {
		if err := h.Disk.RemoveAll(h.DiskPath(p)); err != nil {
			return err
		}
	}
	made, err := hostfs.MatchingFiles(h, o)
	if err != nil {
		return err
	}
	rec.Existing = exact.ToTexts(made)
	if err := h.WriteRecord(h.StatePath("exec", o.Name+".json"), rec); err != nil {
		return err
	}
	// First of all files there: after an interruption, the remains are identified by it.
	if err := h.WriteRecord(filepath.Join(dir, "meta.json"), transientMeta{o.Name, h.Batch.Operation, h.Batch.Step}); err != nil {
		return err
	}
	if stdin != nil {
		if err := writeStdin(dir, stdin); err != nil {
			return errors.Join(err, h.Disk.RemoveAll(dir)) // the disk may be full
		}
	}
	if err := writeHosts(h, o, dir); err != nil {
		return err
	}
	if _, err := h.Output(ctx, systemdRun(h, o, stdin != nil, unit, dir, program)...); err != nil {
		// Another helper, killed since, may have been faster.
		if st, _, uerr := readUnitPhase(ctx, h, unit); uerr == nil && st != wholeNone {
			return nil
		}
		return fmt.Errorf("starting %s: %w", unit, err)
	}
	return nil
}

// writeStdin writes the input of a unit. It does not have to survive a crash of the host,
// because the unit does not either.
func writeStdin(dir string, write func(io.Writer) error) error {
	f, err := os.OpenFile(filepath.Join(dir, "stdin"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// systemdRun returns the argv that starts the unit.
func systemdRun(h *host.Host, o op.Exec, stdin bool, unit, dir, program string) []string {
	workdir := o.Dir
	if workdir == "" {
		workdir = "/"
	}
	argv := []string{
		"systemd-run", "--no-block", "--quiet", "--no-ask-password", "--unit=" + unit,
		"--description=Slipway: " + o.Name,
		"--property=RemainAfterExit=yes",
		"--property=RuntimeMaxSec=" + strconv.Itoa(int(timeoutOf(o).Seconds())),
		"--property=StandardOutput=file:" + filepath.Join(dir, "stdout"),
		"--property=StandardError=file:" + filepath.Join(dir, "stderr"),
		"--property=UMask=0022",
		"--property=WorkingDirectory=" + workdir,
		"--setenv=PATH=" + h.SearchPath, "--setenv=HOME=/root", "--setenv=LANG=C.UTF-8", "--setenv=LC_ALL=C.UTF-8",
	}
	for _, e := range o.Env {
		argv = append(argv, "--setenv="+e)
	}
	if len(o.Hosts) > 0 {
		argv = append(argv, "--property=BindReadOnlyPaths="+filepath.Join(dir, hostsName)+":"+HostsFile)
	}
	if stdin {
		argv = append(argv, "--property=StandardInput=file:"+filepath.Join(dir, "stdin"))
	}
	argv = append(argv, "--", program)
	for _, a := range o.Argv[1:] {
		// systemd expands variables in the command lines of services.
		argv = append(argv, strings.ReplaceAll(a, "$", "$$"))
	}
	return argv
}

// Intervals of checks of a transient unit: of its output and process, which is cheap, and
// of systemd's state, which is not.
const (
	lookEvery = 100 * time.Millisecond
	askEvery  = 3 * time.Second
)

// FollowUnit passes the output of the unit on until it has ended.
func FollowUnit(ctx context.Context, h *host.Host, o op.Exec, unit string) (systemctl.UnitState, error) {
	tail := follower{s: h, dir: h.StatePath(RunDir, unit), quiet: o.SecretOutput}
	defer tail.close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var asked time.Time
	pid := ""
	for {
		tail.copy()
		alive := pid != "" && pid != "0" && host.Exists("/proc/"+pid)
		if !alive || time.Since(asked) >= askEvery {
			st, u, err := readUnitPhase(ctx, h, unit)
			if err != nil && ctx.Err() == nil {
				return u, err
			}
			if err == nil && st != wholeRunning {
				tail.copy()
				return u, nil
			}
			pid, asked = u.MainPID, time.Now()
		}
		select {
		case <-ctx.Done():
			reason := host.FailureOf(ctx.Err()).Reason
			return systemctl.UnitState{}, &op.Error{
				Reason:  reason,
				Message: fmt.Sprintf("%s continues as %s; Slipway attaches to it again", o.Name, unit),
			}
		case <-tick.C:
		}
	}
}

// transientResult reads the result of an ended unit.
func transientResult(ctx context.Context, h *host.Host, o op.Exec, unit string, u systemctl.UnitState) ([]byte, error) {
	dir := h.StatePath(RunDir, unit)
	if u.HasSucceeded() {
		out, err := host.ReadHead(filepath.Join(dir, "stdout"), maxOutput)
		return out, err
	}
	stderr, _ := host.ReadTail(filepath.Join(dir, "stderr"), host.TailBytes)
	e := &op.Error{Reason: "CommandFailed", Detail: strings.TrimSpace(stderr)}
	name := filepath.Base(o.Argv[0])
	switch {
	case u.Active == "active":
		e.Reason, e.Message = "Interrupted", fmt.Sprintf("%s was killed by signal %s", name, u.MainStatus)
	case u.Active != "failed":
		e.Reason, e.Message = "Interrupted", fmt.Sprintf("%s was stopped before it finished", unit)
	case u.Result == "timeout":
		e.Reason, e.Message = "Timeout", fmt.Sprintf("%s did not finish within %s", name, timeoutOf(o))
	case u.Result == unitExitCode:
		e.ExitCode, _ = strconv.Atoi(u.MainStatus)
		e.Message = fmt.Sprintf("%s exited with %d", name, e.ExitCode)
	default:
		e.Message = fmt.Sprintf("%s ended with %s", name, u.Result)
	}
	host.DescribeFailure(e)
	if u.Result == unitExitCode {
		if err := markRun(h, o.Name, func(rec *ExecRecord) { rec.Ended = true }); err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(withoutSecret(o, e), ForgetUnit(ctx, h, unit))
}

// ForgetUnit removes a unit whose result was read, so that its name is free.
func ForgetUnit(ctx context.Context, h *host.Host, unit string) error {
	st, u, err := readUnitPhase(ctx, h, unit)
	if err != nil {
		return err
	}
	switch {
	case st == wholeRunning:
		return nil
	case u.Active == "failed":
		err = systemctl.RunSystemctl(ctx, h, "reset-failed", "--", unit)
	case st == wholeDone:
		err = systemctl.RunSystemctl(ctx, h, "stop", "--", unit)
	}
	if err != nil {
		return fmt.Errorf("removing the result of %s: %w", unit, err)
	}
	// Its input may be secret, and is removed first: without meta.json it would not be
	// found again.
	if err := h.Disk.RemoveAll(h.StatePath(RunDir, unit, "stdin")); err != nil {
		return err
	}
	return h.Disk.RemoveAll(h.StatePath(RunDir, unit))
}

// EndUnit stops a unit whose work will be reverted.
func EndUnit(ctx context.Context, h *host.Host, unit string) error {
	st, _, err := readUnitPhase(ctx, h, unit)
	if err != nil {
		return err
	}
	if st == wholeRunning {
		if err := systemctl.RunSystemctl(ctx, h, "stop", "--", unit); err != nil {
			return err
		}
	}
	return ForgetUnit(ctx, h, unit)
}

// follower passes on new data in a unit's output files.
type follower struct {
	s     *host.Host
	dir   string
	quiet bool
	files [2]*os.File
}

func (f *follower) copy() {
	for i, name := range []string{"stdout", "stderr"} {
		if f.files[i] == nil {
			file, err := os.Open(filepath.Join(f.dir, name))
			if err != nil {
				continue // not started yet
			}
			f.files[i] = file
		}
		if !f.quiet {
			// Reading is retried at the next check.
			_, _ = io.Copy(progressWriter{f.s}, f.files[i])
		}
	}
}

func (f *follower) close() {
	for _, file := range f.files {
		if file != nil {
			file.Close()
		}
	}
}
