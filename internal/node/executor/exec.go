//go:build linux

package executor

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
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/fsync"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// execOp executes op.Exec.
type execOp struct{ o op.Exec }

func (x *execOp) Check(ctx context.Context, s *session) (verdict, error) {
	v, err := s.checkExec(ctx, x.o)
	if v.change != "" {
		v.wrote = map[string]string{}
		for _, p := range x.o.Creates {
			v.wrote[p] = "" // the result of the program is not known
		}
	}
	return v, err
}

func (x *execOp) Paths() []string {
	return slices.Concat(x.o.Creates, x.o.Declares, x.o.Inputs, x.o.Replaces, x.o.Keeps)
}

func (x *execOp) LedgerEntries() ([]subject, bool) {
	// Changes without these lists are not in the ledger.
	return nil, len(x.o.Creates)+len(x.o.Declares)+len(x.o.Keeps) == 0
}

const (
	// defaultTimeout limits a program without its own timeout.
	defaultTimeout = 10 * time.Minute
	// guardTimeout limits a read-only program.
	guardTimeout = time.Minute
	// maxOutput limits the returned stdout of a program, in bytes.
	maxOutput = 1 << 20
)

// execRecord is the record of a program's last run, by name.
type execRecord struct {
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

func (s *session) execRecord(name string) (rec execRecord, known bool, err error) {
	raw, err := atomicfile.ReadFile(s.state("exec", name+".json"), bounded.Record)
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

// inputs returns the states of the files that a program depends on.
func (s *session) inputs(o op.Exec) (map[string]string, error) {
	in := map[string]string{}
	for _, p := range o.Inputs {
		state, err := s.stateOf(p)
		if err != nil {
			return nil, err
		}
		in[p] = state
	}
	return in, nil
}

func checkExecName(o op.Exec) error {
	if !wordy(o.Name) {
		return invalid("%q is not a valid step name: only letters, digits, '.', '_' and '-' are allowed", o.Name)
	}
	if len(o.Argv) == 0 || o.Argv[0] == "" {
		return invalid("%s has no program to run", o.Name)
	}
	if len(o.Hosts)+len(o.Replaces) > 0 && !o.Whole {
		return invalid("%s uses separate host names or replaces files, but is not a unit", o.Name)
	}
	return nil
}

// wordy reports whether a name can be part of a file name and a unit name.
func wordy(name string) bool {
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".-_", c)) {
			return false
		}
	}
	return name != "" && name[0] != '.' && name[0] != '-' && len(name) <= 100
}

// checkExec checks the guards. It returns the reason for a run as precisely as possible.
func (s *session) checkExec(ctx context.Context, o op.Exec) (verdict, error) {
	if err := checkExecName(o); err != nil {
		return verdict{}, err
	}
	v := verdict{secret: o.SecretOutput}
	if o.Whole {
		why, err := s.pendingWhole(ctx, o)
		if err != nil || why != "" {
			v.change = why
			return v, err
		}
	}
	if len(o.Creates) == 0 && len(o.Unless) == 0 && len(o.Inputs) == 0 {
		v.change = "cannot be checked: always runs"
		return v, nil
	}
	var err error
	if v.change, err = s.guards(ctx, o); err == nil && v.change != "" && o.UnlessServes != nil && s.serves(ctx, *o.UnlessServes) {
		v.change = ""
	}
	if err != nil || v.change != "" || !o.Whole {
		return v, err
	}
	left, err := s.started(o)
	if len(left) > 0 {
		v.change = "remove the leftover " + left[0] // a helper was killed before it removed it
	}
	return v, err
}

func (s *session) guards(ctx context.Context, o op.Exec) (string, error) {
	rec, known, err := s.execRecord(o.Name)
	if err != nil {
		return "", err
	}
	if known && !rec.Done && !o.Conclusive {
		return "run: the last run failed", nil
	}
	if why, err := s.missing(o); err != nil || why != "" {
		return why, err
	}
	if known && !rec.Done {
		return "record that it is done", nil
	}
	if o.Again != "" {
		return "run: " + o.Again, nil
	}
	if !known && len(o.Creates) == 0 && len(o.Unless) == 0 {
		return "run: it has not run yet", nil
	}
	in, err := s.inputs(o)
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
	err = s.run(ctx, command{argv: o.Unless, env: o.Env, dir: o.Dir, stdout: io.Discard})
	var e *op.Error
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &e) && e.Reason == "CommandFailed":
		return "run: " + filepath.Base(o.Unless[0]) + " requires it", nil
	}
	return "", err
}

// missing returns why the results of a program are incomplete.
func (s *session) missing(o op.Exec) (string, error) {
	for _, pattern := range o.Creates {
		if k, err := s.kept(pattern); k != nil || err != nil {
			if err != nil {
				return "", err
			}
			continue // it is restored
		}
		matches, err := filepath.Glob(s.path(pattern))
		if err != nil {
			return "", invalid("pattern %q: %v", pattern, err)
		}
		if len(matches) == 0 {
			return "run: " + pattern + " is missing", nil
		}
		if slices.ContainsFunc(matches, empty) {
			return "run: " + pattern + " is empty", nil
		}
	}
	return "", nil
}

