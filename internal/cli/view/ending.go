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

// rollback is the kind of an operation that takes a create back.
const rollback lifecycle.Kind = "rollback"

// mostFailures is how many failures an ending lists.
const mostFailures = 10

// An Ending is how an operation ended and what to do about it.
type Ending struct {
	Result *lifecycle.Result
	Kind   lifecycle.Kind
	// File is the cluster file it was made from, "" if there was none.
	File  string
	Style Style
}

// Succeeded writes what is ready, how long it took, what to type next and how
// to undo it.
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
		return "1 step changed something"
	}
	return fmt.Sprintf("%d steps changed something", steps)
}

func (e Ending) next() (next, undo string) {
	name := e.Result.Cluster
	file := cmp.Or(e.File, "FILE")
	switch e.Kind {
	case lifecycle.Create:
		return "slipway kubectl " + name + " -- get nodes", "slipway delete cluster " + name
	case lifecycle.Apply:
		return "slipway kubectl " + name + " -- get nodes", "put the earlier settings back into the file, then: slipway apply -f " + file
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
				by = cmp.Or(e.File, by) // as it was typed
			}
			return lifecycle.OnwardCommand(name, v, by), ""
		}
		return "slipway kubectl " + name + " -- get nodes", ""
	case lifecycle.Renew, lifecycle.RotateCA:
		return "slipway certs check " + name, ""
	case lifecycle.Defrag:
		return "slipway etcd health " + name, ""
	case lifecycle.RestoreEtcd:
		return "slipway apply " + name + " (what the cluster was changed in since is not in the data)", ""
	case lifecycle.RescueEtcd:
		return "slipway etcd health " + name, ""
	case lifecycle.InitOS:
		return "slipway create cluster -f " + file, "slipway delete cluster -f " + file + ", if no cluster runs on these hosts"
	case lifecycle.InitRegistry:
		return "slipway create cluster -f " + file + "; if it is there: slipway apply -f " + file, "slipway delete cluster -f " + file + ", if no cluster runs on these hosts"
	case lifecycle.Delete:
		return "", "slipway create cluster -f " + file
	case rollback:
		return "mend the cause, then: slipway create cluster -f " + file, ""
	}
	return "", ""
}

// Paused says where an operation stopped that was to stop there, and what leads on.
func (e Ending) Paused(w io.Writer) {
	w = e.Style.Writer(w)
	fmt.Fprintf(w, "%s after %s, as you asked. The cluster serves as it is.\n", paint(e.Style.Colour).in(yellow, "PAUSED"), Duration(e.Result.Duration))
	e.Onward(w)
}

// Failed writes the failures and the three lines that lead on: why, then,
// back.
func (e Ending) Failed(w io.Writer) {
	r := e.Result
	w = e.Style.Writer(w)
	p := paint(e.Style.Colour)
	if r.Outcome == event.Cancelled {
		fmt.Fprintf(w, "%s after %s. What was done so far stays; nothing is half done.\n", p.in(yellow, "STOPPED"), Duration(r.Duration))
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
		fmt.Fprintf(w, "%s %s: %s%s\n", p.in(red, "FAILED"), where, oneLine(g.Message), InGuide(g.Reason))
		if g.Remedy != "" {
			fmt.Fprintf(w, "       remedy: %s\n", oneLine(g.Remedy))
		}
	}
	if len(groups) == 0 && r.Outcome != event.Cancelled {
		fmt.Fprintf(w, "%s %s cluster %s\n", p.in(red, "FAILED"), Doing(plan.Verb(string(e.Kind))), r.Cluster)
	}
	if r.Forgotten {
		fmt.Fprintf(w, "Cluster %s is off the records. What it keeps on these hosts stays there: %s\n", r.Cluster, strings.Join(hosts(r.Failures), ", "))
	}
	fmt.Fprintf(w, "Why: slipway operations show %s --failed\n", r.Operation)
	e.Onward(w)
}

// InGuide is the id under which the guide has a failure, in brackets; "" for those
// that it does not have, whose reasons begin with a capital.
func InGuide(reason string) string {
	if reason == "" || reason != strings.ToLower(reason) {
		return ""
	}
	return " [" + reason + "]"
}

// Onward writes the two lines that lead on and back.
func (e Ending) Onward(w io.Writer) {
	w = e.Style.Writer(w)
	then, back := e.on()
	fmt.Fprintf(w, "Then: %s\nBack: %s\n", then, back)
}

// on is what leads on from a failure, and back.
func (e Ending) on() (then, back string) {
	name := e.Result.Cluster
	resume := "slipway resume " + name
	switch {
	case e.Result.Reverted:
		return "correct the file, then: slipway apply -f " + cmp.Or(e.File, "FILE"), "it is back: the cluster is as it was before"
	case e.Result.Forgotten:
		return "nothing, if they are gone for good; should one come back: " + resume, "there is none"
	case e.Kind == lifecycle.Delete && e.Result.Outcome == event.Partial:
		return resume + "; or, without hosts that are gone for good: slipway delete cluster " + name + " --forget", "there is none; a delete only goes on"
	case e.Kind == lifecycle.InitOS:
		// Of a cluster on the records it is no operation that a resume or
		// a rollback would mean.
		return "slipway init os -f " + cmp.Or(e.File, "FILE"), "there is none for it alone; deleting the cluster puts its hosts back"
	case e.Kind == lifecycle.InitRegistry:
		return "slipway init registry -f " + cmp.Or(e.File, "FILE"), "there is none for it alone; deleting the cluster puts its hosts back"
	case e.Kind == lifecycle.Lose:
		return resume, "there is none; what is gone only goes"
	case e.Kind == lifecycle.Revert:
		return resume, "there is none; a way back only goes on, and the cluster runs as it is meanwhile"
	case e.Kind == lifecycle.Renew:
		return resume, "there is none; what has been renewed is as good as what was there before"
	case e.Kind == lifecycle.RotateCA:
		return resume, "there is none; the cluster serves with the old and the new meanwhile, and an exchange only goes on"
	case e.Kind == lifecycle.Defrag:
		return "slipway etcd health " + name + ", then: slipway etcd defrag " + name, "nothing is to be taken back"
	case e.Kind == lifecycle.RestoreEtcd:
		return resume, "as long as no data were moved: slipway apply " + name + "; after that it only goes on"
	case e.Kind == lifecycle.RescueEtcd:
		return resume, "as long as no data were moved, start the hosts again (reboot them); after that it only goes on"
	case e.Kind == lifecycle.Delete || e.Kind == rollback:
		return resume, fmt.Sprintf("there is none; a %s only goes on", e.Kind)
	}
	return resume, "slipway rollback " + name
}

// hosts are those that failed, each once.
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
