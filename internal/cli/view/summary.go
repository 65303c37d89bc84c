package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// mostFailures limits how many failures an ending lists.
const mostFailures = 10

// An Ending describes how an operation ended and which commands to run next.
type Ending struct {
	Result *lifecycle.Result
	Kind   operation.Kind
	// File is the cluster file of the operation, "" if there was none.
	File  string
	Style Style
}

// Succeeded writes what is ready, the duration, the next command and the command
// that undoes the operation.
func (e Ending) Succeeded(w io.Writer) {
	r := e.Result
	w = e.Style.Writer(w)
	p := paint(e.Style.Colour)
	for i, l := range r.Ready {
		if i == 0 {
			l = p.in(bold, l)
		}
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "Took %s; %s.\n", Duration(r.Duration), changed(r.Changed))
	if next := e.Kind.Next(e.end()); next != "" {
		fmt.Fprintf(w, "Next: %s\n", next)
	}
	if undo := e.Kind.Undo(e.end()); undo != "" {
		fmt.Fprintf(w, "Undo: %s\n", undo)
	}
}

func changed(steps int) string {
	switch steps {
	case 0:
		return "nothing changed"
	case 1:
		return "1 step made changes"
	}
	return fmt.Sprintf("%d steps made changes", steps)
}

// end returns what the commands after the operation depend on.
func (e Ending) end() operation.End {
	r := e.Result
	return operation.End{
		Cluster: r.Cluster, File: e.File, Nodes: r.Nodes, Partial: r.Outcome == event.Partial,
		Target: r.Onward, TargetFile: r.OnwardFile,
	}
}

// Paused reports that an operation paused as requested, and the commands that
// continue it or roll it back.
func (e Ending) Paused(w io.Writer) {
	w = e.Style.Writer(w)
	p := paint(e.Style.Colour)
	fmt.Fprintf(w, "%s after %s, as requested. The cluster works in its current state.\n", p.in(yellow, "PAUSED"), Duration(e.Result.Duration))
	e.Onward(w)
}

// Failed writes the failures, and the commands that show details, continue the
// operation and roll it back.
func (e Ending) Failed(w io.Writer) {
	r := e.Result
	w = e.Style.Writer(w)
	p := paint(e.Style.Colour)
	if r.Outcome == event.Cancelled {
		fmt.Fprintf(w, "%s after %s. Completed steps are kept; no step is half done.\n", p.in(yellow, "STOPPED"), Duration(r.Duration))
	}
	groups := foldFailures(r.Failures)
	for i, g := range groups {
		if i == mostFailures {
			fmt.Fprintf(w, "and %d more failures\n", len(groups)-i)
			break
		}
		where := Where(g.Title, g.Host)
		if g.more > 0 {
			where += fmt.Sprintf(" (and on %d more)", g.more)
		}
		fmt.Fprintf(w, "%s: %s: %s%s\n", p.in(red, "FAILED"), where, oneLine(g.Message), InGuide(g.Reason))
		if g.Remedy != "" {
			fmt.Fprintf(w, "        remedy: %s\n", oneLine(g.Remedy))
		}
	}
	if len(groups) == 0 && r.Outcome != event.Cancelled {
		fmt.Fprintf(w, "%s: %s cluster %s\n", p.in(red, "FAILED"), e.Kind.Verb(), r.Cluster)
	}
	if r.Forgotten {
		fmt.Fprintf(w, "Cluster %s was removed from Slipway. Its files remain on: %s\n", r.Cluster, strings.Join(hosts(r.Failures), ", "))
	}
	fmt.Fprintf(w, "Details: slipway operations show %s --failed\n", r.Operation)
	e.Onward(w)
}

// InGuide returns a failure's id in the guide, in brackets. It returns "" for a
// reason that the guide does not list; such a reason begins with a capital.
func InGuide(reason string) string {
	if reason == "" || reason != strings.ToLower(reason) {
		return ""
	}
	return " [" + reason + "]"
}

// Onward writes the commands that continue the operation and roll it back.
func (e Ending) Onward(w io.Writer) {
	w = e.Style.Writer(w)
	next, back := e.nextCommands()
	fmt.Fprintf(w, "Next: %s\nRollback: %s\n", next, back)
}

// nextCommands returns the commands that continue an operation that has not finished, and
// roll it back.
func (e Ending) nextCommands() (next, back string) {
	switch {
	case e.Result.Reverted:
		return "correct the file, then run: slipway apply -f " + cmp.Or(e.File, "FILE"), "done; the cluster has its previous settings"
	case e.Result.Forgotten:
		return "none if these hosts are permanently lost; if a host comes back: slipway resume " + e.Result.Cluster, "not possible"
	}
	return e.Kind.OnFailure(e.end()), e.Kind.Rollback(e.end())
}

// hosts returns the names of the hosts that failed, without duplicates.
func hosts(list []lifecycle.HostFailure) (out []string) {
	for _, f := range list {
		if !slices.Contains(out, f.Host) {
			out = append(out, f.Host)
		}
	}
	return out
}

// sameFailure is one failure that several hosts share.
type sameFailure struct {
	lifecycle.HostFailure
	more int
}

func foldFailures(list []lifecycle.HostFailure) []*sameFailure {
	type cause struct{ task, message string }
	seen := map[cause]*sameFailure{}
	var out []*sameFailure
	for _, f := range list {
		c := cause{f.Task, f.Message}
		if g := seen[c]; g != nil {
			g.more++
			continue
		}
		seen[c] = &sameFailure{HostFailure: f}
		out = append(out, seen[c])
	}
	return out
}
