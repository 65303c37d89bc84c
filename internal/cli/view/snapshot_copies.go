package view

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// writeCopyTable writes a table of the copies of the hosts' scheduled snapshots.
func writeCopyTable(w io.Writer, hosts []inspect.ScheduledHost, now time.Time) error {
	var rows [][]string
	for _, h := range hosts {
		if h.AutoSnapshotOutcome == nil {
			continue
		}
		for _, c := range h.Copies {
			age, is := "-", "ok"
			if !c.Copied.IsZero() {
				age = FormatAge(max(now.Sub(c.Copied), 0))
			}
			if c.Failed != "" {
				is = "FAILED"
			}
			rows = append(rows, []string{h.Host, c.Target, age, strconv.Itoa(c.Kept), is})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return WriteTable(w, []string{"HOST", "TARGET", "AGE", "COPIES", "RESULT"}, rows)
}

// writeDrillTable writes a table of the restore tests of the hosts' scheduled snapshots.
func writeDrillTable(w io.Writer, hosts []inspect.ScheduledHost, now time.Time) error {
	var rows [][]string
	for _, h := range hosts {
		if h.AutoSnapshotOutcome == nil || h.Drill == nil || h.Drill.At.IsZero() {
			continue
		}
		d, is := h.Drill, "ok"
		if d.Failed != "" {
			is = "FAILED"
		}
		rows = append(rows, []string{
			h.Host, path.Base(d.Path), FormatAge(max(now.Sub(d.At), 0)), strconv.FormatInt(d.Revision, 10), strconv.Itoa(d.Keys),
			cmp.Or(d.Secret, "-"), fmt.Sprintf("%.1f s", d.Seconds), is,
		})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return WriteTable(w, []string{"HOST", "TESTED", "AGE", "REVISION", "KEYS", "SECRET", "TOOK", "RESULT"}, rows)
}

// WriteCopies writes the list of snapshot copies at each target.
func WriteCopies(w io.Writer, r *inspect.CopyReport, now time.Time, style Style) error {
	var warnings diag.List
	var rows [][]string
	for _, t := range r.Targets {
		if t.Problem != nil {
			warnings = append(warnings, *t.Problem)
		}
		for _, c := range t.Copies {
			rows = append(rows, []string{
				t.Name, c.Host, FormatAge(max(now.Sub(c.Taken), 0)), strconv.FormatInt(c.Revision, 10),
				bytesize.Format(c.Bytes), formatOK(c.Verified), c.File,
			})
		}
	}
	targets := "1 target"
	if n := len(r.Targets); n != 1 {
		targets = strconv.Itoa(n) + " targets"
	}
	fmt.Fprintf(w, "Snapshot copies of %s: %d, at %s\n", r.Name, len(rows), targets)
	if len(warnings) > 0 {
		fmt.Fprintln(w)
		WriteDiagnostics(w, warnings, style)
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := WriteTable(w, []string{"TARGET", "HOST", "AGE", "REVISION", "SIZE", "VERIFIED", "FILE"}, rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nNext: %s\n", r.Next)
	return err
}
