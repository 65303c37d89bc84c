package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/plan"
)

// rollback is the kind of an operation that rolls back a create.
const rollback lifecycle.Kind = "rollback"

// mostFailures limits how many failures an ending lists.
const mostFailures = 10

// An Ending describes how an operation ended and which commands to run next.
type Ending struct {
	Result *lifecycle.Result
	Kind   lifecycle.Kind
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
	next, undo := e.next()
	if next != "" {
		fmt.Fprintf(w, "Next: %s\n", next)
	}
	if undo != "" {
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

func (e Ending) next() (next, undo string) {
	name := e.Result.Cluster
	file := cmp.Or(e.File, "FILE")
	switch e.Kind {
	case lifecycle.Create:
		return "slipway kubectl " + name + " -- get nodes", "slipway delete cluster " + name
	case lifecycle.Apply:
		return "slipway kubectl " + name + " -- get nodes", "restore the previous settings in the file, then run: slipway apply -f " + file
	case lifecycle.Add:
		return "slipway kubectl " + name + " -- get nodes", "slipway delete nodes " + strings.Join(e.Result.Nodes, " ") + " --cluster " + name
	case lifecycle.Lose:
		return "slipway resume " + name, ""
	case lifecycle.Remove:
		return "slipway kubectl " + name + " -- get nodes", "slipway add nodes " + name + " --host USER@ADDRESS=ROLE,name=NAME"
	case lifecycle.Upgrade:
		if v := e.Result.Onward; v != "" {
			by := e.Result.OnwardFile
			if by != "" {
				by = cmp.Or(e.File, by) // as the user typed it
			}
			return lifecycle.OnwardCommand(name, v, by), ""
		}
		return "slipway kubectl " + name + " -- get nodes", ""
	case lifecycle.Renew, lifecycle.RotateCA:
		return "slipway certs check " + name, ""
	case lifecycle.Defrag:
		return "slipway etcd health " + name, ""
	case lifecycle.RestoreEtcd:
		return "slipway apply " + name + " (applies changes that were made after the backup)", ""
	case lifecycle.RescueEtcd:
		return "slipway etcd health " + name, ""
	case lifecycle.InitOS:
		return "slipway create cluster -f " + file, "slipway delete cluster -f " + file + ", if no cluster runs on these hosts"
	case lifecycle.InitRegistry:
		return "slipway create cluster -f " + file + "; if the cluster exists: slipway apply -f " + file,
			"slipway delete cluster -f " + file + ", if no cluster runs on these hosts"
	case lifecycle.Delete:
		return "", "slipway create cluster -f " + file
	case rollback:
		return "fix the cause, then run: slipway create cluster -f " + file, ""
	}
	return "", ""
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
		fmt.Fprintf(w, "%s: %s cluster %s\n", p.in(red, "FAILED"), plan.Verb(string(e.Kind)), r.Cluster)
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
	next, back := e.on()
	fmt.Fprintf(w, "Next: %s\nRollback: %s\n", next, back)
}

// on returns the commands that continue an operation that has not finished, and
// roll it back.
func (e Ending) on() (next, back string) {
	name := e.Result.Cluster
	resume := "slipway resume " + name
	switch {
	case e.Result.Reverted:
		return "correct the file, then run: slipway apply -f " + cmp.Or(e.File, "FILE"), "done; the cluster has its previous settings"
	case e.Result.Forgotten:
		return "none if these hosts are permanently lost; if a host comes back: " + resume, notPossible
	case e.Kind == lifecycle.Delete && e.Result.Outcome == event.Partial:
		return resume + "; to leave out hosts that are permanently lost: slipway delete cluster " + name + " --forget",
			notPossible + "; finish the delete"
	case e.Kind == lifecycle.InitOS:
		// If the cluster is in the state, resume and rollback mean another of
		// its operations.
		return "slipway init os -f " + cmp.Or(e.File, "FILE"), onlyByDelete
	case e.Kind == lifecycle.InitRegistry:
		return "slipway init registry -f " + cmp.Or(e.File, "FILE"), onlyByDelete
	case e.Kind == lifecycle.Lose:
		return resume, notPossible + "; finish the removal of the lost nodes"
	case e.Kind == lifecycle.Revert:
		return resume, notPossible + "; finish this rollback. The cluster keeps working meanwhile"
	case e.Kind == lifecycle.Renew:
		return resume, "not needed; renewed certificates work like the previous ones"
	case e.Kind == lifecycle.RotateCA:
		return resume, notPossible + "; finish the rotation. The cluster trusts the old and the new keys meanwhile"
	case e.Kind == lifecycle.Defrag:
		return "slipway etcd health " + name + ", then run: slipway etcd defrag " + name, "not needed"
	case e.Kind == lifecycle.RestoreEtcd:
		return resume, "before data is moved: slipway apply " + name + "; after that, not possible"
	case e.Kind == lifecycle.RescueEtcd:
		return resume, "before data is moved: reboot the hosts to start them again; after that, not possible"
	case e.Kind == lifecycle.Delete || e.Kind == rollback:
		return resume, fmt.Sprintf("%s; finish the %s", notPossible, e.Kind)
	}
	return resume, "slipway rollback " + name
}

// These are the answers in the line Rollback for operations that a user cannot
// roll back.
const (
	notPossible  = "not possible"
	onlyByDelete = "not possible separately; deleting the cluster resets its hosts"
)

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
