package cli

import (
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) infoCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cluster-info [NAME]", Short: "Show the health of a cluster",
		Long: `Shows the health of a cluster, its problems, and the next command: nodes, etcd,
certificates, add-ons and operations. The command queries the API and, over SSH, every
host at the same time. If the API or hosts are not reachable, it shows what the other
hosts and Slipway's state know. It ends within 30 seconds. Resources are shown as
allocatable of capacity.`,
		Aliases: []string{"info"}, Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, name, err := a.chosen(ctx, args)
			if err != nil {
				return err
			}
			info, err := watched(ctx, a, func(progress event.Sink) (*lifecycle.Info, error) { return svc.Info(ctx, name, progress) })
			if err != nil {
				return err
			}
			return a.data(info, func(w io.Writer) error { return view.Info(w, info, a.env.Now(), a.outStyle()) })
		},
	}
}
