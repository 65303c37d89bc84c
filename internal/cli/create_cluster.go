package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle"
)

// fileCommand holds what commands need that run an operation on the hosts of a file, or
// without a file on this machine.
type fileCommand struct {
	files  *clusterFiles
	runner *operationRunner
}

func newCreateClusterCommand(c fileCommand) *cobra.Command {
	var options lifecycle.Options
	var file, kubernetes, bundle string
	cmd := &cobra.Command{
		Use:   "cluster [-f FILE] [NAME]",
		Short: "Create a cluster",
		Long: `Creates the cluster that FILE describes. Without a file, creates a one-node
cluster on this machine, with the name of this machine.

Slipway shows the plan first and asks for confirmation. It refuses a cluster that
is already in its state, and hosts that already belong to a cluster.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.files.loadFileOrThisHost(cmd.Context(), file, kubernetes, args)
			if err != nil {
				return err
			}
			if err := d.setBundle(bundle); err != nil {
				return err
			}
			r := lifecycle.CreateRequest{Subject: d.subject(), Options: options}
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r), file: file, brief: true})
		},
	}
	addFileFlag(cmd, &file, "the cluster file; - is standard input")
	addOptionFlags(cmd, &options)
	cmd.Flags().StringVar(&kubernetes, "kubernetes", "", "Kubernetes `version` for a cluster without a file")
	cmd.Flags().StringVar(&bundle, "bundle", "", "install from this `bundle`: a file, a directory or a registry reference")
	cmd.MarkFlagsMutuallyExclusive("file", "kubernetes")
	program.CompleteVersion(cmd, c.files.loadCatalogue)
	return cmd
}
