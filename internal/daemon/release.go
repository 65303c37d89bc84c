package daemon

import (
	"fmt"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/server/controlplane"
)

func newReleaseCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "release", Short: "Start the controllers after a restore", Args: cobra.NoArgs,
		Long: `Starts the controllers of a restored server, which are on hold. From then on, the
server acts on its objects. Compare them with the real clusters before.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := adminclient.Open(p.dataDir)
			if err != nil {
				return err
			}
			body, err := adminclient.Post(cmd.Context(), config, controlplane.PathPrefix+pathRelease, struct{}{})
			if err != nil {
				return err
			}
			if err := body.Close(); err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.Out, "The controllers are running.\nNext: slipwayd status")
			return err
		},
	}
}
