package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newUseCommand(c getCommand) *cobra.Command {
	return &cobra.Command{
		Use: "use [NAME]", Short: "Set the default cluster",
		Long: `Sets the cluster that commands use when no cluster name is given. Without NAME,
shows the default cluster.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := c.openStore()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				name, err := state.Preferences().DefaultCluster()
				if err != nil {
					return err
				}
				return c.writeResult(map[string]string{"default": name}, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, cmp.Or(name, "no default cluster is set"))
					return err
				})
			}
			svc, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := checkClusterName(args[0]); err != nil {
				return err
			}
			if _, err := svc.Cluster(cmd.Context(), args[0]); err != nil {
				return err
			}
			if err := state.Preferences().SetDefaultCluster(args[0]); err != nil {
				return err
			}
			return c.writeResult(map[string]string{"default": args[0]}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The default cluster is now %s.\n", args[0])
				return err
			})
		},
	}
}
