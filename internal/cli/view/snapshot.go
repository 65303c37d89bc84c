package view

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// timestampFormat is the format of times.
const timestampFormat = "2006-01-02 15:04:05 MST"

// WriteSnapshot describes a backup set that was just written.
func WriteSnapshot(w io.Writer, i *backups.SnapshotInfo, s Style) error {
	p := paint(s.Colour)
	how := "not encrypted: anyone who can read it controls the cluster"
	if i.Encrypted {
		how = "encrypted"
	}
	isCopy := i.Kubernetes == "" // its encryption hides the rest
	switch {
	case !isCopy && i.Verified:
		how += "; signed"
	case !isCopy:
	case i.Verified:
		how += "; its name is verified, and its content is verified when it is opened"
	default:
		how += "; NOT VERIFIED: anyone with write access to its source can have written it"
	}
	fmt.Fprintf(w, "%s\n", p.in(bold, "Wrote "+i.File))
	fmt.Fprintf(w, "%s, %s\n\n", bytesize.Format(i.Bytes), how)
	if d := i.Snapshot; d != nil {
		fmt.Fprintf(w, "Snapshot:  of %s, revision %d, %d keys, hash %08x, %s\n", i.Member, d.Revision, d.Keys, d.Hash, bytesize.Format(d.Bytes))
	}
	if !isCopy {
		fmt.Fprintf(w, "Versions:  Kubernetes %s, etcd %s\n", i.Kubernetes, i.Etcd)
		fmt.Fprintf(w, "Files:     %d from hosts, including the CA keys\n", len(i.Files))
		if i.NewKey {
			fmt.Fprintf(w, "Signed by: %s\n"+
				"           This key is new: save it. Another manager needs it with --signed-by to trust these backup sets.\n", i.SignedBy)
		}
	} else {
		fmt.Fprintf(w, "Snapshot:  of %s, revision %d, taken %s\n", i.Member, i.Revision, i.Taken.UTC().Format(timestampFormat))
	}
	from := ""
	if i.Encrypted {
		from = " --identity KEYFILE"
	}
	next := "copy the set to another machine"
	if isCopy {
		next = fmt.Sprintf("slipway etcd drill %s --from %s%s", i.Cluster, i.File, from)
	}
	_, err := fmt.Fprintf(w, "\nNext: %s\nRestore: slipway etcd restore %s --from %s%s\n", next, i.Cluster, i.File, from)
	return err
}

// WriteSnapshots writes a list of backup sets.
func WriteSnapshots(w io.Writer, list []backups.SnapshotInfo, now time.Time, noHeaders bool) error {
	var rows [][]string
	for _, i := range list {
		revision, keys, is := "-", "-", "plain"
		if d := i.Snapshot; d != nil {
			revision, keys = strconv.FormatInt(d.Revision, 10), strconv.Itoa(d.Keys)
		}
		switch {
		case i.Problem != nil:
			is = "DAMAGED"
		case i.KeysOnly:
			is = "keys only"
		case i.Encrypted:
			is = "encrypted"
		case !i.Verified:
			is = "UNVERIFIED"
		}
		rows = append(rows, []string{
			i.Cluster, FormatAge(now.Sub(i.Taken)), cmp.Or(i.Kubernetes, "-"), cmp.Or(i.Etcd, "-"), revision, keys,
			bytesize.Format(i.Bytes), is, i.File,
		})
	}
	head := []string{"CLUSTER", "AGE", "KUBERNETES", "ETCD", "REVISION", "KEYS", "SIZE", "STATUS", "FILE"}
	if noHeaders {
		head = nil
	}
	return WriteTable(w, head, rows)
}

// WriteScheduled writes the scheduled snapshots of a cluster's hosts, their copies and
// their restore tests.
func WriteScheduled(w io.Writer, s *inspect.Scheduled, now time.Time, style Style) error {
	is := "off"
	if s.On {
		is = "on"
	}
	fmt.Fprintf(w, "Scheduled snapshots on the hosts of %s: %s\n", s.Name, is)
	if len(s.Warnings) > 0 {
		fmt.Fprintln(w)
		WriteDiagnostics(w, s.Warnings, style)
	}
	var rows [][]string
	for _, h := range s.Hosts {
		if h.AutoSnapshotOutcome == nil {
			continue
		}
		for _, k := range h.Kept {
			rows = append(rows, []string{
				h.Host, FormatAge(max(now.Sub(k.Taken), 0)), k.Etcd, strconv.FormatInt(k.Revision, 10), strconv.Itoa(k.Keys),
				bytesize.Format(k.Bytes), path.Base(k.Path),
			})
		}
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := WriteTable(w, []string{"HOST", "AGE", "ETCD", "REVISION", "KEYS", "SIZE", "FILE"}, rows); err != nil {
			return err
		}
	}
	if err := writeCopyTable(w, s.Hosts, now); err != nil {
		return err
	}
	if err := writeDrillTable(w, s.Hosts, now); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nNext: %s\n", s.Next)
	return err
}

// WriteDrill writes the result of a restore test of a backup set.
func WriteDrill(w io.Writer, r *backups.DrillReport, s Style) error {
	p := paint(s.Colour)
	verdict, next := p.in(green, "good"), "slipway etcd health "+r.Cluster
	if !r.Good {
		verdict, next = p.in(red, "NOT GOOD"), "take another backup and test it: slipway etcd snapshot "+r.Cluster
	}
	fmt.Fprintf(w, "%s is %s\n\n", p.in(bold, r.File), verdict)
	var rows [][]string
	for _, c := range r.Checks {
		rows = append(rows, []string{c.Name, c.Want, c.Got, formatOK(c.Good)})
	}
	if err := WriteTable(w, []string{"CHECK", "EXPECTED", "RESTORED", "GOOD"}, rows); err != nil {
		return err
	}
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w)
		WriteDiagnostics(w, r.Warnings, s)
	}
	is := "signed by a trusted key"
	if !r.Verified {
		is = "NOT VERIFIED"
	}
	fmt.Fprintf(w, "\nSnapshot of %s, revision %d, %s", r.Member, r.Revision, is)
	fmt.Fprintf(w, "\nTaken %s; restore test on %s with etcd %s: %.0f s, including cleanup\n",
		r.Taken.UTC().Format(timestampFormat), r.Host, r.Etcd, r.Seconds)
	_, err := fmt.Fprintf(w, "\nNext: %s\n", next)
	return err
}
