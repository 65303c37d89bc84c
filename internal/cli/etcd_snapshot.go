package cli

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
)

// backupCommand holds what commands need that take, list or test backups.
type backupCommand struct {
	*console
	clusters *clusterChooser
	open     opener[backupManager]
}

func newEtcdSnapshotCommand(c backupCommand) *cobra.Command {
	var o backups.SnapshotOptions
	report := clusterReport[backupManager, backups.SnapshotInfo]{
		read: func(ctx context.Context, svc backupManager, cluster string, progress event.Sink) (*backups.SnapshotInfo, error) {
			return svc.Snapshot(ctx, cluster, o, progress)
		},
		show: view.WriteSnapshot,
	}
	cmd := &cobra.Command{
		Use: "snapshot [NAME]", Short: "Back up a cluster's etcd",
		Long: `Takes a snapshot on a healthy etcd member: if possible, on the follower that is
least behind. Slipway verifies the snapshot on the host and again on this machine,
and writes a backup set. The set contains the snapshot, the keys of the cluster's
CAs and service accounts, and the encryption configuration if there is one. It also
contains the description of the cluster and its versions. The cluster is not changed.

The set is one file that only its owner can read. Anyone who has the file controls
the cluster: encrypt it with --recipient and a key from age-keygen, and store that
key elsewhere. Without --out, the set is written to backups/NAME in $SLIPWAY_HOME,
where it remains after the cluster is deleted. To list sets: slipway etcd snapshots.
Existing files are never overwritten, and Slipway does not start a backup for which
the disks have too little space.

With --copy, Slipway takes no snapshot. It fetches an existing copy
(spec.etcd.backup.copies) without decrypting it. A copy in a directory of the hosts
is fetched from the hosts. Other copies are fetched from their target; that works
without the cluster and its hosts. The newest copy is the one whose name a host of
the cluster chose last. Its content is verified when it is tested or restored.`,
		Example: `  slipway etcd snapshot prod
  slipway etcd snapshot prod --out /mnt/safe/prod.tar
  slipway etcd snapshot prod --of cp1
  slipway etcd snapshot prod --copy nas
  slipway etcd snapshot prod --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: report.newRunFunc(c.console, c.clusters, c.open),
	}
	cmd.Flags().StringVar(&o.Out, "out", "", "write the backup set to this `file`")
	_ = cmd.MarkFlagFilename("out", "tar", "age") // the flag is there
	cmd.Flags().StringArrayVar(&o.Recipients, "recipient", nil, "encrypt the set for this age `key`: age1… (repeatable)")
	cmd.Flags().StringVar(&o.Of, "of", "", "use a scheduled snapshot of `HOST[/FILE]` (its newest, or that file)")
	cmd.Flags().StringVar(&o.Copy, "copy", "", "fetch a copy from a target: `TARGET[/FILE]` (its newest, or that file)")
	addUnverifiedFlag(cmd, &o.Unverified,
		"with --copy TARGET: also accept a copy whose name no cluster host created "+
			"(anyone who can write to the target may have created it)")
	cmd.MarkFlagsMutuallyExclusive("of", "copy")
	cmd.MarkFlagsMutuallyExclusive("recipient", "copy")
	return cmd
}

// addBackupSetFlags adds the flags for a backup set and the key that decrypts it.
func addBackupSetFlags(cmd *cobra.Command, from, identity *string) {
	f := cmd.Flags()
	f.StringVar(from, "from", "", "the `file` of the backup set")
	f.StringVar(identity, "identity", "", "the `file` of the age key that decrypts it, as written by age-keygen")
	_, _ = cmd.MarkFlagFilename("from", "tar", "age"), cmd.MarkFlagFilename("identity") // the flags are there
}

// addSetTrustFlags adds the flags that allow sets that the cluster's own key has not
// signed.
func addSetTrustFlags(cmd *cobra.Command, t *backups.SetTrust) {
	f := cmd.Flags()
	f.StringVar(&t.SignedBy, "signed-by", "", "also trust this public `key`, for example the key of a previous manager (ed25519:…)")
	addUnverifiedFlag(cmd, &t.Unverified, "use a set that no trusted key has signed; its author gets the power of root on all hosts")
}

func addUnverifiedFlag(cmd *cobra.Command, to *bool, help string) {
	cmd.Flags().BoolVar(to, "unverified", false, help)
}
