package cli

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
)

func newEtcdDrillCommand(c backupCommand) *cobra.Command {
	var o backups.DrillOptions
	report := clusterReport[backupManager, backups.DrillReport]{
		read: func(ctx context.Context, svc backupManager, cluster string, progress event.Sink) (*backups.DrillReport, error) {
			return svc.Drill(ctx, cluster, o, progress)
		},
		show: view.WriteDrill,
		exit: func(r *backups.DrillReport) error { return exitUnless(r.Good, exitFailed) },
	}
	cmd := &cobra.Command{
		Use: "drill [NAME]", Short: "Test the restore of a backup set",
		Long: `Restores a backup set into a temporary etcd on a host with an etcd member. The
default is the newest set on this machine; --from selects another. The temporary
etcd uses a directory that only root can read, listens on no network address, has
low priority, and is removed afterwards. The cluster's etcd is not changed.

Slipway checks the integrity, the revision and the number of keys of the restored
data. It also reads a Secret. If the cluster encrypts Secrets, Slipway decrypts it
with the set's encryption configuration. A set that the cluster's key has not
signed needs --signed-by or --unverified.

Exit codes:
  0  The set is good.
  1  The restored data does not match the set.
  2  The set cannot be used, or the host has too little disk space or memory.`,
		Example: `  slipway etcd drill prod
  slipway etcd drill prod --from /mnt/safe/prod.tar.age --identity key.txt`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: report.newRunFunc(c.console, c.clusters, c.open),
	}
	addBackupSetFlags(cmd, &o.From, &o.Identity)
	addSetTrustFlags(cmd, &o.SetTrust)
	return cmd
}
