package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

func newEtcdCommand(c inspectCommand, others ...*cobra.Command) *cobra.Command {
	cmd := program.NewParentCommand("etcd", "Manage, back up and restore a cluster's etcd")
	cmd.AddCommand(
		c.newEtcdReportCommand("members", "List the etcd members of a cluster",
			`Lists the etcd members of a cluster: their roles (leader, follower or learner),
versions and addresses, and whether their hosts are reachable.`, view.WriteEtcdMembers),
		c.newEtcdReportCommand("health", "Show the health of a cluster's etcd",
			`Shows the health of a cluster's etcd, the problems, and the next command. For each
member it shows whether the member and its host are reachable. It also shows the size
of the database, the size in use, the quota, how far the member is behind, and its
alarms.

Exit codes:
  0  Healthy.
  1  Down.
  3  Degraded.`, view.WriteEtcdHealth),
	)
	cmd.AddCommand(others...)
	return cmd
}

// newEtcdReportCommand returns a command that reads the state of etcd and shows it.
func (c inspectCommand) newEtcdReportCommand(
	use, short, long string, show func(io.Writer, *inspect.EtcdReport, view.Style) error,
) *cobra.Command {
	report := clusterReport[inspector, inspect.EtcdReport]{
		read: func(ctx context.Context, svc inspector, cluster string, progress event.Sink) (*inspect.EtcdReport, error) {
			return svc.Etcd(ctx, cluster, progress)
		},
		show: show,
		exit: func(r *inspect.EtcdReport) error { return exitForVerdict(use, r) },
	}
	return &cobra.Command{
		Use: use + " [NAME]", Short: short,
		Long: long + `

The command queries etcd on its hosts over SSH and does not need the API. It ends
within 30 seconds also when the API is down, and lists unreachable hosts.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: report.newRunFunc(c.console, c.clusters, c.open),
	}
}

// exitForVerdict returns an exitError if the exit code for a report is not 0. For the
// command members, that is the case only if the members could not be listed.
func exitForVerdict(use string, r *inspect.EtcdReport) error {
	switch {
	case r.Etcd.Message != "", use == "health" && (r.Verdict == inspect.Down || r.Verdict == inspect.Absent):
		return &exitError{code: exitFailed}
	case use == "health" && r.Verdict == inspect.Degraded:
		return &exitError{code: exitPartial}
	}
	return nil
}
