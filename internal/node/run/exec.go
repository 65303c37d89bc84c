//go:build linux

package run

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
	"slipway.dev/slipway/internal/node/durable"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// defaultTimeout bounds a program that names no time of its own.
	defaultTimeout = 10 * time.Minute
	// guardTimeout bounds a program that only looks.
	guardTimeout = time.Minute
	// maxOutput is how much of a program's stdout is answered, in bytes.
	maxOutput = 1 << 20
)

// execRecord is what is known of the last run of a program, by name.
type execRecord struct {
	// Done is false from before the run until it has succeeded: what a
	// run that was cut or failed has left is not taken for its work.
	Done   bool              `json:"done"`
	Inputs map[string]string `json:"inputs,omitempty"` // path → state
	// Existing are the files it makes that were there when an
	// uninterruptible run began; nil is not known.
	Existing []exact.Text `json:"existing"`
	// Ended says that a run which did not succeed came to its own end: what
	// is there is as its program wanted to leave it.
	Ended bool `json:"ended,omitempty"`
}

func (s *session) execRecord(name string) (rec execRecord, known bool, err error) {
	raw, err := durable.ReadFile(s.state("exec", name+".json"), bounded.Record)
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

// inputs are the states of the files a program depends on.
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

// wordy says that a name can be part of a file's and a unit's.
func wordy(name string) bool {
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".-_", c)) {
			return false
		}
	}
	return name != "" && name[0] != '.' && name[0] != '-' && len(name) <= 100
}

// checkExec looks at the guards. Why the program would run is answered as
// precisely as it can be known.
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
		v.change = "remove the leftover " + left[0] // a helper was killed before it did
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

// missing answers why a program's work is not there.
func (s *session) missing(o op.Exec) (string, error) {
	for _, pattern := range o.Creates {
		if k, err := s.kept(pattern); k != nil || err != nil {
			if err != nil {
				return "", err
			}
			continue // it is put back
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

func (s *session) applyExec(ctx context.Context, o op.Exec, res *op.Result) error {
	var stdin func(io.Writer) error
	if o.Stdin != nil {
		stdin = func(w io.Writer) error {
			_, err := w.Write(o.Stdin)
			return err
		}
	}
	return s.execute(ctx, o, stdin, res)
}

// execute is applyExec with what a unit reads yet to be written.
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
	if o.Then == nil || s.serves(ctx, *o.Then) { // what does not serve is missed by nobody while it is mended
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
		// What the unit was started with is what counts; it may have
		// been before us.
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

// succeed waits for what is to follow a program that has run, if anything: then the
// run has succeeded.
func (s *session) succeed(ctx context.Context, o op.Exec, record string, in map[string]string) error {
	if o.Then == nil {
		return nil
	}
	if err := s.pass(ctx, o.Then); err != nil {
		return err
	}
	return s.keep(record, execRecord{Done: true, Inputs: in})
}

// flush makes durable what a program has written and left to the kernel: our
// record that it is there must not outlast it.
func (s *session) flush(pattern string) error {
	matches, err := filepath.Glob(s.path(pattern))
	for _, m := range matches {
		err = errors.Join(err, durable.SyncTree(m), fsync.Dir(filepath.Dir(m)))
	}
	return err
}

// timeout is how long a program may run.
func timeout(o op.Exec) time.Duration {
	if o.TimeoutSeconds > 0 {
		return time.Duration(o.TimeoutSeconds) * time.Second
	}
	return defaultTimeout
}

// runHere runs a program as our child: it ends when we do.
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

// withoutSecret takes what the program said out of an error.
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

// progressWriter tells output as it comes.
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

// serves says that what is waited for after a change runs already, whatever it was
// started with. One that does not answer at once may be looking for a leader.
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
