package view

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/iec"
	"slipway.dev/slipway/internal/lifecycle"
)

// copied writes what came of copying what hosts have taken by themselves.
func copied(w io.Writer, hosts []lifecycle.ScheduledHost, now time.Time) error {
	var rows [][]string
	for _, h := range hosts {
		if h.AutoSnapshotOutcome == nil {
			continue
		}
		for _, c := range h.Copies {
			age, is := "-", "ok"
			if !c.Copied.IsZero() {
				age = Age(max(now.Sub(c.Copied), 0))
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
	return Table(w, []string{"HOST", "COPIED TO", "AGE", "KEPT", "LATEST"}, rows)
}

// drilled writes what came of trying what hosts have taken by themselves.
func drilled(w io.Writer, hosts []lifecycle.ScheduledHost, now time.Time) error {
	var rows [][]string
	for _, h := range hosts {
		if h.AutoSnapshotOutcome == nil || h.Drill == nil || h.Drill.At.IsZero() {
			continue
		}
		d, is := h.Drill, "ok"
		if d.Failed != "" {
			is = "FAILED"
		}
		rows = append(rows, []string{h.Host, path.Base(d.Path), Age(max(now.Sub(d.At), 0)), strconv.FormatInt(d.Revision, 10), strconv.Itoa(d.Keys), cmp.Or(d.Secret, "-"), fmt.Sprintf("%.1f s", d.Seconds), is})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return Table(w, []string{"HOST", "TRIED", "AGE", "REVISION", "KEYS", "A SECRET", "TOOK", "LATEST"}, rows)
}

// Copies writes what lies where copies are kept.
func Copies(w io.Writer, r *lifecycle.CopyReport, now time.Time, style Style) error {
	var warnings diag.List
	var rows [][]string
	for _, t := range r.Targets {
		if t.Problem != nil {
			warnings = append(warnings, *t.Problem)
		}
		for _, c := range t.Copies {
			rows = append(rows, []string{t.Name, c.Host, Age(max(now.Sub(c.Taken), 0)), strconv.FormatInt(c.Revision, 10), iec.Bytes(c.Bytes), yes(c.Verified), c.File})
		}
	}
	places := "1 place"
	if n := len(r.Targets); n != 1 {
		places = strconv.Itoa(n) + " places"
	}
	fmt.Fprintf(w, "Copies of the snapshots of %s: %d, at %s\n", r.Name, len(rows), places)
	if len(warnings) > 0 {
		fmt.Fprintln(w)
		Diagnostics(w, warnings, style)
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := Table(w, []string{"PLACE", "HOST", "AGE", "REVISION", "SIZE", "VERIFIED", "FILE"}, rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nNext: %s\n", r.Next)
	return err
}
