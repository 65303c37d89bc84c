//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/op"
)

// exitCode is systemd's word for a program that exited with an error.
const exitCode = "exit-code"

// unitPrefix begins the names of Slipway's transient units.
const unitPrefix = "slipway-"

// runDir has, below the state directory, one directory for each transient unit whose
// result was not read yet.
const runDir = "run"

// wholeMeta describes the purpose of a transient unit.
type wholeMeta struct {
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Step      string `json:"step"`
}

func (s *session) unitName(o op.Exec) string {
	return unitPrefix + s.batch.Operation + "-" + s.batch.Step + "-" + o.Name + ".service"
}

// wholeState is the state of a transient unit.
type wholeState int

const (
	wholeNone    wholeState = iota // systemd has no such unit
	wholeRunning                   // running, or queued to run
	wholeDone                      // ended, with its result not read
)

func (s *session) whole(ctx context.Context, unit string) (wholeState, unitState, error) {
	u, err := s.unit(ctx, unit)
	switch {
	case err != nil:
		return wholeNone, u, err
	case u.active == "active" && u.sub == "exited", u.active == "failed":
		return wholeDone, u, nil
	case u.active == "active", u.active == "activating", u.active == "deactivating", u.job != "" && u.job != "0":
		return wholeRunning, u, nil
	}
	return wholeNone, u, nil
}

// succeeded reports whether a unit's program succeeded. For systemd, a program that was
// signalled to stop, for instance by an orderly shutdown, has also succeeded.
func (u unitState) succeeded() bool { return u.active == "active" && u.mainCode == mainExited }

// pendingWhole returns why an uninterruptible step must run whatever its guards return:
// an earlier run of it continues, or ended without a read result.
func (s *session) pendingWhole(ctx context.Context, o op.Exec) (string, error) {
	if s.batch.Operation != "" {
		st, _, err := s.whole(ctx, s.unitName(o))
		switch {
		case err != nil:
			return "", err
		case st == wholeRunning:
			return "attach to the running step", nil
		case st == wholeDone:
			return "read the result of the completed run", nil
		}
	}
	others, err := s.others(o)
	if err != nil {
		return "", err
	}
	for _, unit := range others {
		st, _, err := s.whole(ctx, unit)
		if err != nil {
			return "", err
		}
		if st == wholeRunning {
			return "wait for " + unit + ", then check again", nil
		}
	}
	return "", nil
}

// others returns the units that other operations or steps started for the same program.
func (s *session) others(o op.Exec) ([]string, error) {
	units, err := s.started(o)
	own := s.unitName(o)
	return slices.DeleteFunc(units, func(unit string) bool { return unit == own }), err
}

// started returns all units of a program with unread results.
func (s *session) started(o op.Exec) ([]string, error) {
	all, err := s.untaken()
	return slices.DeleteFunc(all, func(unit string) bool {
		raw, err := atomicfile.ReadFile(s.state(runDir, unit, "meta.json"), bounded.Record)
		var m wholeMeta
		// Without it, the run was interrupted before the start of the unit.
		return err != nil || json.Unmarshal(raw, &m) != nil || m.Name != o.Name
	}), err
}

