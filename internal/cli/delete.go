package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle"
)

func newDeleteCommand(children ...*cobra.Command) *cobra.Command {
	cmd := program.NewParentCommand("delete", "Delete a cluster or nodes", "destroy", "del")
	cmd.AddCommand(children...)
	return cmd
}

func newDeleteClusterCommand(c operationCommand) *cobra.Command {
	var (
		file         string
		allowRemoval bool
		r            lifecycle.DeleteRequest
	)
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Delete a cluster and reset its hosts",
		Long: `Deletes a cluster and resets its hosts: they get back the files, units, settings,
mounts, links and packet filter rules that they had before. Files that other
programs created since then are kept, except in directories that were created only
for the cluster, such as /var/lib/etcd, /var/lib/kubelet and /var/lib/containerd.

This removes data. Confirm it by typing the cluster's name, by giving the
cluster's name with --yes, or with --allow-removal.

A cluster remains in Slipway's state until all its hosts are reset. If hosts are
permanently lost, --forget removes the cluster anyway: Slipway resets the hosts
that it can and lists the others. A missing key or password on this machine does
not mean that a host is lost: such a host is refused, also with --forget.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Subject, err = c.subjects.readSubject(cmd.Context(), file, args); err != nil {
				return err
			}
			return c.runner.runOperation(cmd.Context(), operation{
				prepare: prepareRequest(r), file: file, isNamedByUser: len(args) > 0, allowRemoval: allowRemoval, brief: true,
			})
		},
	}
	addFileFlag(cmd, &file, "the cluster file, for a cluster that is not in Slipway's state")
	addOptionFlags(cmd, &r.Options)
	addAllowRemovalFlag(cmd, &allowRemoval)
	cmd.Flags().BoolVar(&r.Forget, "forget", false, "remove the cluster from Slipway's state even if hosts cannot be reset")
	return cmd
}
