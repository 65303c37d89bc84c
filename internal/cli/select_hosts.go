package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/spec/hostselector"
)

// selectorHelp is the help text for selectors.
const selectorHelp = `SELECTOR is a comma-separated list of host names, addresses, patterns (db-*), ranges
(node[2:10]), roles (role=worker), or all. CLUSTER@ before a term applies to this term
and the following ones. It can be a pattern: prod@all, *@role=control-plane. Clusters of
a pattern without a matching host cause a warning, and an error only if no cluster has
a matching host.`

// A hostSelector finds the hosts that a selector names.
type hostSelector struct {
	*console
	clusters  *clusterChooser
	open      opener[hostRunner]
	openState opener[clusterReader]
}

// selectHosts returns the service, and the hosts of a selector.
func (s *hostSelector) selectHosts(ctx context.Context, selector string) (hostRunner, []hostexec.Target, error) {
	svc, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	cluster := ""
	for _, c := range hostselector.SplitByCluster(selector) {
		if c.Cluster == "" && cluster == "" {
			if cluster, err = s.clusters.chooseCluster(ctx, nil); err != nil {
				return nil, nil, err
			}
		}
		if c.Cluster != "" && !strings.ContainsAny(c.Cluster, "*?") {
			if err := checkClusterName(c.Cluster); err != nil {
				return nil, nil, err
			}
		}
	}
	targets, warnings, err := svc.Targets(ctx, selector, cluster)
	s.printDiagnostics(warnings)
	return svc, targets, err
}

// newTargetLabeler returns a function that names a target: with its cluster if the
// targets are in several clusters.
func newTargetLabeler(targets []hostexec.Target) func(cluster, host string) string {
	for _, t := range targets {
		if t.Cluster != targets[0].Cluster {
			return func(cluster, host string) string { return cluster + "@" + host }
		}
	}
	return func(_, host string) string { return host }
}

// completeSelector completes a selector: hosts and roles of the cluster to use, and the
// names of clusters.
func (s *hostSelector) completeSelector(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.listSelectable(cmd.Context(), begin), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (s *hostSelector) listSelectable(ctx context.Context, begin string) []string {
	svc, err := s.openState(ctx)
	if err != nil {
		return nil
	}
	before := begin[:strings.LastIndex(begin, ",")+1]
	term := begin[len(before):]
	cluster, _, named := strings.Cut(term, "@")
	prefix := before
	if named {
		prefix += cluster + "@"
	} else if cluster, err = s.clusters.chooseCluster(ctx, nil); err != nil {
		cluster = ""
	}
	out := []string{}
	if c, err := svc.Cluster(ctx, cluster); err == nil {
		for _, h := range c.Spec.Hosts {
			out = append(out, prefix+h.Name)
			for _, r := range h.Roles {
				out = append(out, prefix+"role="+string(r))
			}
		}
		out = append(out, prefix+"all")
	}
	if !named {
		list, err := svc.Clusters(ctx)
		for i := 0; err == nil && i < len(list); i++ {
			out = append(out, before+list[i].Name+"@")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hostCommand holds what "exec", "cp" and "ssh" need.
type hostCommand struct {
	*console
	selector *hostSelector
}

// workFlags holds the flags that exec and cp share.
type workFlags struct {
	root     bool
	parallel int
}

func (w *workFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.root, "sudo", false, "run as root with sudo instead of as the login user")
	cmd.Flags().IntVar(&w.parallel, "parallel", 50, "maximum number of hosts at the same time")
}

func (w *workFlags) newWork(targets []hostexec.Target) (hostexec.Work, error) {
	if w.parallel < 1 {
		return hostexec.Work{}, newProblem(idUsage, "", "--parallel must be at least 1, got %d", w.parallel)
	}
	return hostexec.Work{Targets: targets, Root: w.root, Parallel: w.parallel}, nil
}

// reportHostResults prints which hosts failed, and why. It returns an exitError if a
// host failed or a file was skipped.
func (c *console) reportHostResults(ctx context.Context, targets []hostexec.Target, results []hostexec.HostResult) error {
	label := newTargetLabeler(targets)
	failed, skipped := 0, 0
	for _, r := range results {
		skipped += r.Skipped()
		c.printDiagnostics(listSkippedFiles(r, label(r.Cluster, r.Host)))
		if !r.Failed() {
			continue
		}
		failed++
		d := diag.Diagnostic{Severity: diag.Error, Message: fmt.Sprintf("the program failed with exit code %d", r.ExitCode)}
		if r.Error != nil {
			d = *r.Error
		}
		d.Host, d.Message = label(r.Cluster, r.Host), view.PrintableLine(d.Message) // the message may come from the host
		c.printDiagnostics(diag.List{d})
	}
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted}
	}
	if failed == 0 && skipped == 0 {
		return nil
	}
	if skipped > 0 {
		c.printMessage("Skipped in directories: %d.", skipped)
	}
	if failed > 0 && len(results) > 1 {
		c.printMessage("%d of %d hosts failed.", failed, len(results))
	}
	return &exitError{code: exitPartial}
}

// listSkippedFiles returns warnings for the files of directories that were not copied.
func listSkippedFiles(r hostexec.HostResult, host string) diag.List {
	if r.Skipped() == 0 {
		return nil
	}
	var list diag.List
	say := func(message string) {
		list = append(list, diag.Diagnostic{ID: idCopySkipped, Severity: diag.Warning, Host: host, Message: message})
	}
	for _, f := range r.Copied.SkippedFiles { // paths and reasons may come from the host
		say(view.PrintableLine(f.Path) + " was not copied: " + view.PrintableLine(f.Reason))
	}
	if more := r.Skipped() - len(list); more > 0 {
		say(fmt.Sprintf("%d more files were not copied", more))
	}
	return list
}
