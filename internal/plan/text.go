package plan

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
)

// A Mark shows at a glance what a change does.
type Mark byte

// The marks.
const (
	Creates Mark = '+'
	Alters  Mark = '~'
	Removes Mark = '-'
)

// Mark returns what a change does to its target.
func (c OpChange) Mark() Mark {
	word, _, _ := strings.Cut(c.Summary, " ")
	switch {
	case c.Kind == op.KindAbsent, c.Kind == op.KindReset, c.Kind == op.KindRestoreHost, word == "remove", word == "delete":
		return Removes
	case word == "create", word == "add", c.Kind == op.KindFetchBlob, c.Kind == op.KindUnpack, c.Kind == op.KindImportImages:
		return Creates
	}
	return Alters
}

// maxHosts is how many hosts one line of the text names.
const maxHosts = 6

// digests matches digests, which are shown shortened.
var digests = regexp.MustCompile(`(sha256:[0-9a-f]{12})[0-9a-f]{52}`)

// A group is a set of hosts on which one task does the same.
type group struct {
	Step
	hosts []string
}

// WriteText writes the plan for the user, by module and task: hosts with the same changes
// together, diffs of existing files, and totals. The same plan gives the same text.
func (p *Plan) WriteText(w io.Writer) error { return p.writeText(w, true) }

// WriteBrief is WriteText without the individual changes.
func (p *Plan) WriteBrief(w io.Writer) error { return p.writeText(w, false) }

func (p *Plan) writeText(w io.Writer, changes bool) error {
	b, kind := bufio.NewWriter(w), operation.Kind(p.Operation)
	if p.IsEmpty() {
		fmt.Fprintf(b, "Cluster %s %s: nothing to do.\n", p.Cluster, kind.UpToDate())
		return b.Flush()
	}
	fmt.Fprintf(b, "Plan to %s cluster %s\n", kind.Verb(), p.Cluster)
	if p.Bundle != nil {
		fmt.Fprintf(b, "Bundle: %s\n", p.Bundle)
	}
	module := ""
	for _, g := range p.groupSteps(changes) {
		if g.Module != module {
			module = g.Module
			fmt.Fprintf(b, "\n%s\n", module)
		}
		g.writeGroup(b, changes)
	}
	if note := kind.PlanNote(p.Cluster); note != "" {
		fmt.Fprintf(b, "\n%s\n", note)
	}
	if len(p.Removes) > 0 {
		fmt.Fprintf(b, "\nThis removes:\n")
		for _, r := range p.Removes {
			fmt.Fprintf(b, "  - %s\n", r)
		}
	}
	if len(p.Steps) > 0 {
		fmt.Fprintf(b, "\n%s\n", p.TotalsLine())
	}
	return b.Flush()
}

// String returns text for the user: "Kubernetes v1.37.1 from the cache, 312.4 MiB".
func (n *BundleNote) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Kubernetes %s", n.Kubernetes)
	switch n.Source {
	case "":
	case "cached":
		b.WriteString(" from the cache")
	case "modules":
		b.WriteString(" from Go modules")
	default:
		b.WriteString(" from " + n.Source)
	}
	if n.SizeBytes > 0 {
		b.WriteString(", " + bytesize.Format(n.SizeBytes))
	}
	if n.Compile {
		b.WriteString(", must be compiled first (takes minutes, only once)")
	}
	return b.String()
}

// groupSteps returns the steps, grouped by task and by what they do (including their changes,
// if these are shown). Steps of one task may be far apart in the plan; they are shown
// together at the first of them.
func (p *Plan) groupSteps(changes bool) []group {
	var tasks []string
	byTask := map[string][]group{}
	for _, s := range p.Steps {
		if byTask[s.Task] == nil {
			tasks = append(tasks, s.Task)
		}
		byTask[s.Task] = addToGroup(byTask[s.Task], s, changes)
	}
	var out []group
	for _, t := range tasks {
		out = append(out, byTask[t]...)
	}
	return out
}

// addToGroup adds a step to the group that does the same, or to a new group.
func addToGroup(groups []group, s Step, changes bool) []group {
	for i := range groups {
		g := &groups[i]
		if g.State == s.State && g.After == s.After && (!changes || slices.Equal(g.Changes, s.Changes)) {
			g.hosts = append(g.hosts, s.Host)
			return groups
		}
	}
	return append(groups, group{Step: s, hosts: []string{s.Host}})
}

func (g group) writeGroup(b *bufio.Writer, changes bool) {
	fmt.Fprintf(b, "  %s%s", g.Title, onHosts(g.hosts))
	switch g.State {
	case Pending:
		fmt.Fprintf(b, "  (known after %s)", g.After)
	case Uncheckable:
		fmt.Fprint(b, "  (cannot be checked: always runs)")
	}
	fmt.Fprintln(b)
	if !changes {
		return
	}
	for _, c := range g.Changes {
		fmt.Fprintf(b, "    %c %s %s", c.Mark(), c.Kind, digests.ReplaceAllString(c.Target, "$1"))
		if c.Summary != "" {
			fmt.Fprintf(b, ": %s", c.Summary)
		}
		fmt.Fprintln(b)
		if c.Diff == "" || c.Mark() != Alters {
			continue // a new file has no previous content to compare with
		}
		for line := range strings.Lines(c.Diff) {
			fmt.Fprintf(b, "        %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// onHosts returns " on w1, w2"; "" for the manager.
func onHosts(hosts []string) string {
	if len(hosts) == 1 && hosts[0] == "" {
		return ""
	}
	if n := len(hosts); n > maxHosts {
		return fmt.Sprintf(" on %s and %d more", strings.Join(hosts[:maxHosts], ", "), n-maxHosts)
	}
	return " on " + strings.Join(hosts, ", ")
}

// TotalsLine returns one line: "12 tasks on 3 hosts: 30 to create, 4 to change, 2 to remove, 1
// known later".
func (p *Plan) TotalsLine() string {
	tasks, hosts := map[string]bool{}, map[string]bool{}
	marks := map[Mark]int{}
	later := 0
	for _, s := range p.Steps {
		tasks[s.Task] = true
		if s.Host != "" {
			hosts[s.Host] = true
		}
		if s.State == Pending {
			later++
			continue
		}
		for _, c := range s.Changes {
			marks[c.Mark()]++
		}
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{marks[Creates], "to create"}, {marks[Alters], "to change"}, {marks[Removes], "to remove"}, {later, "known later"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	line := countText(len(tasks), "task")
	if len(hosts) > 0 {
		line += " on " + countText(len(hosts), "host")
	}
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	return line
}

func countText(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Diff returns the difference of two plans, as a unified diff of their texts and input
// digests; "" if they are the same.
func Diff(a, b *Plan) string {
	return string(diff.Diff("saved", a.digestedContent(), "now", b.digestedContent()))
}

// digestedContent returns everything that the digest covers, for a comparison.
func (p *Plan) digestedContent() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "spec %s\nbundle %s\nfacts %s\n", p.SpecDigest, p.BundleDigest, p.FactsDigest)
	if p.ClusterUID != "" {
		fmt.Fprintf(&b, "cluster object %s\n", p.ClusterUID)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		fmt.Fprintf(&b, "file %s %s\n", name, p.Files[name])
	}
	_ = p.WriteText(&b) // a strings.Builder takes everything
	return []byte(b.String())
}
