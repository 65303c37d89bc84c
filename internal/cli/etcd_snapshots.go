package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

func newEtcdSnapshotsCommand(c backupCommand) *cobra.Command {
	var noHeaders, onHosts, atTargets bool
	showCopies, showScheduled := c.showCopies(), c.showScheduled()
	cmd := &cobra.Command{
		Use: "snapshots [NAME]", Short: "List backups of etcd, newest first",
		Long: `Lists the backup sets in $SLIPWAY_HOME, newest first: of one cluster, or of all
clusters, including deleted ones. For an encrypted set, only the information in its
name is shown. A set is DAMAGED if it is incomplete; the reason follows the list.

With --hosts, lists the scheduled snapshots (spec.etcd.backup) on the cluster's
hosts, and the hosts that take none. The exit code is 3 if a host is not reachable, or
if its latest snapshot is old, failed or was not copied. Otherwise it is 0.

With --copies, lists the copies of scheduled snapshots at their targets
(spec.etcd.backup.copies). The exit code is 3 if a target could not be read.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case onHosts:
				return showScheduled(cmd, args)
			case atTargets:
				return showCopies(cmd, args)
			}
			ctx, name := cmd.Context(), ""
			if len(args) > 0 {
				if name = args[0]; checkClusterName(name) != nil {
					return checkClusterName(name)
				}
			}
			svc, err := c.open(ctx)
			if err != nil {
				return err
			}
			list, err := svc.Snapshots(ctx, name)
			if err != nil {
				return err
			}
			return c.writeResult(list, func(w io.Writer) error { return c.writeSets(w, list, noHeaders) })
		},
	}
	addNoHeadersFlag(cmd, &noHeaders)
	cmd.Flags().BoolVar(&onHosts, "hosts", false, "list the scheduled snapshots on the cluster's hosts")
	cmd.Flags().BoolVar(&atTargets, "copies", false, "list the copies of scheduled snapshots at their targets")
	cmd.MarkFlagsMutuallyExclusive("hosts", "copies")
	return cmd
}

// writeSets writes the backup sets, and why a set is damaged.
func (c backupCommand) writeSets(w io.Writer, list []backups.SnapshotInfo, noHeaders bool) error {
	if len(list) == 0 {
		c.printMessage("No backup sets found. Create one: slipway etcd snapshot")
		return nil
	}
	if err := view.WriteSnapshots(w, list, c.env.Now(), noHeaders); err != nil {
		return err
	}
	var problems diag.List
	for _, i := range list {
		if i.Problem != nil {
			problems = append(problems, *i.Problem)
		}
	}
	view.WriteDiagnostics(c.Err, problems, c.errStyle())
	return nil
}

// showScheduled returns the function that lists the hosts' scheduled snapshots.
func (c backupCommand) showScheduled() func(*cobra.Command, []string) error {
	return clusterReport[backupManager, inspect.Scheduled]{
		read: func(ctx context.Context, svc backupManager, cluster string, progress event.Sink) (*inspect.Scheduled, error) {
			return svc.Scheduled(ctx, cluster, progress)
		},
		show: func(w io.Writer, s *inspect.Scheduled, style view.Style) error {
			return view.WriteScheduled(w, s, c.env.Now(), style)
		},
		exit: func(s *inspect.Scheduled) error { return exitUnless(s.Good, exitPartial) },
	}.newRunFunc(c.console, c.clusters, c.open)
}

// showCopies returns the function that lists the copies of scheduled snapshots.
func (c backupCommand) showCopies() func(*cobra.Command, []string) error {
	return clusterReport[backupManager, inspect.CopyReport]{
		read: func(ctx context.Context, svc backupManager, cluster string, progress event.Sink) (*inspect.CopyReport, error) {
			return svc.Copies(ctx, cluster, progress)
		},
		show: func(w io.Writer, r *inspect.CopyReport, style view.Style) error {
			return view.WriteCopies(w, r, c.env.Now(), style)
		},
		exit: func(r *inspect.CopyReport) error { return exitUnless(r.Good, exitPartial) },
	}.newRunFunc(c.console, c.clusters, c.open)
}
