//go:build linux

package program

import (
	"fmt"
	"slices"

	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/op"
)

// clearInterruptedRun removes the files of an interrupted run, such as a key without its
// certificate, which the program could not continue from. A run that ended leaves its
// files, and files from before the run are kept, except empty files of Slipway. Nothing
// depends on an incomplete run: later steps wait for its success.
func clearInterruptedRun(h *host.Host, o op.Exec) error {
	rec, known, err := ReadExecRecord(h, o.Name)
	if err != nil {
		return err
	}
	files, err := hostfs.MatchingFiles(h, o)
	if err != nil {
		return err
	}
	var whole []string // which is never incomplete
	if o.Conclusive {
		if whole, err = hostfs.MatchingFiles(h, op.Exec{Creates: o.Creates}); err != nil {
			return err
		}
	}
	cut := known && !rec.Done && !rec.Ended && rec.Existing != nil && !o.Resumes
	for _, f := range files {
		half := cut && !slices.Contains(rec.Existing, exact.Text(f)) && !slices.Contains(whole, f)
		if !half && !host.IsEmptyFile(h.DiskPath(f)) || !h.Ledger.WasAbsent(f) {
			continue
		}
		if err := h.Disk.RemovePath(h.DiskPath(f)); err != nil {
			return fmt.Errorf("removing the remains of an interrupted run of %s: %w", o.Name, err)
		}
	}
	return nil
}

// markRun changes the record of the last run of a program.
func markRun(h *host.Host, name string, change func(*ExecRecord)) error {
	rec, known, err := ReadExecRecord(h, name)
	if err != nil || !known {
		return err
	}
	change(&rec)
	return h.WriteRecord(h.StatePath("exec", name+".json"), rec)
}
