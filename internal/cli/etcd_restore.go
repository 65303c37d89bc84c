package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle"
)

func newEtcdRestoreCommand(c operationCommand) *cobra.Command {
	var (
		allowRemoval bool
		r            lifecycle.RestoreEtcdRequest
	)
	cmd := &cobra.Command{
		Use: "restore [NAME] --from FILE", Short: "Restore a cluster's etcd from a backup set",
		Long: `Restores the data of a backup set to all etcd members of a cluster. The cluster
gets the state of the backup; everything written since then is lost.

Slipway reads the whole set first, and refuses it without any change if it is incomplete
or modified, or belongs to another cluster. It also refuses a set that is not signed by
the cluster's key, or that the cluster's programs cannot read. The author of a set gets
the power of root on all hosts when it is restored: use --unverified only for a set
whose origin you know. All hosts with an etcd member or a control plane must be
reachable.

Slipway creates the new data next to the old data, and stops etcd and the control
planes. It moves the old data aside; the old data remains on the hosts. Then it restarts
everything that caches data of the API: API servers, controllers, schedulers,
kubelets, kube-proxy, the network's pods, and CoreDNS. The restore ends when the API
serves the restored revision and the nodes are ready. If it is interrupted, continue
with: slipway resume.

CA and service account keys are taken from the set only on hosts that have lost
their own. From an unverified set they are taken only with --with-keys: its author
may have these keys and can sign certificates with them.

This loses data. Confirm it by typing the cluster's name, by giving the cluster's
name with --yes, or with --allow-removal.`,
		Example: `  slipway etcd restore prod --from ~/.local/share/slipway/backups/prod/prod-20261120-181502.tar
  slipway etcd restore prod --from prod.tar.age --identity key.txt`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Name, err = c.clusters.chooseCluster(cmd.Context(), args); err != nil {
				return err
			}
			return c.runner.runOperation(cmd.Context(),
				operation{prepare: prepareRequest(r), isNamedByUser: len(args) > 0, allowRemoval: allowRemoval})
		},
	}
	addBackupSetFlags(cmd, &r.Backup, &r.Identity)
	addSetTrustFlags(cmd, &r.SetTrust)
	cmd.Flags().BoolVar(&r.WithKeys, "with-keys", false,
		"with --unverified: also take lost CA and service account keys from the set; its author may have them")
	_ = cmd.MarkFlagRequired("from") // the flag is there
	addAllowRemovalFlag(cmd, &allowRemoval)
	addOptionFlags(cmd, &r.Options)
	return cmd
}
