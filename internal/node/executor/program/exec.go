//go:build linux

package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/op"
)

// ExecOp executes op.Exec.
type ExecOp struct{ Op op.Exec }

func (x *ExecOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	v, err := CheckExec(ctx, h, x.Op)
	if v.Change != "" {
		v.Wrote = map[string]string{}
		for _, p := range x.Op.Creates {
			v.Wrote[p] = "" // the result of the program is not known
		}
	}
	return v, err
}

func (x *ExecOp) Paths() []string {
	return slices.Concat(x.Op.Creates, x.Op.Declares, x.Op.Inputs, x.Op.Replaces, x.Op.Keeps)
}

func (x *ExecOp) LedgerEntries() ([]host.Subject, bool) {
	// Changes without these lists are not in the ledger.
	return nil, len(x.Op.Creates)+len(x.Op.Declares)+len(x.Op.Keeps) == 0
}

const (
	// guardTimeout limits a read-only program.
	guardTimeout = time.Minute
	// maxOutput limits the returned stdout of a program, in bytes.
	maxOutput = 1 << 20
)

// ExecRecord is the record of a program's last run, by name.
type ExecRecord struct {
	// Done is false from before the run until it has succeeded: the results of an
	// interrupted or failed run do not count.
	Done   bool              `json:"done"`
	Inputs map[string]string `json:"inputs,omitempty"` // path → state
	// Existing lists its files that existed before an uninterruptible run; nil means
	// unknown.
	Existing []exact.Text `json:"existing"`
	// Ended reports whether an unsuccessful run ended normally: its results are as the
	// program left them.
	Ended bool `json:"ended,omitempty"`
}

// ReadExecRecord reads the record of a program's last run.
func ReadExecRecord(h *host.Host, name string) (rec ExecRecord, known bool, err error) {
	raw, err := atomicfile.ReadFile(h.StatePath("exec", name+".json"), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return rec, false, fmt.Errorf("reading the last run of %s: %w", name, err)
	}
	return rec, true, nil
}

// inputStates returns the states of the files that a program depends on.
func inputStates(h *host.Host, o op.Exec) (map[string]string, error) {
	in := map[string]string{}
	for _, p := range o.Inputs {
		state, err := h.StateOf(p)
		if err != nil {
			return nil, err
		}
		in[p] = state
	}
	return in, nil
}

// CheckExecName rejects a program without a valid name or arguments.
func CheckExecName(o op.Exec) error {
	if !host.IsFileName(o.Name) {
		return host.Invalid("%q is not a valid step name: only letters, digits, '.', '_' and '-' are allowed", o.Name)
	}
	if len(o.Argv) == 0 || o.Argv[0] == "" {
		return host.Invalid("%s has no program to run", o.Name)
	}
	if len(o.Hosts)+len(o.Replaces) > 0 && !o.Whole {
		return host.Invalid("%s uses separate host names or replaces files, but is not a unit", o.Name)
	}
	return nil
}

// CheckExec checks the guards. It returns the reason for a run as precisely as possible.
func CheckExec(ctx context.Context, h *host.Host, o op.Exec) (host.CheckResult, error) {
	if err := CheckExecName(o); err != nil {
		return host.CheckResult{}, err
	}
	v := host.CheckResult{Secret: o.SecretOutput}
	if o.Whole {
		why, err := pendingTransientUnit(ctx, h, o)
		if err != nil || why != "" {
			v.Change = why
			return v, err
		}
	}
	if len(o.Creates) == 0 && len(o.Unless) == 0 && len(o.Inputs) == 0 {
		v.Change = "cannot be checked: always runs"
		return v, nil
	}
	var err error
	if v.Change, err = checkGuards(ctx, h, o); err == nil && v.Change != "" && o.UnlessServes != nil &&
		health.IsServing(ctx, h, *o.UnlessServes) {
		v.Change = ""
	}
	if err != nil || v.Change != "" || !o.Whole {
		return v, err
	}
	left, err := StartedUnits(h, o)
	if len(left) > 0 {
		v.Change = "remove the leftover " + left[0] // a helper was killed before it removed it
	}
	return v, err
}

func checkGuards(ctx context.Context, h *host.Host, o op.Exec) (string, error) {
	rec, known, err := ReadExecRecord(h, o.Name)
	if err != nil {
		return "", err
	}
	if known && !rec.Done && !o.Conclusive {
		return "run: the last run failed", nil
	}
	if why, err := missingResult(h, o); err != nil || why != "" {
		return why, err
	}
	if known && !rec.Done {
		return "record the command as done", nil
	}
	if o.Again != "" {
		return "run: " + o.Again, nil
	}
	if !known && len(o.Creates) == 0 && len(o.Unless) == 0 {
		return "run: it has not run yet", nil
	}
	in, err := inputStates(h, o)
	if err != nil {
		return "", err
	}
	for _, p := range o.Inputs {
		if in[p] == "" || known && in[p] != rec.Inputs[p] {
			return "run: " + p + " changed", nil
		}
	}
	if len(o.Unless) == 0 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	err = h.Run(ctx, host.Command{Argv: o.Unless, Env: o.Env, Dir: o.Dir, Stdout: io.Discard})
	var e *op.Error
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &e) && e.Reason == "CommandFailed":
		return "run: " + filepath.Base(o.Unless[0]) + " requires it", nil
	}
	return "", err
}