// untaken returns all transient units with unread results.
func (s *session) untaken() (units []string, err error) {
	entries, err := atomicfile.ReadDir(s.state(runDir))
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

// runWhole runs a program as a transient unit, or attaches to the unit of an earlier
// manager, and waits for its end. When ctx ends, the unit continues. stdin, if set,
// writes the input of the program.
func (s *session) runWhole(ctx context.Context, o op.Exec, stdin func(io.Writer) error, rec execRecord) ([]byte, error) {
	if !wordy(s.batch.Operation) || !wordy(s.batch.Step) {
		return nil, invalid("a step in its own unit needs an operation and a step: %q, %q", s.batch.Operation, s.batch.Step)
	}
	unit := s.unitName(o)
	st, _, err := s.whole(ctx, unit)
	if err != nil {
		return nil, err
	}
	if st == wholeNone {
		if err := s.undisturbed(ctx, o); err != nil {
			return nil, err
		}
		satisfied, err := s.afterOthers(ctx, o)
		if err != nil || satisfied {
			return nil, err
		}
		if err := s.startWhole(ctx, o, stdin, unit, rec); err != nil {
			return nil, err
		}
	}
	u, err := s.follow(ctx, o, unit)
	if err != nil {
		return nil, err
	}
	return s.wholeResult(ctx, o, unit, u)
}

// undisturbed waits until none of the programs is running that other steps started before
// their manager went away, because such programs must not run concurrently. Their results
// are left to their steps.
func (s *session) undisturbed(ctx context.Context, o op.Exec) error {
	all, err := s.untaken()
	if err != nil {
		return err
	}
	same, err := s.started(o)
	if err != nil {
		return err
	}
	for _, unit := range all {
		if slices.Contains(same, unit) {
			continue
		}
		st, _, err := s.whole(ctx, unit)
		if err != nil {
			return err
		}
		if st == wholeRunning {
			s.tell(Progress{Output: []byte("waiting for " + unit + "\n")})
			if _, err := s.follow(ctx, op.Exec{Name: o.Name, SecretOutput: true}, unit); err != nil {
				return err
			}
		}
	}
	return nil
}

// afterOthers waits until no other operation runs the same program. Its work, or the work
// of a partly cleaned up run of this operation, may be the wanted result; so may the work
// of an interrupted run, if its result is known.
func (s *session) afterOthers(ctx context.Context, o op.Exec) (satisfied bool, err error) {
	others, err := s.others(o)
	if err != nil {
		return false, err
	}
	for _, unit := range others {
		st, _, err := s.whole(ctx, unit)
		if err != nil {
			return false, err
		}
		if st == wholeRunning {
			s.tell(Progress{Output: []byte("waiting for " + unit + " of another operation\n")})
			if _, err := s.follow(ctx, o, unit); err != nil {
				return false, err
			}
		}
		if err := s.takeOther(ctx, o, unit); err != nil {
			return false, err
		}
	}
	if o.Conclusive {
		why, err := s.missing(o)
		return err == nil && why == "", err
	}
	rec, _, err := s.execRecord(o.Name)
	if err != nil || !rec.Done || len(o.Creates)+len(o.Unless)+len(o.Inputs) == 0 {
		return false, err
	}
	why, err := s.guards(ctx, o)
	return err == nil && why == "", err
}

// takeOther reads the result of another operation's unit: if the unit succeeded, so did
// the program.
func (s *session) takeOther(ctx context.Context, o op.Exec, unit string) error {
	st, u, err := s.whole(ctx, unit)
	if err != nil {
		return err
	}
	succeeded := st == wholeDone && u.succeeded()
	err = s.mark(o.Name, func(rec *execRecord) {
		rec.Done = rec.Done || succeeded
		rec.Ended = rec.Ended || u.result == exitCode
	})
	if err != nil {
		return err
	}
	return s.forgetWhole(ctx, unit)
}

func (s *session) startWhole(ctx context.Context, o op.Exec, stdin func(io.Writer) error, unit string, rec execRecord) error {
	dir := s.state(runDir, unit)
	program, err := s.program(o.Argv[0])
	if err != nil {
		return &op.Error{Reason: "CommandFailed", Message: err.Error(), ExitCode: 127}
	}
	// The remains of a run before the last boot have no more information.
	if err := s.disk.RemoveAll(dir); err != nil {
		return err
	}
	if err := s.clearCut(o); err != nil {
		return err
	}
	for _, p := range o.Replaces {
		if err := s.disk.RemoveAll(s.path(p)); err != nil {
			return err
		}
	}
	made, err := s.made(o)
	if err != nil {
		return err
	}
	rec.Existing = exact.Texts(made)
	if err := s.keep(s.state("exec", o.Name+".json"), rec); err != nil {
		return err
	}
	// First of all files there: after an interruption, the remains are identified by it.
	if err := s.keep(filepath.Join(dir, "meta.json"), wholeMeta{o.Name, s.batch.Operation, s.batch.Step}); err != nil {
		return err
	}
	if stdin != nil {
		if err := s.writeStdin(dir, stdin); err != nil {
			return errors.Join(err, s.disk.RemoveAll(dir)) // the disk may be full
		}
	}
	if err := s.writeHosts(o, dir); err != nil {
		return err
	}
	if _, err := s.output(ctx, s.systemdRun(o, stdin != nil, unit, dir, program)...); err != nil {
		// Another helper, killed since, may have been faster.
		if st, _, uerr := s.whole(ctx, unit); uerr == nil && st != wholeNone {
			return nil
		}
		return fmt.Errorf("starting %s: %w", unit, err)
	}
	return nil
}

// writeStdin writes the input of a unit. It does not have to survive a crash of the host,
// because the unit does not either.
func (s *session) writeStdin(dir string, write func(io.Writer) error) error {
	f, err := os.OpenFile(filepath.Join(dir, "stdin"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// systemdRun returns the argv that starts the unit.
func (s *session) systemdRun(o op.Exec, stdin bool, unit, dir, program string) []string {
	workdir := o.Dir
	if workdir == "" {
		workdir = "/"
	}
	argv := []string{
		"systemd-run", "--no-block", "--quiet", "--no-ask-password", "--unit=" + unit,
		"--description=Slipway: " + o.Name,
		"--property=RemainAfterExit=yes",
		"--property=RuntimeMaxSec=" + strconv.Itoa(int(timeout(o).Seconds())),
		"--property=StandardOutput=file:" + filepath.Join(dir, "stdout"),
		"--property=StandardError=file:" + filepath.Join(dir, "stderr"),
		"--property=UMask=0022",
		"--property=WorkingDirectory=" + workdir,
		"--setenv=PATH=" + s.Path, "--setenv=HOME=/root", "--setenv=LANG=C.UTF-8", "--setenv=LC_ALL=C.UTF-8",
	}
	for _, e := range o.Env {
		argv = append(argv, "--setenv="+e)
	}
	if len(o.Hosts) > 0 {
		argv = append(argv, "--property=BindReadOnlyPaths="+filepath.Join(dir, hostsName)+":"+hostsFile)
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

// follow passes the output of the unit on until it has ended.
func (s *session) follow(ctx context.Context, o op.Exec, unit string) (unitState, error) {
	tail := follower{s: s, dir: s.state(runDir, unit), quiet: o.SecretOutput}
	defer tail.close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var asked time.Time
	pid := ""
	for {
		tail.copy()
		alive := pid != "" && pid != "0" && exists("/proc/"+pid)
		if !alive || time.Since(asked) >= askEvery {
			st, u, err := s.whole(ctx, unit)
			if err != nil && ctx.Err() == nil {
				return u, err
			}
			if err == nil && st != wholeRunning {
				tail.copy()
				return u, nil
			}
			pid, asked = u.mainPID, time.Now()
		}
		select {
		case <-ctx.Done():
			reason := failure(ctx.Err()).Reason
			return unitState{}, &op.Error{Reason: reason, Message: fmt.Sprintf("%s continues as %s; Slipway attaches to it again", o.Name, unit)}
		case <-tick.C:
		}
	}
}

// wholeResult reads the result of an ended unit.
func (s *session) wholeResult(ctx context.Context, o op.Exec, unit string, u unitState) ([]byte, error) {
	dir := s.state(runDir, unit)
	if u.succeeded() {
		out, err := readHead(filepath.Join(dir, "stdout"), maxOutput)
		return out, err
	}
	stderr, _ := readTail(filepath.Join(dir, "stderr"), tailBytes)
	e := &op.Error{Reason: "CommandFailed", Detail: strings.TrimSpace(stderr)}
	name := filepath.Base(o.Argv[0])
	switch {
	case u.active == "active":
		e.Reason, e.Message = "Interrupted", fmt.Sprintf("%s was killed by signal %s", name, u.mainStatus)
	case u.active != "failed":
		e.Reason, e.Message = "Interrupted", fmt.Sprintf("%s was stopped before it finished", unit)
	case u.result == "timeout":
		e.Reason, e.Message = "Timeout", fmt.Sprintf("%s did not finish within %s", name, timeout(o))
	case u.result == exitCode:
		e.ExitCode, _ = strconv.Atoi(u.mainStatus)
		e.Message = fmt.Sprintf("%s exited with %d", name, e.ExitCode)
	default:
		e.Message = fmt.Sprintf("%s ended with %s", name, u.result)
	}
	say(e)
	if u.result == exitCode {
		if err := s.mark(o.Name, func(rec *execRecord) { rec.Ended = true }); err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(withoutSecret(o, e), s.forgetWhole(ctx, unit))
}

// forgetWhole removes a unit whose result was read, so that its name is free.
func (s *session) forgetWhole(ctx context.Context, unit string) error {
	st, u, err := s.whole(ctx, unit)
	if err != nil {
		return err
	}
	switch {
	case st == wholeRunning:
		return nil
	case u.active == "failed":
		err = s.systemctl(ctx, "reset-failed", "--", unit)
	case st == wholeDone:
		err = s.systemctl(ctx, "stop", "--", unit)
	}
	if err != nil {
		return fmt.Errorf("removing the result of %s: %w", unit, err)
	}
	// Its input may be secret, and is removed first: without meta.json it would not be
	// found again.
	if err := s.disk.RemoveAll(s.state(runDir, unit, "stdin")); err != nil {
		return err
	}
	return s.disk.RemoveAll(s.state(runDir, unit))
}

// endWhole stops a unit whose work will be reverted.
func (s *session) endWhole(ctx context.Context, unit string) error {
	st, _, err := s.whole(ctx, unit)
	if err != nil {
		return err
	}
	if st == wholeRunning {
		if err := s.systemctl(ctx, "stop", "--", unit); err != nil {
			return err
		}
	}
	return s.forgetWhole(ctx, unit)
}

// follower passes on new data in a unit's output files.
type follower struct {
	s     *session
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