func (x *execOp) Apply(ctx context.Context, s *session, res *op.Result) error {
	o := x.o
	var stdin func(io.Writer) error
	if o.Stdin != nil {
		stdin = func(w io.Writer) error {
			_, err := w.Write(o.Stdin)
			return err
		}
	}
	return s.execute(ctx, o, stdin, res)
}

// execute implements applyExec, with the files for a unit not written yet.
func (s *session) execute(ctx context.Context, o op.Exec, stdin func(io.Writer) error, res *op.Result) error {
	for _, pattern := range slices.Concat(o.Creates, o.Declares) {
		if err := s.ledger.SaveGlob(pattern, false); err != nil {
			return err
		}
	}
	if err := s.forgetMade(o); err != nil {
		return err
	}
	in, err := s.inputs(o)
	if err != nil {
		return err
	}
	if o.Then == nil || s.serves(ctx, *o.Then) { // nothing depends on a program that does not serve, so it can be repaired
		if err := s.pass(ctx, o.Gate); err != nil {
			return err
		}
	}
	record := s.state("exec", o.Name+".json")
	var out []byte
	if o.Whole {
		out, err = s.runWhole(ctx, o, stdin, execRecord{Inputs: in})
	} else {
		if err = s.keep(record, execRecord{Inputs: in}); err == nil {
			out, err = s.runHere(ctx, o)
		}
	}
	if err != nil {
		return err
	}
	if o.KeepOutput {
		res.Output, res.Secret = out, o.SecretOutput
	}
	for _, pattern := range slices.Concat(o.Creates, o.Declares) {
		if err := s.flush(pattern); err != nil {
			return err
		}
		if err := s.ledger.WroteGlob(pattern); err != nil {
			return err
		}
	}
	if err := s.remember(o); err != nil {
		return err
	}
	if o.Whole {
		// The state at the start of the unit counts; it may have started before this run.
		if rec, known, err := s.execRecord(o.Name); err == nil && known {
			in = rec.Inputs
		}
	}
	if err := s.keep(record, execRecord{Done: o.Then == nil, Inputs: in}); err != nil {
		return err
	}
	if o.Whole {
		if err := s.forgetWhole(ctx, s.unitName(o)); err != nil {
			return err
		}
	}
	return s.succeed(ctx, o, record, in)
}

// succeed waits for the conditions after a program, if any: then the run has succeeded.
func (s *session) succeed(ctx context.Context, o op.Exec, record string, in map[string]string) error {
	if o.Then == nil {
		return nil
	}
	if err := s.pass(ctx, o.Then); err != nil {
		return err
	}
	return s.keep(record, execRecord{Done: true, Inputs: in})
}

// flush syncs the program's files to disk: the record that they exist must not outlast
// them.
func (s *session) flush(pattern string) error {
	matches, err := filepath.Glob(s.path(pattern))
	for _, m := range matches {
		err = errors.Join(err, atomicfile.SyncTree(m), fsync.Dir(filepath.Dir(m)))
	}
	return err
}

// timeout returns how long a program can run.
func timeout(o op.Exec) time.Duration {
	if o.TimeoutSeconds > 0 {
		return time.Duration(o.TimeoutSeconds) * time.Second
	}
	return defaultTimeout
}

// runHere runs a program as a child: it ends with this process.
func (s *session) runHere(ctx context.Context, o op.Exec) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout(o))
	defer cancel()
	kept := &headWriter{limit: maxOutput}
	c := command{argv: o.Argv, env: o.Env, dir: o.Dir, stdout: kept}
	if o.Stdin != nil {
		c.stdin = bytes.NewReader(o.Stdin)
	}
	if !o.SecretOutput {
		live := progressWriter{s}
		c.stdout, c.stderr = io.MultiWriter(kept, live), live
	}
	err := s.run(ctx, c)
	return kept.buf, withoutSecret(o, err)
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
type progressWriter struct{ s *session }

func (p progressWriter) Write(b []byte) (int, error) {
	p.s.tell(Progress{Output: bytes.Clone(b)})
	return len(b), nil
}

// headWriter keeps the first bytes written to it.
type headWriter struct {
	limit int
	buf   []byte
}

func (h *headWriter) Write(p []byte) (int, error) {
	if room := h.limit - len(h.buf); room > 0 {
		h.buf = append(h.buf, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// serves reports whether the condition after a change is already true, whatever the
// program was started with. A program that does not respond at once may be electing a
// leader.
func (s *session) serves(ctx context.Context, w op.Wait) bool {
	w.Manifest, w.Crashes, w.SteadySeconds = "", 0, 0
	for deadline := time.Now().Add(s.etcdTime); checkOne(w) == nil; {
		if err := s.probe(ctx, w); err == nil || onlyFull(err) {
			return true
		}
		if !again(ctx, deadline) {
			break
		}
	}
	return false
}