// missingResult returns why the results of a program are incomplete.
func missingResult(h *host.Host, o op.Exec) (string, error) {
	for _, pattern := range o.Creates {
		if k, err := hostfs.ReadBaseline(h, pattern); k != nil || err != nil {
			if err != nil {
				return "", err
			}
			continue // it is restored
		}
		matches, err := filepath.Glob(h.DiskPath(pattern))
		if err != nil {
			return "", host.Invalid("pattern %q: %v", pattern, err)
		}
		if len(matches) == 0 {
			return "run: " + pattern + " is missing", nil
		}
		if slices.ContainsFunc(matches, host.IsEmptyFile) {
			return "run: " + pattern + " is empty", nil
		}
	}
	return "", nil
}

func (x *ExecOp) Apply(ctx context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	var stdin func(io.Writer) error
	if o.Stdin != nil {
		stdin = func(w io.Writer) error {
			_, err := w.Write(o.Stdin)
			return err
		}
	}
	return Execute(ctx, h, o, stdin, res)
}

// Execute runs a program, with the files for a unit not written yet. stdin, if not nil,
// writes its standard input.
func Execute(ctx context.Context, h *host.Host, o op.Exec, stdin func(io.Writer) error, res *op.Result) error {
	for _, pattern := range slices.Concat(o.Creates, o.Declares) {
		if err := h.Ledger.SaveGlob(pattern, false); err != nil {
			return err
		}
	}
	if err := hostfs.ForgetBaselines(h, o); err != nil {
		return err
	}
	in, err := inputStates(h, o)
	if err != nil {
		return err
	}
	if o.Then == nil || health.IsServing(ctx, h, *o.Then) { // nothing depends on a program that does not serve, so it can be repaired
		if err := health.AwaitGate(ctx, h, o.Gate); err != nil {
			return err
		}
	}
	record := h.StatePath("exec", o.Name+".json")
	var out []byte
	if o.Whole {
		out, err = runTransientUnit(ctx, h, o, stdin, ExecRecord{Inputs: in})
	} else {
		if err = h.WriteRecord(record, ExecRecord{Inputs: in}); err == nil {
			out, err = runChild(ctx, h, o)
		}
	}
	if err != nil {
		return err
	}
	if o.KeepOutput {
		res.Output, res.Secret = out, o.SecretOutput
	}
	for _, pattern := range slices.Concat(o.Creates, o.Declares) {
		if err := syncResults(h, pattern); err != nil {
			return err
		}
		if err := h.Ledger.WroteGlob(pattern); err != nil {
			return err
		}
	}
	if err := hostfs.RememberBaselines(h, o); err != nil {
		return err
	}
	if o.Whole {
		// The state at the start of the unit counts; it may have started before this run.
		if rec, known, err := ReadExecRecord(h, o.Name); err == nil && known {
			in = rec.Inputs
		}
	}
	if err := h.WriteRecord(record, ExecRecord{Done: o.Then == nil || o.ThenLater, Inputs: in}); err != nil {
		return err
	}
	if o.Whole {
		if err := ForgetUnit(ctx, h, transientUnitName(h, o)); err != nil {
			return err
		}
	}
	return awaitSuccess(ctx, h, o, record, in)
}

// awaitSuccess waits for the conditions after a program, if any: then the run has
// succeeded.
func awaitSuccess(ctx context.Context, h *host.Host, o op.Exec, record string, in map[string]string) error {
	if o.Then == nil || o.ThenLater {
		return nil
	}
	if err := health.AwaitGate(ctx, h, o.Then); err != nil {
		return err
	}
	return h.WriteRecord(record, ExecRecord{Done: true, Inputs: in})
}

// syncResults syncs the program's files to disk: the record that they exist must not
// outlast them.
func syncResults(h *host.Host, pattern string) error {
	matches, err := filepath.Glob(h.DiskPath(pattern))
	for _, m := range matches {
		err = errors.Join(err, atomicfile.SyncTree(m), fsync.SyncDir(filepath.Dir(m)))
	}
	return err
}

// timeoutOf returns how long a program can run.
func timeoutOf(o op.Exec) time.Duration {
	if o.TimeoutSeconds > 0 {
		return time.Duration(o.TimeoutSeconds) * time.Second
	}
	return health.DefaultTimeout
}

// runChild runs a program as a child: it ends with this process.
func runChild(ctx context.Context, h *host.Host, o op.Exec) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(o))
	defer cancel()
	kept := &host.HeadWriter{Limit: maxOutput}
	c := host.Command{Argv: o.Argv, Env: o.Env, Dir: o.Dir, Stdout: kept}
	if o.Stdin != nil {
		c.Stdin = bytes.NewReader(o.Stdin)
	}
	if !o.SecretOutput {
		live := progressWriter{h}
		c.Stdout, c.Stderr = io.MultiWriter(kept, live), live
	}
	err := h.Run(ctx, c)
	return kept.Buf, withoutSecret(o, err)
}

// withoutSecret removes the program's output from an error.
func withoutSecret(o op.Exec, err error) error {
	var e *op.Error
	if !o.SecretOutput || !errors.As(err, &e) || e.Detail == "" {
		return err
	}
	quiet := *e
	quiet.Detail = ""
	quiet.Message = fmt.Sprintf("%s failed (%d); its output is not shown, because it can contain secrets", o.Name, e.ExitCode)
	return &quiet
}

// progressWriter reports output as it arrives.
type progressWriter struct{ s *host.Host }

func (p progressWriter) Write(b []byte) (int, error) {
	p.s.Report(host.Progress{Output: bytes.Clone(b)})
	return len(b), nil
}
