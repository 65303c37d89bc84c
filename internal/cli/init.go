package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle"
)

func newInitCommand(children ...*cobra.Command) *cobra.Command {
	cmd := program.NewParentCommand("init", "Prepare hosts")
	cmd.AddCommand(children...)
	return cmd
}

func newInitOSCommand(c fileCommand) *cobra.Command {
	var options lifecycle.Options
	var file string
	cmd := &cobra.Command{
		Use:   "os [-f FILE] [NAME]",
		Short: "Prepare the operating system of hosts",
		Long: `Prepares the hosts of FILE for Kubernetes without installing it: kernel, swap,
time and host names. Without a file, prepares this machine.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.files.loadFileOrThisHost(cmd.Context(), file, "", args)
			if err != nil {
				return err
			}
			r := lifecycle.InitOSRequest{Subject: d.subject(), Options: options}
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r), file: file})
		},
	}
	addFileFlag(cmd, &file, "the cluster file; - is standard input")
	addOptionFlags(cmd, &options)
	return cmd
}

func newInitRegistryCommand(c fileCommand) *cobra.Command {
	var options lifecycle.Options
	var file, bundle string
	cmd := &cobra.Command{
		Use:   "registry -f FILE [NAME]",
		Short: "Set up a registry host",
		Long: `Sets up a registry on the host with the role registry: with TLS, credentials, and
the images of the bundle. Other hosts are not changed. When you create the cluster
or apply the file, its nodes are configured for the registry automatically.

Run the command again to apply changes. For another bundle, it pushes the images
that the registry does not have.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.files.loadFileOrThisHost(cmd.Context(), file, "", args)
			if err != nil {
				return err
			}
			if err := d.setBundle(bundle); err != nil {
				return err
			}
			r := lifecycle.InitRegistryRequest{Subject: d.subject(), Options: options}
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r), file: file})
		},
	}
	addFileFlag(cmd, &file, "the cluster file; - is standard input")
	addOptionFlags(cmd, &options)
	cmd.Flags().StringVar(&bundle, "bundle", "", "push the images of this `bundle`: a file, a directory or a registry reference")
	return cmd
}
