//go:build linux

package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/node/op"
)

// made returns the regular files that match a program's patterns, sorted; without any, an
// empty list.
func (s *session) made(o op.Exec) ([]string, error) {
	out := []string{}
	for _, pattern := range slices.Concat(o.Creates, o.Declares) {
		matches, err := filepath.Glob(s.path(pattern))
		if err != nil {
			return nil, invalid("pattern %q: %v", pattern, err)
		}
		for _, m := range matches {
			if info, err := os.Lstat(m); err == nil && info.Mode().IsRegular() {
				out = append(out, s.onHost(m))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// onHost returns the host's path for a path on disk.
func (s *session) onHost(p string) string {
	return strings.TrimPrefix(p, strings.TrimSuffix(filepath.Clean(s.Root), "/"))
}

// empty reports whether a path on disk is an empty file.
func empty(p string) bool {
	info, err := os.Lstat(p)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// clearCut removes the files of an interrupted run, such as a key without its
// certificate, which the program could not continue from. A run that ended leaves its
// files, and files from before the run are kept, except empty files of Slipway. Nothing
// depends on an incomplete run: later steps wait for its success.
func (s *session) clearCut(o op.Exec) error {
	rec, known, err := s.execRecord(o.Name)
	if err != nil {
		return err
	}
	files, err := s.made(o)
	if err != nil {
		return err
	}
	var whole []string // which is never incomplete
	if o.Conclusive {
		if whole, err = s.made(op.Exec{Creates: o.Creates}); err != nil {
			return err
		}
	}
	cut := known && !rec.Done && !rec.Ended && rec.Existing != nil && !o.Resumes
	for _, f := range files {
		half := cut && !slices.Contains(rec.Existing, exact.Text(f)) && !slices.Contains(whole, f)
		if !half && !empty(s.path(f)) || !s.ledger.WasAbsent(f) {
			continue
		}
		if err := s.disk.Remove(s.path(f)); err != nil {
			return fmt.Errorf("removing the remains of an interrupted run of %s: %w", o.Name, err)
		}
	}
	return nil
}

// mark changes the record of the last run of a program.
func (s *session) mark(name string, change func(*execRecord)) error {
	rec, known, err := s.execRecord(name)
	if err != nil || !known {
		return err
	}
	change(&rec)
	return s.keep(s.state("exec", name+".json"), rec)
}
