//go:build linux

package executor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
)

// runcProgram is the program that runs containers.
const runcProgram = "/usr/local/bin/runc"

// Runc executes runc with args as a container runtime calls it, on a host on which no
// process may have a lower OOM score than its own: otherwise runc fails, and with it
// every pod. containerd has a setting for that, and Docker has none. It returns only if
// it fails.
func Runc(args []string) error {
	own, err := bounded.ReadFile("/proc/self/oom_score_adj", bounded.Proc)
	if err != nil {
		return fmt.Errorf("reading our own score: %w", err)
	}
	least, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return fmt.Errorf("reading our own score: %w", err)
	}
	if err := raiseScores(args, least); err != nil {
		return err
	}
	if err := unix.Exec(runcProgram, append([]string{runcProgram}, args...), os.Environ()); err != nil {
		return fmt.Errorf("running %s: %w", runcProgram, err)
	}
	return nil
}

// raiseScores raises OOM scores below the minimum in the input of runc: the settings of a
// container in a bundle, or of an additional process in one.
func raiseScores(args []string, least int) error {
	for _, f := range []struct {
		long, short string
		raise       func(file string) error
	}{
		{"--bundle", "-b", func(dir string) error {
			return editJSON(filepath.Join(dir, "config.json"), func(o rawObject) error {
				return o.changeNested("process", func(p rawObject) error { return p.raiseScore(least) })
			})
		}},
		{"--process", "-p", func(file string) error {
			return editJSON(file, func(p rawObject) error { return p.raiseScore(least) })
		}},
	} {
		if file := flagValue(args, f.long, f.short); file != "" {
			if err := f.raise(file); err != nil {
				return fmt.Errorf("raising the OOM score of a container: %w", err)
			}
		}
	}
	return nil
}

// flagValue returns the value of a flag, "" without it.
func flagValue(args []string, names ...string) string {
	for i, a := range args {
		for _, name := range names {
			if v, ok := strings.CutPrefix(a, name+"="); ok {
				return v
			}
			if a == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

// A rawObject is a JSON object of which only a part is used: all other text is kept
// unchanged.
type rawObject map[string]json.RawMessage

// raiseScore gives a process at least this score.
func (o rawObject) raiseScore(least int) error {
	const field = "oomScoreAdj"
	var is int
	if o[field] == nil {
		return nil
	}
	if err := json.Unmarshal(o[field], &is); err != nil {
		return err
	}
	if is < least {
		o[field] = json.RawMessage(strconv.Itoa(least))
	}
	return nil
}

// changeNested changes an object in this one, if it exists.
func (o rawObject) changeNested(field string, change func(rawObject) error) error {
	var in rawObject
	if o[field] == nil {
		return nil
	}
	if err := json.Unmarshal(o[field], &in); err != nil || in == nil {
		return err
	}
	if err := change(in); err != nil {
		return err
	}
	raw, err := json.Marshal(in)
	o[field] = raw
	return err
}

// editJSON changes an object in a file.
func editJSON(file string, change func(rawObject) error) error {
	raw, err := bounded.ReadFile(file, bounded.Proc)
	if err != nil {
		return err
	}
	var o rawObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := change(o); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if raw, err = json.Marshal(o); err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600) // a file with another mode keeps it
}
