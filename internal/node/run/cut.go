//go:build linux

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/node/op"
)

// made answers the regular files that a program's patterns match, sorted; none
// is an empty list.
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

// onHost is the path of the host that is on disk there.
func (s *session) onHost(p string) string {
	return strings.TrimPrefix(p, strings.TrimSuffix(filepath.Clean(s.Root), "/"))
}

// empty says that a path on disk is a file without content.
func empty(p string) bool {
	info, err := os.Lstat(p)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// clearCut removes what a run that was cut in half has made: a key without
// its certificate, say, on which its program could not build. A run that came
// to its own end leaves what it wanted to leave, and what was there before it
// began stays, but for empty files of ours. Nothing stands on half a run: what
// comes after it waits for its success.
func (s *session) clearCut(o op.Exec) error {
	rec, known, err := s.execRecord(o.Name)
	if err != nil {
		return err
	}
	files, err := s.made(o)
	if err != nil {
		return err
	}
	var whole []string // what is never half
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
			return fmt.Errorf("removing what a run of %s that was cut has left: %w", o.Name, err)
		}
	}
	return nil
}

// mark changes what is known of the last run of a program.
func (s *session) mark(name string, change func(*execRecord)) error {
	rec, known, err := s.execRecord(name)
	if err != nil || !known {
		return err
	}
	change(&rec)
	return s.keep(s.state("exec", name+".json"), rec)
}
